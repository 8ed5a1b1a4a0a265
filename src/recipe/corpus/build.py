"""Narrations to a corpus on disk: staged first, then encoded shard by shard, the manifest last."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from recipe.artifacts import JsonObject, atomic_path, file_sha256, locked, read_json, remove, write_json
from recipe.config import CorpusConfig
from recipe.corpus.encode import Engine, Work, encode_staged, on_device, recorded_files
from recipe.corpus.encoders import Encoder, differences, open_encoder
from recipe.corpus.layout import (
    EMBEDDINGS,
    FORMAT,
    INPUTS,
    MANIFEST,
    PLAN,
    SHARDS,
    STAGED,
    STAGING,
    TABLES,
    Manifest,
    Plan,
    ShardRecord,
    corpus_id,
    file_records,
    read_manifest,
    require_files,
    shard_name,
    total_counts,
    write_tables,
)
from recipe.corpus.scan.kernels import kernels
from recipe.errors import CorpusError, InputError
from recipe.progress import SILENT, Progress
from recipe.types import Narration

# The files a corpus was read from, noted so that a build can tell that they are unchanged without reading them.


class Origin(NamedTuple):
    """Where narrations are read from and how."""

    files: tuple[Path, ...]
    """Files and folders, in the order in which they are read."""
    reading: JsonObject
    """The settings they are read with."""
    exclusions: JsonObject | None = None
    """What identifies the videos and texts that are kept out."""
    report: Callable[[], JsonObject] = dict
    """What reading kept and dropped, asked for after the last narration."""


class InputRecord(TypedDict):
    """One file or folder; `stamp` changes with its size and times, `sha256` with its content."""

    path: str
    stamp: str
    sha256: str


def stamps(files: Sequence[Path]) -> list[str]:
    """Of each file or folder, what changes when it is written to; empty where there is none."""
    return [_stamp(path) for path in files]


def note_inputs(files: Sequence[Path], before: Sequence[str]) -> list[InputRecord]:
    """Records of the files that were read since the stamps `before`. Raises InputError for one that has changed."""
    for path, stamp in zip(files, before, strict=True):
        if _stamp(path) != stamp:
            raise InputError.at(path, "the file changed while it was read", "run the same command again")
    return [
        InputRecord(path=str(path.resolve()), stamp=stamp, sha256=_sha256(path))
        for path, stamp in zip(files, before, strict=True)
    ]


def unchanged(recorded: Sequence[InputRecord], files: Sequence[Path]) -> list[InputRecord] | None:
    """The records brought up to date where the files hold what they held, else None.

    Only a file that has moved or whose times have changed is read.
    """
    if len(recorded) != len(files):
        return None
    now = [_again(record, path) for record, path in zip(recorded, files, strict=True)]
    same = all(new["sha256"] == record["sha256"] for new, record in zip(now, recorded, strict=True))
    return now if same else None


def _again(record: InputRecord, path: Path) -> InputRecord:
    stamp, place = _stamp(path), str(path.resolve())
    if stamp and (place, stamp) == (record["path"], record["stamp"]):
        return record
    named_alike = path.name == Path(record["path"]).name  # a name may tell the format or the video
    return InputRecord(path=place, stamp=stamp, sha256=_sha256(path) if stamp and named_alike else "")


def _stamp(path: Path) -> str:
    digest = hashlib.sha256()
    found = False
    for file in _files(path):
        found, status = True, file.stat()
        digest.update(f"{file.relative_to(path)} {status.st_size} {status.st_mtime_ns}\n".encode(errors="replace"))
    return digest.hexdigest() if found else ""


def _sha256(path: Path) -> str:
    if path.is_file():
        return file_sha256(path)
    digest = hashlib.sha256()
    for file in _files(path):
        digest.update(f"{file.relative_to(path)} {file_sha256(file)}\n".encode(errors="replace"))
    return digest.hexdigest()


def _files(path: Path) -> Iterator[Path]:
    yield from [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())


# Staging: the narrations, read once as a stream and cut into shards, lie on disk before the first is encoded.
#
# Every fault of the input shows here, before hours of encoding; what comes after needs no input any more.


SHARD_SEGMENTS = 1 << 18
"""A shard takes no further narration beyond this many segments, so that one shard always fits in memory."""


def stage(narrations: Iterable[Narration], output: Path, size: int, progress: Progress) -> list[ShardRecord]:
    """Stage all narrations, at most `size` a shard, in place of what was staged before.

    Raises InputError where there are no narrations, or one has no segments or a text that is not valid Unicode.
    """
    remove(output / STAGING)
    records = []
    with progress.task("reading narrations") as advance:
        for index, batch in enumerate(_batches(narrations, size)):
            records.append(_write(output, shard_name(index), batch))
            advance(len(batch))
    if not records:
        raise InputError("there are no narrations to build a corpus from; give at least one.")
    return records


def restage(
    narrations: Iterable[Narration], output: Path, size: int, recorded: Sequence[ShardRecord], progress: Progress
) -> None:
    """Compare the narrations with the shards on record, and stage again those that have been deleted since.

    Raises CorpusError where the narrations are others.
    """
    compared = 0
    with progress.task("comparing narrations") as advance:
        for batch in _batches(narrations, size):
            name = shard_name(compared)
            if compared == len(recorded):
                raise _changed(output, name, "the input goes on with narrations that the build has not")
            if _content(batch) != recorded[compared]["content"]:
                raise _changed(output, name, "the shard holds other narrations than the input")
            if not present(output, compared):
                _write(output, name, batch)
            compared += 1
            advance(len(batch))
    if compared < len(recorded):
        raise _changed(output, shard_name(compared), "the input ends before this shard")


def present(output: Path, index: int) -> bool:
    """True where the shard is finished, or staged."""
    return any((output / place / shard_name(index)).is_dir() for place in (SHARDS, STAGING))


def _changed(output: Path, name: str, problem: str) -> CorpusError:
    return CorpusError(
        f"{output / SHARDS / name}: {problem}; "
        "the input has changed since this build began: choose another folder or delete this one."
    )


def _batches(narrations: Iterable[Narration], size: int) -> Iterator[list[Narration]]:
    batch: list[Narration] = []
    segments = 0
    for narration in narrations:
        if not narration.segments:
            raise InputError(f"narration {narration.video_id!r} has no segments; leave it out.")
        if batch and (len(batch) == size or segments + len(narration.segments) > SHARD_SEGMENTS):
            yield batch
            batch, segments = [], 0
        batch.append(narration)
        segments += len(narration.segments)
    if batch:
        yield batch


def _write(output: Path, name: str, batch: list[Narration]) -> ShardRecord:
    content = _content(batch)
    with atomic_path(output / STAGING / name) as partial:
        partial.mkdir()
        write_tables(partial, batch)
        files = file_records(partial, TABLES)
    return ShardRecord(
        name=name,
        content=content,
        narrations=len(batch),
        segments=sum(len(narration.segments) for narration in batch),
        timed=sum(narration.segments[0].start is not None for narration in batch),
        files=files,
    )


def _content(batch: list[Narration]) -> str:
    """SHA-256 over what the narrations say, whatever the version of the table format."""
    digest = hashlib.sha256()
    for narration in batch:
        spoken = [[segment.text, segment.start, segment.end] for segment in narration.segments]
        line = json.dumps([narration.video_id, narration.title, narration.source, spoken], ensure_ascii=False)
        try:
            digest.update(f"{line}\n".encode())
        except UnicodeEncodeError:
            raise InputError(
                f"narration {narration.video_id!r} has a text that is not valid Unicode; correct it or leave it out."
            ) from None
    return digest.hexdigest()


# Narrations to a corpus on disk: staged first, then encoded shard by shard, the manifest last.
#
# A build that is stopped at any moment goes on where it was, and ends byte for byte as one that was not.


class _Staged(NamedTuple):
    """All shards of a build, what reading the input kept and dropped, and the files that it was."""

    shards: list[ShardRecord]
    read: JsonObject | None
    inputs: list[InputRecord]


def build_corpus(
    narrations: Iterable[Narration],
    output: Path,
    config: CorpusConfig,
    progress: Progress = SILENT,
    *,
    encoder: Encoder | None = None,
    origin: Origin | None = None,
    engine: Engine = "local",
    devices: Sequence[str] = (),
) -> Path:
    """Write the corpus of `narrations` to the folder `output`, and return it.

    What a former run of the same build has finished is kept: the result is byte for byte that of an uninterrupted
    build, on every engine. `encoder` stands in for the one that `config` names. With `origin`, the files that the
    narrations come from, nothing is read again while these are unchanged; without, narrations that were staged
    before are compared with those given.

    Raises CorpusError where the folder holds another build (other narrations, encoder or settings), InputError
    where another process is at work in it or the narrations are none or unusable, and what the engine raises.
    """
    if encoder is None and origin is not None and _is_current(output, config, origin):
        return output
    kernels("scan.quantise")  # what is missing shows now and not after the first shard
    encoder = encoder or open_encoder(on_device(config.encoder, devices[0]) if devices else config.encoder)
    plan = Plan(
        format=FORMAT,
        encoder=encoder.identity,
        shard_size=config.shard_size,
        reading=None if origin is None else origin.reading,
        exclusions=None if origin is None else origin.exclusions,
    )
    with locked(output):
        _bind(output, plan)
        staged = _stage(narrations, output, config, origin, progress)
        missing = [index for index in range(len(staged.shards)) if not _finished(output, index).is_dir()]
        if missing:
            if not (output / PLAN).exists():
                write_json(output / PLAN, plan)
            left = sum(staged.shards[index]["segments"] for index in missing)
            with progress.task("encoding segments", left) as advance:
                encode_staged(Work(output, missing, config.encoder, encoder, tuple(devices)), engine, advance)
        _conclude(output, plan, staged, None if origin is None else _noted(config, staged.inputs))
    return output


def _is_current(output: Path, config: CorpusConfig, origin: Origin) -> bool:
    """True where the folder holds the finished corpus of these settings and files: nothing is loaded to tell."""
    if not (output / MANIFEST).is_file() or (output / PLAN).exists():
        return False
    manifest, inputs = read_manifest(output / MANIFEST), _recorded_inputs(output)
    asked = (config.shard_size, origin.reading, origin.exclusions)
    if (manifest["shard_size"], manifest["reading"], manifest["exclusions"]) != asked:
        return False
    if inputs != _noted(config, unchanged(inputs["files"], origin.files)):
        return False
    return all(_finished(output, index).is_dir() for index in range(len(manifest["shards"])))


def _bind(output: Path, plan: Plan) -> None:
    """Hold the folder to one build: record `plan` in a new folder, compare it in one that was begun."""
    begun = next((output / name for name in (MANIFEST, PLAN) if (output / name).is_file()), None)
    if begun is None:
        if any(not path.name.startswith(".") for path in output.iterdir()):
            raise CorpusError(f"{output}: the folder is not empty and holds no corpus; choose another folder.")
        write_json(output / PLAN, plan)
        return
    if changed := _changed_setting(read_manifest(begun), plan):
        raise CorpusError(
            f"{output}: the folder holds a build with other settings: {changed}; "
            "choose another folder or delete this one."
        )


def _changed_setting(recorded: Mapping[str, Any], plan: Plan) -> str:
    """In words, where the settings of a build are not those on record."""
    simple = {key: plan[key] for key in ("format", "shard_size")}
    found = [differences(recorded["encoder"], plan["encoder"]), differences(recorded, simple)]
    for part in ("reading", "exclusions"):
        before, now = recorded[part], plan[part]
        if before is not None and now is not None:
            found.append(differences(before, now))
        elif before is not now:
            found.append(f"{part} {'not recorded, but given' if before is None else 'recorded, but not given'}")
    return ", ".join(filter(None, found))


def _stage(
    narrations: Iterable[Narration], output: Path, config: CorpusConfig, origin: Origin | None, progress: Progress
) -> _Staged:
    """All shards of the build, each of them finished or staged."""
    known = _known(output)
    if known is None:
        return _stage_first(narrations, output, config, origin, progress)
    whole = all(present(output, index) for index in range(len(known.shards)))
    if origin is None:
        restage(narrations, output, config.shard_size, known.shards, progress)
        return known
    files = unchanged(_recorded_inputs(output)["files"], origin.files)
    if files is None or not whole:
        before = stamps(origin.files)
        restage(narrations, output, config.shard_size, known.shards, progress)
        files = note_inputs(origin.files, before)
    return known._replace(inputs=files)


def _known(output: Path) -> _Staged | None:
    """What a former run has staged; None where it was stopped before it had staged all."""
    for path in (output / STAGED, output / MANIFEST):
        if path.is_file():
            values = read_json(path)
            return _Staged(values["shards"], values["read"], [])
    return None


def _stage_first(
    narrations: Iterable[Narration], output: Path, config: CorpusConfig, origin: Origin | None, progress: Progress
) -> _Staged:
    """Stage the whole input; input that cannot be used leaves nothing behind."""
    remove(output / SHARDS)
    before = [] if origin is None else stamps(origin.files)
    try:
        shards = stage(narrations, output, config.shard_size, progress)
        files = [] if origin is None else note_inputs(origin.files, before)
        staged = _Staged(shards, None if origin is None else origin.report(), files)
        if origin is not None:
            write_json(output / INPUTS, _noted(config, files))
        write_json(output / STAGED, {"shards": staged.shards, "read": staged.read})
    except BaseException:
        for name in (STAGING, INPUTS, PLAN):
            remove(output / name)
        with suppress(OSError):  # another's hidden file
            output.rmdir()
        raise
    return staged


def _noted(config: CorpusConfig, files: list[InputRecord] | None) -> JsonObject:
    """What lies beside the manifest: the input, and the encoder as it was asked for."""
    return {"encoder": config.encoder.model_dump(exclude={"batch_size", "device"}), "files": files}


def _finished(output: Path, index: int) -> Path:
    return output / SHARDS / shard_name(index)


def _conclude(output: Path, plan: Plan, staged: _Staged, inputs: JsonObject | None) -> None:
    """Write what is new of the manifest and the notes on the input, and remove what only a build needs.

    The plan goes last: as long as it is there, the next build looks at everything again.
    """
    shards = [_whole(output, index, record) for index, record in enumerate(staged.shards)]
    if (output / PLAN).exists():
        counts, identity = total_counts(shards), corpus_id({**plan, "shards": shards})
        write_json(output / MANIFEST, Manifest(**plan, read=staged.read, **counts, shards=shards, id=identity))
    if inputs is not None and inputs != _recorded_inputs(output):
        write_json(output / INPUTS, inputs)
    for name in (STAGED, STAGING, PLAN):
        remove(output / name)


def _recorded_inputs(output: Path) -> JsonObject:
    recorded: JsonObject = read_json(output / INPUTS) if (output / INPUTS).is_file() else {"files": []}
    return recorded


def _whole(output: Path, index: int, record: ShardRecord) -> ShardRecord:
    """The record of a finished shard, its files compared in size. Raises CorpusError."""
    files = recorded_files(output, index) or (record["files"] if EMBEDDINGS in record["files"] else None)
    shard: ShardRecord = {**record, "files": files or file_records(_finished(output, index))}
    require_files(_finished(output, index), shard)
    return shard
