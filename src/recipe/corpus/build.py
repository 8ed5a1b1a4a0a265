"""Narrations to a corpus on disk: staged first, then encoded shard by shard, the manifest last.

A build that is stopped at any moment goes on where it was, and ends byte for byte as one that was not.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from recipe.artifacts import JsonObject, locked, read_json, remove, write_json
from recipe.config import CorpusConfig
from recipe.corpus.building.engines import Engine, Work, encode_staged, on_device
from recipe.corpus.building.inputs import InputRecord, Origin, note_inputs, stamps, unchanged
from recipe.corpus.building.shards import recorded_files
from recipe.corpus.building.staging import present, restage, stage
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
    Manifest,
    Plan,
    ShardRecord,
    corpus_id,
    file_records,
    read_manifest,
    require_files,
    shard_name,
    total_counts,
)
from recipe.corpus.scan.kernels import kernels
from recipe.errors import CorpusError
from recipe.progress import SILENT, Progress
from recipe.types import Narration


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
    if changed := _changed(read_manifest(begun), plan):
        raise CorpusError(
            f"{output}: the folder holds a build with other settings: {changed}; "
            "choose another folder or delete this one."
        )


def _changed(recorded: Mapping[str, Any], plan: Plan) -> str:
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
