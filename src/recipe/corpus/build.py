"""Narrations to a corpus on disk: staged first, then encoded shard by shard, the manifest last.

The narrations are read once, as a stream, and cut into staged shards before the first one is encoded: every fault of
the input shows then, before hours of encoding. A build that is stopped at any moment continues where it was, and ends
byte for byte as an uninterrupted one.
"""

import hashlib
import importlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from itertools import chain, starmap
from pathlib import Path
from typing import Any, Literal, NamedTuple

from recipe.artifacts import JsonObject, atomic_path, file_sha256, fingerprint, locked, read_json, remove, write_json
from recipe.config.corpus import CorpusConfig
from recipe.corpus.comparison import difference
from recipe.corpus.encode import encode_on_devices, encode_shards, on_device
from recipe.corpus.encoder_identity import differences
from recipe.corpus.encoders import Encoder, open_encoder
from recipe.corpus.integrity import record_build
from recipe.corpus.layout import (
    EMBEDDINGS,
    FORMAT,
    INPUTS,
    MANIFEST,
    PLAN,
    RECORD,
    SHARDS,
    STAGED,
    STAGING,
    TABLES,
    BuildPlan,
    FileRecord,
    HeldManifest,
    Manifest,
    ShardRecord,
    corpus_id,
    file_records,
    read_manifest,
    require_files,
    shard_name,
    total_counts,
    write_tables,
)
from recipe.corpus.layout import read_narrations as read_stored
from recipe.corpus.leaks import ExclusionReport, Exclusions
from recipe.corpus.scan import kernels
from recipe.corpus.store import Corpus
from recipe.data.narrations import Duplicates, ReadingOptions, ReadingReport, read_narrations, read_titles, with_titles
from recipe.errors import ConfigError, CorpusError, InputError
from recipe.progress import SILENT, Progress
from recipe.types import Narration

SHARD_SEGMENTS = 1 << 18
"""A shard takes no further narration beyond this many segments, so that one shard always fits in memory."""


class Origin(NamedTuple):
    """Where narrations are read from and how."""

    files: tuple[Path, ...]
    """Files and folders, in the order in which they are read."""
    reading: JsonObject | None
    """The settings they are read with; None of a corpus that was built in Python."""
    exclusions: JsonObject | None = None
    """What identifies the videos and texts that are kept out."""
    report: Callable[[], JsonObject | None] = dict
    """Counts of what reading kept and dropped; called after the last narration."""


def narration_source(
    files: Sequence[Path | str],
    options: ReadingOptions,
    duplicates: Duplicates = "error",
    exclusions: Exclusions | None = None,
    titles: Path | None = None,
) -> tuple[Iterator[Narration], Origin]:
    """A stream of the narrations of `files`, in order and without `exclusions`, and where they come from.

    Nothing is read before the first is asked for. Those without a title get one from the file `titles`, which is read
    at once. A corpus, which is given alone, is taken as it is, with the record of how it was read and of what was kept
    out, so that it can be encoded again. Raises InputError for the file `titles` and for a corpus given with files or
    settings that do not apply to it, CorpusError.
    """
    paths = [Path(file) for file in files]
    if built := next(filter(is_corpus, paths), None):
        changed = (options, duplicates, exclusions, titles) != (ReadingOptions(), "error", None, None)
        if len(files) > 1 or changed:
            problem = "this is a corpus, which is encoded anew as it is"
            raise InputError.at(built, problem, "leave out other files, and options of reading, titles and exclusion")
        return _corpus_source(built)
    report, excluded = ReadingReport(), ExclusionReport()
    check = None if exclusions is None else exclusions.require_clear
    narrations = read_narrations(paths, duplicates, options, report, check)
    known = None if titles is None else read_titles(titles)
    if known is not None:
        narrations = with_titles(narrations, known, report)
    if exclusions is not None:
        narrations = exclusions.filter(narrations, excluded)

    def counts() -> JsonObject:
        values = {field.name: getattr(report, field.name) for field in fields(report)}
        return {
            **{name: dict(value) if isinstance(value, Counter) else value for name, value in values.items()},
            "excluded": None if exclusions is None else excluded.as_dict(),
            "checked": None if exclusions is None else [source._asdict() for source in exclusions.checked(excluded)],
            "left_out": [*report.lines(read=False), *excluded.lines()],
            "notes": report.lines(read=True),
        }

    # The id of a corpus follows from this record, which names a language only where one is chosen.
    unset = {"language"} if options.language is None else None
    reading: JsonObject = {**options.model_dump(exclude=unset), "duplicates": duplicates}
    if known is not None:
        reading["titles"] = fingerprint(known)
    identity = None if exclusions is None else exclusions.identity
    return narrations, Origin(tuple(paths), reading, identity, counts)


def is_corpus(path: Path) -> bool:
    """Whether narrations are read from a corpus; other files may have the name of its manifest, too."""
    return (path / MANIFEST).is_file() and (path / SHARDS).is_dir()


def _corpus_source(folder: Path) -> tuple[Iterator[Narration], Origin]:
    """The narrations of a corpus. Its manifest stands for all its files, because it holds their checksums."""
    held = HeldManifest(folder)  # a change meanwhile takes none of its files away
    manifest = held.manifest
    shards = ((folder / SHARDS / shard["name"], shard) for shard in manifest["shards"])
    narrations = chain.from_iterable(starmap(read_stored, shards))

    def counts() -> JsonObject | None:
        return held.manifest["read"]

    return narrations, Origin((folder / MANIFEST,), manifest["reading"], manifest["exclusions"], counts)


InputRecord = dict[str, str]
"""One file or folder that was read: its `path`, a `stamp` of sizes and times, and the `sha256` of its content."""


def build_corpus(
    narrations: Iterable[Narration],
    output: Path,
    config: CorpusConfig,
    progress: Progress = SILENT,
    *,
    encoder: Encoder | None = None,
    origin: Origin | None = None,
    engine: Literal["local", "ray"] = "local",
    devices: Sequence[str] = (),
) -> Path:
    """Write the corpus of `narrations` to the folder `output`, and return it.

    What an earlier run of the same build has finished is kept. The bytes are the same on every engine. `encoder`
    replaces the one that `config` names. With `origin`, the files that the narrations come from, nothing is read again
    while these are unchanged; without, narrations that were staged before are compared with those given.

    Raises CorpusError where the folder holds another build (other narrations, encoder or settings), InputError
    where another process is at work in it or there are no usable narrations, and what the engine raises. That a
    finished corpus is of other narrations shows before an encoder is loaded.
    """
    if engine == "ray" and devices:
        raise ConfigError("engine 'ray' chooses its devices itself; leave them out.")
    compared = _compare_finished(narrations, output, config, encoder, origin, progress)
    if compared == "files" or (compared and _is_changed(read_manifest(output / MANIFEST))):
        return output  # a build has nothing to finish in it
    kernels("scan.quantise")  # a missing package shows now and not after the first shard
    if encoder is None:
        # On a cluster this machine encodes nothing: its processor may lack what the workers' devices have.
        settings = on_device(config.encoder, devices[0]) if devices else config.encoder
        encoder = open_encoder(settings, emulate=engine == "ray")
    plan = BuildPlan(
        format=FORMAT,
        encoder=encoder.identity,
        shard_size=config.shard_size,
        reading=None if origin is None else origin.reading,
        exclusions=None if origin is None else origin.exclusions,
    )
    with locked(output):
        _bind(output, plan)
        shards, read, files = _stage(() if compared else narrations, output, config, origin, progress, compared)
        missing = [index for index in range(len(shards)) if not (output / SHARDS / shard_name(index)).is_dir()]
        if missing:
            # A finished corpus without one of its shards is a build under way again.
            if not (output / PLAN).exists():
                write_json(output / PLAN, plan)
            left = sum(shards[index]["segments"] for index in missing)
            with progress.task("encoding segments", left) as advance:
                if engine == "ray":
                    cluster = importlib.import_module("recipe.corpus.cluster.build")
                    cluster.encode_shards(output, missing, config.encoder, advance)
                elif devices:
                    encode_on_devices(output, missing, config.encoder, encoder.identity, devices, advance)
                else:
                    encode_shards(output, missing, encoder, advance)
        _conclude(output, plan, shards, read, None if origin is None else _inputs_file(config, files))
    return output


def _is_changed(manifest: Mapping[str, Any]) -> bool:
    """Whether narrations were added to the corpus or removed from it after it was built (`recipe.corpus.change`)."""
    return bool((manifest["read"] or {}).get("changes"))


def _compare_finished(
    narrations: Iterable[Narration],
    output: Path,
    config: CorpusConfig,
    encoder: Encoder | None,
    origin: Origin | None,
    progress: Progress,
) -> Literal["", "files", "narrations"]:
    """By what the folder is known to hold the finished corpus of these narrations.

    By the files that they come from, which neither reads these nor loads a model, or by the narrations themselves, all
    of which were read. Empty where the build has something left to do or to say. Raises CorpusError for a finished
    corpus of others, with what they would change in it.
    """
    if not (output / MANIFEST).is_file() or (output / PLAN).exists():
        return ""
    manifest = read_manifest(output / MANIFEST)
    changed, shards = _is_changed(manifest), manifest["shards"]
    if not all((output / SHARDS / shard["name"]).is_dir() for shard in shards):
        if changed:
            raise CorpusError(
                f"{output}: a shard is missing, and narrations were added or removed after the build, so that no build "
                "makes it again; copy the corpus again, or build one in another folder."
            )
        return ""
    given = (config.shard_size, *((None, None) if origin is None else (origin.reading, origin.exclusions)))
    if (manifest["shard_size"], manifest["reading"], manifest["exclusions"]) != given:
        return ""  # `_bind` tells what is different
    inputs = _recorded_inputs(output)
    refreshed = None if origin is None else _refreshed(inputs["files"], origin.files)
    if encoder is None and refreshed is not None and inputs == _inputs_file(config, refreshed):
        return "files"
    with locked(output):
        if changed:
            corpus = Corpus.open(output, config.encoder if encoder is None else None)
            difference(corpus, narrations).require_none(output)
        elif refreshed is not None:
            return ""  # the files say it, and need not be read
        else:
            _restage(narrations, output, config.shard_size, shards, progress)
        return "narrations"


def _bind(output: Path, plan: BuildPlan) -> None:
    """Bind the folder to one build: record `plan` in a new folder, compare it in one that was begun."""
    begun = next((output / name for name in (MANIFEST, PLAN) if (output / name).is_file()), None)
    if begun is None:
        if any(not path.name.startswith(".") for path in output.iterdir()):
            raise CorpusError(f"{output}: the folder is not empty and holds no corpus; choose another folder.")
        write_json(output / PLAN, plan)
        return
    recorded = read_manifest(begun)
    changes = [
        differences(recorded["encoder"], plan["encoder"]),
        differences(recorded, {"shard_size": plan["shard_size"]}),
    ]
    for part, now in (("reading", plan["reading"]), ("exclusions", plan["exclusions"])):
        before = recorded[part]
        if before is not None and now is not None:
            # A key is only there where something was chosen: one that is no longer given is a change, too.
            changes.append(differences(before, {**dict.fromkeys(before), **now}))
        elif before is not now:
            changes.append(f"{part} {'not recorded, but given' if before is None else 'recorded, but not given'}")
    if any(changes):
        raise CorpusError(
            f"{output}: the folder holds a build with other settings: {', '.join(filter(None, changes))}; "
            "choose another folder or delete this one."
        )


def _stage(
    narrations: Iterable[Narration],
    output: Path,
    config: CorpusConfig,
    origin: Origin | None,
    progress: Progress,
    compared: str = "",
) -> tuple[list[ShardRecord], JsonObject | None, list[InputRecord]]:
    """All shards of the build, each finished or staged, the counts of reading, and the files that were read.

    With `compared`, the narrations are known to be those of the shards. Input that cannot be used leaves nothing behind
    in a new folder.
    """
    record = next((path for path in (output / STAGED, output / MANIFEST) if path.is_file()), None)
    # Before they are read: a file that changes meanwhile is then found.
    before = [] if origin is None else [_digest(path) for path in origin.files]
    if record is not None:
        values = read_json(record)
        shards: list[ShardRecord] = values["shards"]
        refreshed = None if origin is None else _refreshed(_recorded_inputs(output)["files"], origin.files)
        if refreshed is None or not all(_is_present(output, index) for index in range(len(shards))):
            if not compared:
                _restage(narrations, output, config.shard_size, shards, progress)
            refreshed = [] if origin is None else _record_inputs(origin.files, before)
        return shards, values["read"], refreshed

    remove(output / SHARDS)  # new, or stopped before all was staged
    try:
        shards = stage(narrations, output, config.shard_size, progress, origin)
        files = [] if origin is None else _record_inputs(origin.files, before)
        read = None if origin is None else origin.report()
        if origin is not None:
            write_json(output / INPUTS, _inputs_file(config, files))
        # Last: without this record the next run reads and stages everything again.
        write_json(output / STAGED, {"shards": shards, "read": read})
    except BaseException:
        for name in (STAGING, INPUTS, PLAN):
            remove(output / name)
        with suppress(OSError):  # another's hidden file
            output.rmdir()
        raise
    return shards, read, files


def stage(
    narrations: Iterable[Narration], output: Path, size: int, progress: Progress, origin: Origin | None = None
) -> list[ShardRecord]:
    """Stage all narrations, at most `size` a shard, in place of what was staged before; `origin` tells what was left
    out.

    Raises InputError where there are no narrations, or one has no segments or a text that is not valid Unicode.
    """
    remove(output / STAGING)
    shards = []
    with progress.task("reading narrations") as advance:
        for index, batch in enumerate(_batches(narrations, size)):
            shards.append(_write_staged(output, shard_name(index), batch))
            advance(len(batch))
    if not shards:
        left_out = (origin.report() or {}).get("left_out") if origin else None
        why = f" ({'; '.join(left_out)})" if left_out else ""
        raise InputError(f"there are no narrations to build a corpus from{why}; give at least one.")
    return shards


def _restage(
    narrations: Iterable[Narration], output: Path, size: int, recorded: Sequence[ShardRecord], progress: Progress
) -> None:
    """Compare the narrations with the shards on record, and stage again those that have been deleted since.

    Raises CorpusError where the narrations are others.
    """
    compared, problem, rest = 0, "", iter(list[Narration]())
    finished = (output / MANIFEST).is_file() and all((output / SHARDS / shard["name"]).is_dir() for shard in recorded)
    with progress.task("comparing narrations") as advance:
        batches = _batches(narrations, size)
        for batch in batches:
            if compared == len(recorded):
                problem = "the input has further narrations that the build lacks"
            elif _content(batch) != recorded[compared]["content"]:
                problem = "the shard holds other narrations than the input"
            if problem:
                rest = chain(batch, chain.from_iterable(batches))
                break
            if not _is_present(output, compared):
                _write_staged(output, shard_name(compared), batch)
            compared += 1
            advance(len(batch))
    if compared < len(recorded):
        problem = problem or "the input ends before this shard"
    if problem and finished:
        changes = difference(Corpus.open(output), rest)
        same = sum(shard["narrations"] for shard in recorded[:compared])  # those before `rest`
        changes._replace(removed=changes.removed[same:]).require_none(output)
    if problem:
        raise CorpusError(
            f"{output / SHARDS / shard_name(compared)}: {problem}; "
            "the input has changed since this build began: choose another folder or delete this one."
        )


def _is_present(output: Path, index: int) -> bool:
    """True where the shard is finished, or staged."""
    return any((output / folder / shard_name(index)).is_dir() for folder in (SHARDS, STAGING))


def _batches(narrations: Iterable[Narration], size: int) -> Iterator[list[Narration]]:
    batch: list[Narration] = []
    segments = 0
    for narration in narrations:
        if not narration.segments:
            raise InputError(f"narration {narration.video_id!r} has no segments; leave it out.")
        # A narration is never divided, because a search takes it whole: a very long one has a shard to itself.
        if batch and (len(batch) == size or segments + len(narration.segments) > SHARD_SEGMENTS):
            yield batch
            batch, segments = [], 0
        batch.append(narration)
        segments += len(narration.segments)
    if batch:
        yield batch


def _write_staged(output: Path, name: str, batch: list[Narration]) -> ShardRecord:
    content = _content(batch)
    with atomic_path(output / STAGING / name) as partial:
        partial.mkdir()
        write_tables(partial, batch)
        return shard_record(name, batch, file_records(partial, TABLES), content)


def shard_record(
    name: str, batch: Sequence[Narration], files: dict[str, FileRecord], content: str | None = None
) -> ShardRecord:
    """The record of a shard of these narrations and files; `content` is the hash over them, where it is known."""
    return ShardRecord(
        name=name,
        content=content or _content(batch),
        narrations=len(batch),
        segments=sum(len(narration.segments) for narration in batch),
        timed=sum(narration.segments[0].start is not None for narration in batch),
        files=files,
    )


def _content(batch: Sequence[Narration]) -> str:
    """SHA-256 over the texts and times of the narrations, independent of the table format."""
    digest = hashlib.sha256()
    for narration in batch:
        spoken = [[segment.text, segment.start, segment.end] for segment in narration.segments]
        values = [narration.video_id, narration.title, narration.source, spoken]
        # Left out where there is none, so that narrations without addresses have one hash in every format.
        line = json.dumps(values if narration.url is None else [*values, narration.url], ensure_ascii=False)
        try:
            digest.update(f"{line}\n".encode())
        except UnicodeEncodeError:
            raise InputError(
                f"narration {narration.video_id!r} has a text that is not valid Unicode; correct it or leave it out."
            ) from None
    return digest.hexdigest()


def _record_inputs(files: Sequence[Path], before: Sequence[str]) -> list[InputRecord]:
    """Records of the files that were read since the stamps `before`. Raises InputError for one that has changed."""
    for path, stamp in zip(files, before, strict=True):
        if _digest(path) != stamp:
            raise InputError.at(path, "the file changed while it was read", "run the same command again")
    return [
        {"path": str(path.resolve()), "stamp": stamp, "sha256": _digest(path, contents=True)}
        for path, stamp in zip(files, before, strict=True)
    ]


def _refreshed(recorded: Sequence[InputRecord], files: Sequence[Path]) -> list[InputRecord] | None:
    """The records with present paths and stamps where the files have the same content, else None.

    Only a file that has moved or whose times have changed is read.
    """
    if len(recorded) != len(files):
        return None
    records = []
    for record, path in zip(recorded, files, strict=True):
        stamp, resolved = _digest(path), str(path.resolve())
        if not stamp or (resolved, stamp) != (record["path"], record["stamp"]):
            # The name counts, too: it may tell the format or the video.
            same_name = path.name == Path(record["path"]).name
            if not stamp or not same_name or _digest(path, contents=True) != record["sha256"]:
                return None
            record = {"path": resolved, "stamp": stamp, "sha256": record["sha256"]}
        records.append(record)
    return records


def _digest(path: Path, *, contents: bool = False) -> str:
    """A hash over the sizes and times of a file or of a folder's files, or over their contents.

    The first is quick and changes whenever a file is written to; it is empty where there is none.
    """
    if contents and path.is_file():
        return file_sha256(path)
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    digest = hashlib.sha256()
    for file in files:
        status = file.stat()
        state = file_sha256(file) if contents else f"{status.st_size} {status.st_mtime_ns}"
        # A name in an old encoding is not UTF-8, and must not end the build.
        digest.update(f"{file.relative_to(path)} {state}\n".encode(errors="replace"))
    return digest.hexdigest() if files or contents else ""


def _inputs_file(config: CorpusConfig, files: list[InputRecord] | None) -> JsonObject:
    """The content of `inputs.json`: the files that were read, and the encoder's settings."""
    # Neither the device nor the size of a batch is part of an encoder's identity.
    return {"encoder": config.encoder.model_dump(exclude={"batch_size", "device"}), "files": files}


def _conclude(
    output: Path, plan: BuildPlan, staged: Sequence[ShardRecord], read: JsonObject | None, inputs: JsonObject | None
) -> None:
    """Write the manifest and the record of the input where they are new, and remove what only a build needs.

    Raises CorpusError for a finished shard whose files have not the sizes on record.
    """
    shards: list[ShardRecord] = []
    # Only these can count as verified: of the others no more than the sizes is compared here.
    hashed: list[str] = []
    for record in staged:
        folder, written = output / SHARDS / record["name"], output / STAGING / record["name"] / RECORD
        if EMBEDDINGS in record["files"] and not written.is_file():  # finished by an earlier build
            files = record["files"]
        else:
            files = read_json(written) if written.is_file() else file_records(folder)
            hashed.append(record["name"])
        shard: ShardRecord = {**record, "files": files}
        require_files(folder, shard)
        shards.append(shard)
    # From the manifest on the corpus is whole: a kill after it costs no more than the cleaning up.
    if (output / PLAN).exists():
        counts, identity = total_counts(shards), corpus_id({**plan, "read": read, "shards": shards})
        write_json(output / MANIFEST, Manifest(**plan, read=read, **counts, shards=shards, id=identity))
    if inputs is not None and inputs != _recorded_inputs(output):
        write_json(output / INPUTS, inputs)
    record_build(output, shards, hashed)
    for name in (STAGED, STAGING, PLAN):  # the plan last: while it is there, the next build checks everything again
        remove(output / name)


def _recorded_inputs(output: Path) -> JsonObject:
    recorded: JsonObject = read_json(output / INPUTS) if (output / INPUTS).is_file() else {"files": []}
    return recorded
