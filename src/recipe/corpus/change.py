"""A corpus that grows: narrations are added, replaced and removed, and only what is new is encoded (docs/corpus.md).

A change never writes into a shard. Added narrations become shards of their own behind the others; removed ones are
named in the manifest, and every reader leaves them out. A shard that holds too many of these, and small shards that
have become many, are written anew, under new names and without the encoder: the shard is compacted. All of that is
prepared without touching the old files, and the new manifest, which replaces the old one in one step, makes it the
corpus. So a process that is killed leaves the old corpus or the new one, and the next change cleans up after it.

Processes that have the old corpus open go on with it. They hold a lock on its manifest (`layout.HeldManifest`), which
stays in `earlier/` for as long; the first change after that deletes the shards that only this manifest names.

A corpus after changes is searched like one that was built from nothing of the same narrations in the same order: a
narration that is replaced comes last.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cached_property
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.artifacts import (
    JsonObject,
    atomic_path,
    locked,
    read_json,
    remove,
    require_writable,
    sync_names,
    write_json,
)
from recipe.config.corpus import EncoderConfig
from recipe.corpus.build import SHARD_SEGMENTS, Origin, is_corpus, narration_source, shard_record, stage
from recipe.corpus.comparison import compared
from recipe.corpus.encode import encode_shards
from recipe.corpus.encoder_identity import EncoderIdentity, differences, settings_for
from recipe.corpus.encoders import Encoder, open_recorded_encoder
from recipe.corpus.excluded import read_excluded
from recipe.corpus.index import Index
from recipe.corpus.integrity import record_build
from recipe.corpus.layout import (
    BOUNDS,
    CODES,
    EARLIER,
    EMBEDDINGS,
    FILES,
    MANIFEST,
    NARRATIONS,
    OFFSETS,
    PLAN,
    RECORD,
    SEGMENTS,
    SHARDS,
    STAGING,
    Manifest,
    RemovedRows,
    ShardRecord,
    corpus_id,
    file_records,
    format_of,
    live_counts,
    live_rows,
    open_manifest,
    read_narrations,
    read_table,
    removed_rows,
    require_unchanged,
    shard_name,
    total_counts,
    write_array,
    write_tables,
)
from recipe.corpus.leaks import ExclusionReport, Exclusions
from recipe.corpus.scan import kernels
from recipe.corpus.store import Corpus
from recipe.data.narrations import ReadingOptions
from recipe.errors import CorpusError, InputError, listed
from recipe.progress import SILENT, Progress
from recipe.types import Narration

REMOVED_PERCENT = 1
"""Share of removed narrations above which a change writes a shard anew: a search passes around each of them, which
takes about 10 microseconds."""
SMALL_SHARDS = 16
"""Neighbouring shards that would fit into one and are still left as they are."""
# Folder inside the corpus where a change prepares its shards.
_WORK = ".change"


class CorpusChange(NamedTuple):
    """What a change has done to a corpus."""

    id: str
    """Of the corpus now; the one before where nothing was to be done."""
    before: str
    narrations: int
    """In the corpus now."""
    added: int = 0
    replaced: int = 0
    equal: int = 0
    """Given, and in the corpus as they are."""
    removed: int = 0
    encoded: int = 0
    """Texts that the encoder computed; those of replaced narrations that stayed keep their vectors."""
    compacted: int = 0
    """Shards that were written anew."""


def add_narrations(
    folder: Path,
    narrations: Iterable[Narration],
    progress: Progress = SILENT,
    *,
    origin: Origin | None = None,
    encoder: EncoderConfig | None = None,
) -> CorpusChange:
    """Add narrations to the finished corpus in `folder`, and replace those of videos that it holds in other words.

    One that the corpus holds as it is, whatever its `source`, is left alone. `origin` tells where they come from and
    what was kept out of them (`source_for`), `encoder` finds the corpus's own encoder where it has moved.

    Raises CorpusError for a folder without a finished corpus and for exclusions that are not those of the corpus,
    InputError where another process changes it, for a video that is given twice and for narrations that cannot be used,
    EncoderMismatch, and what the encoder raises.
    """
    kernels("scan.quantise")  # a missing package shows now and not after the first shard
    with _changing(folder) as index:
        manifest = index.manifest
        corpus = Corpus(index, settings_for(folder, manifest["encoder"], encoder))
        require_exclusions(folder, manifest, origin)
        sorted_out = _Sorted(corpus, narrations)
        stream = iter(sorted_out)
        first = next(stream, None)
        if first is None:
            remove(folder / _WORK)
            return CorpusChange(manifest["id"], manifest["id"], manifest["narrations"], equal=sorted_out.equal)

        work = folder / _WORK
        try:
            staged = stage(chain([first], stream), work, manifest["shard_size"], progress)
        except BaseException:
            remove(work / STAGING)  # what an earlier run has encoded stays for the next one
            raise
        # What a run that was stopped has encoded is kept, if this is the same change of the same corpus.
        plan = {"id": manifest["id"], "contents": [shard["content"] for shard in staged]}
        if not (work / PLAN).is_file() or read_json(work / PLAN) != plan:
            remove(work / SHARDS)
            write_json(work / PLAN, plan)
        known = _KnownTexts(corpus, sorted_out.texts)
        missing = [number for number, shard in enumerate(staged) if not (work / SHARDS / shard["name"]).is_dir()]
        with progress.task("encoding segments", sum(staged[number]["segments"] for number in missing)) as advance:
            encode_shards(work, missing, known, advance)

        names = _free_names(folder)
        added = []
        for shard in staged:
            encoded, name = work / SHARDS / shard["name"], next(names)
            written = work / STAGING / shard["name"] / RECORD
            files = read_json(written) if written.is_file() else file_records(encoded)
            (folder / SHARDS).mkdir(exist_ok=True)
            encoded.rename(folder / SHARDS / name)
            added.append(ShardRecord(**{**shard, "name": name, "files": files}))
        entry = {
            "added": sum(shard["narrations"] for shard in added) - len(sorted_out.replaced),
            "replaced": len(sorted_out.replaced),
            "files": [path.name for path in origin.files] if origin else [],
            "reading": None if origin is None or origin.reading == manifest["reading"] else origin.reading,
            "read": (origin.report() or None) if origin else None,
        }
        shards = [*_without(corpus, sorted_out.replaced), *added]
        change = _conclude(folder, index, shards, entry, names, {shard["name"] for shard in added}, progress)
        return change._replace(equal=sorted_out.equal, encoded=known.encoded)


def remove_narrations(folder: Path, video_ids: Iterable[str], progress: Progress = SILENT) -> CorpusChange:
    """Remove the narrations of these videos from the finished corpus in `folder`.

    An id that was removed before is no error, so that the command can be run again. Raises CorpusError for a folder
    without a finished corpus, and InputError for an id that the corpus does not hold, where no narration would be left,
    and where another process changes the corpus.
    """
    with _changing(folder) as index:
        manifest = index.manifest
        corpus = Corpus(index, settings_for(folder, manifest["encoder"], None))
        ids = list(dict.fromkeys(video_ids))
        changes = (manifest["read"] or {}).get("changes", [])
        gone = {video_id for entry in changes for video_id in entry.get("removed", ())}
        held = set(corpus.video_ids)
        unknown = [video_id for video_id in ids if video_id not in held | gone]
        if len(unknown) > 1:
            raise InputError(
                f"{folder}: no narrations are of the videos {listed(unknown)}; nothing was removed: leave them out, or "
                "see what `recipe corpus list` shows."
            )
        for video_id in unknown:
            corpus.find(video_id)  # raises, and names the nearest
        numbers = sorted(corpus.find(video_id) for video_id in ids if video_id in held)
        if not numbers:
            return CorpusChange(manifest["id"], manifest["id"], manifest["narrations"])
        entry = {"removed": [video_id for video_id in ids if video_id in held]}
        return _conclude(folder, index, _without(corpus, numbers), entry, _free_names(folder), (), progress)


def add_to(
    corpus: Corpus,
    narrations: Iterable[Narration],
    *,
    exclusions: Exclusions | None = None,
    progress: Progress = SILENT,
) -> Corpus:
    """Add narrations to a corpus on disk, as `add_narrations`, and open it anew, searched on the processor.

    `corpus` itself stays what it was. `exclusions` are those of the build. Raises as `add_narrations`.
    """
    stream, origin = exclude(narrations, exclusions)
    add_narrations(corpus.folder, stream, progress, origin=origin, encoder=corpus.encoder_config)
    return corpus.reopened()


def remove_from(corpus: Corpus, video_ids: Iterable[str], progress: Progress = SILENT) -> Corpus:
    """Remove the narrations of these videos from a corpus on disk, and open it anew, searched on the processor.

    `corpus` itself stays what it was. Raises as `remove_narrations`.
    """
    remove_narrations(corpus.folder, video_ids, progress)
    return corpus.reopened()


def compact_corpus(folder: Path, progress: Progress = SILENT) -> CorpusChange:
    """Write the shards that hold removed narrations anew without them, and neighbours that fit into one shard as one.

    The narrations and their order stay; the corpus id is another one. Raises CorpusError, and InputError where another
    process changes the corpus.
    """
    with _changing(folder) as index:
        shards = index.manifest["shards"]
        return _conclude(folder, index, shards, None, _free_names(folder), (), progress, everything=True)


def source_for(
    folder: Path, files: Sequence[Path], exclusions: Exclusions | None = None, titles: Path | None = None
) -> tuple[Iterator[Narration], Origin]:
    """The narrations of `files` or of a corpus, read as the corpus in `folder` was, without `exclusions`.

    Raises as `recipe.corpus.build.narration_source`.
    """
    manifest = open_manifest(folder)
    reading = manifest["reading"] or {}
    if not any(map(is_corpus, files)):
        fields = {name: reading[name] for name in ReadingOptions.model_fields if name in reading}
        options = ReadingOptions.model_validate(fields)
        return narration_source(files, options, reading.get("duplicates", "error"), exclusions, titles)
    stream, of_corpus = narration_source(files, ReadingOptions(), titles=titles)
    narrations, origin = exclude(stream, exclusions)
    if exclusions is None and of_corpus.exclusions == manifest["exclusions"]:  # they were kept out of both
        origin = origin._replace(exclusions=of_corpus.exclusions)
    return narrations, origin._replace(files=of_corpus.files, reading=of_corpus.reading)


def exclude(narrations: Iterable[Narration], exclusions: Exclusions | None) -> tuple[Iterator[Narration], Origin]:
    """Narrations that are at hand, without `exclusions`, and the record of what was kept out of them."""
    if exclusions is None:
        return iter(narrations), Origin((), None)
    report = ExclusionReport()
    return exclusions.filter(narrations, report), Origin((), None, exclusions.identity, report.as_dict)


def ids_of(words: Iterable[str]) -> list[str]:
    """Video ids, given as such or as `.txt` files with one a line. Raises InputError for such a file."""
    ids: list[str] = []
    for word in words:
        listing = word.endswith(".txt") and Path(word).is_file()
        ids += [video.video_id for video in read_excluded(Path(word))] if listing else [word]
    return ids


@contextmanager
def _changing(folder: Path) -> Iterator[Index]:
    """The index of a finished corpus that this process alone may change. Raises CorpusError, InputError, OSError."""
    open_manifest(folder)  # a lock makes the folder that it locks
    require_writable(folder / MANIFEST)
    with locked(folder):
        if (folder / PLAN).exists():
            raise CorpusError(f"{folder}: the build is not finished; run the same `recipe corpus build` again.")
        _clean(folder)
        yield Index.open(folder)


def require_exclusions(folder: Path, manifest: Manifest, origin: Origin | None) -> None:
    """What is added must have passed the exclusions of the build. Raises CorpusError."""
    recorded, given = manifest["exclusions"], None if origin is None else origin.exclusions
    if recorded is not None and given is None:
        raise CorpusError(
            f"{folder}: {recorded['video_ids']:,} videos and near-copies of {recorded['texts']:,} texts were kept out "
            "of this corpus; give the same files with --exclude, so that they are kept out of what is added, too."
        )
    if recorded is None and given is not None:
        raise CorpusError(
            f"{folder}: nothing was kept out when this corpus was built; leave --exclude out, or build one with it."
        )
    if recorded is not None and given is not None and (other := differences(recorded, given)):
        raise CorpusError(
            f"{folder}: other videos or texts were kept out of this corpus: {other}; give the same files."
        )


class _Sorted:
    """Narrations that a corpus lacks or holds in other words, as a stream, and what is found on the way."""

    def __init__(self, corpus: Corpus, narrations: Iterable[Narration]) -> None:
        self._corpus, self._narrations = corpus, narrations
        self.equal = 0
        # Narrations of the corpus that are replaced.
        self.replaced: list[int] = []
        # Texts of these, each with a narration and the segment there that has it.
        self.texts: dict[str, tuple[int, int]] = {}

    def __iter__(self) -> Iterator[Narration]:
        seen: set[str] = set()
        for pair in compared(self._corpus, self._narrations):
            if pair.given.video_id in seen:
                raise InputError(f"video {pair.given.video_id!r} is given twice; leave one of its narrations out.")
            seen.add(pair.given.video_id)
            if pair.is_equal:
                self.equal += 1
                continue
            if pair.number is not None and pair.held is not None:
                self.replaced.append(pair.number)
                for segment, said in enumerate(pair.held.segments):
                    self.texts.setdefault(said.text, (pair.number, segment))
            yield pair.given


class _KnownTexts:
    """The corpus's encoder, loaded for the first text without a vector; known texts keep those that they have."""

    def __init__(self, corpus: Corpus, texts: Mapping[str, tuple[int, int]]) -> None:
        self._corpus, self._texts = corpus, texts
        self.identity: EncoderIdentity = corpus.manifest["encoder"]
        self.encoded = 0

    @cached_property
    def _encoder(self) -> Encoder:
        return open_recorded_encoder(self._corpus.folder, self.identity, self._corpus.encoder_config)

    def encode(self, texts: Sequence[str], progress: Progress = SILENT) -> NDArray[np.float32]:
        """Unit-norm float32 [n, d]."""
        new = [row for row, text in enumerate(texts) if text not in self._texts]
        vectors = np.empty((len(texts), self.identity["dimension"]), np.float32)
        if new:
            vectors[new] = self._encoder.encode([texts[row] for row in new], progress)
            self.encoded += len(new)
        for row, text in enumerate(texts):
            if text in self._texts:
                narration, segment = self._texts[text]
                vectors[row] = self._corpus.embeddings(narration)[segment]
        return vectors


def _without(corpus: Corpus, numbers: Sequence[int]) -> list[ShardRecord]:
    """The records of a corpus's shards after these narrations are removed; a shard of which nothing is left goes.

    Raises CorpusError for a shard that is damaged.
    """
    left: list[ShardRecord] = []
    first, chosen = 0, np.sort(np.asarray(numbers, np.int64))
    for shard in corpus.manifest["shards"]:
        last = first + live_counts(shard)["narrations"]
        own = chosen[(chosen >= first) & (chosen < last)] - first
        first = last
        if not len(own):
            left.append(shard)
            continue
        rows, path = live_rows(shard)[own], corpus.folder / SHARDS / shard["name"]
        require_unchanged(path, shard, (NARRATIONS, SEGMENTS))
        starts, counts = (
            read_table(path, NARRATIONS, (name,))[0].to_numpy()[rows] for name in ("first_segment", "segments")
        )
        timed = read_table(path, SEGMENTS, ("start",))[0].combine_chunks().is_valid().to_numpy(zero_copy_only=False)
        before = shard.get("removed", RemovedRows(rows=[], timed=0, segments=0))
        removed = RemovedRows(
            rows=sorted([*before["rows"], *rows.tolist()]),
            timed=before["timed"] + int(timed[starts].sum()),
            segments=before["segments"] + int(counts.sum()),
        )
        if len(removed["rows"]) < shard["narrations"]:
            left.append({**shard, "removed": removed})
    return left


def _conclude(
    folder: Path,
    index: Index,
    shards: list[ShardRecord],
    entry: JsonObject | None,
    names: Iterator[str],
    written: Iterable[str],
    progress: Progress,
    everything: bool = False,
) -> CorpusChange:
    """Make these shards the corpus: compact what is due, replace the manifest, and delete what nobody reads any more.

    `entry` is the record of the change, `written` the shards that it has written itself. Raises InputError where
    nothing would be left, and CorpusError for a damaged shard that is to be compacted.
    """
    before = index.manifest
    if not shards:
        raise InputError(f"{folder}: no narration would be left; delete the folder in place of its last narrations.")
    fresh, kept = set(written), list[ShardRecord]()
    groups = _groups(shards, before["shard_size"])
    compacted = sum(_is_due(group, everything) for group in groups)
    with progress.task("compacting shards", compacted) if compacted else nullcontext(int) as advance:
        for group in groups:
            if _is_due(group, everything):
                kept.append(_compacted(folder, group, next(names)))
                fresh.add(kept[-1]["name"])
                advance(1)
            else:
                kept += group
    result = CorpusChange(before["id"], before["id"], before["narrations"])
    if entry is None and not compacted:
        return result

    # Names of new shards have to be on disk before the manifest that names them.
    sync_names(folder / SHARDS)
    read = before["read"]
    if entry is not None:
        read = {**(read or {}), "changes": [*(read or {}).get("changes", []), entry]}
    values: JsonObject = {**before, **total_counts(kept), "format": format_of(kept), "read": read, "shards": kept}
    values["id"] = corpus_id(values)
    earlier = folder / EARLIER / f"{before['id']}.json"
    earlier.parent.mkdir(exist_ok=True)
    # Of a change that was killed before it replaced the manifest.
    earlier.unlink(missing_ok=True)
    # The same file under a second name, so that its locks stay; a file system without links has no such readers.
    with suppress(OSError):
        earlier.hardlink_to(folder / MANIFEST)
    write_json(folder / MANIFEST, values)
    # Files that were known to be whole still are; the others stay what they were.
    whole = {shard.folder.name for shard in index.shards if shard.verified}
    record_build(folder, kept, whole | fresh)
    index.held = None  # nothing is read from the old corpus any more
    _clean(folder)
    remove(folder / _WORK)
    entry = entry or {}
    return CorpusChange(
        id=values["id"],
        before=before["id"],
        narrations=values["narrations"],
        added=entry.get("added", 0),
        replaced=entry.get("replaced", 0),
        removed=len(entry.get("removed", ())),
        compacted=compacted,
    )


def _groups(shards: Sequence[ShardRecord], size: int) -> list[list[ShardRecord]]:
    """Neighbouring shards that fit into one of `size` narrations, together; those of a build never do."""
    groups: list[list[ShardRecord]] = []
    held = total_counts(())
    for shard in shards:
        own = live_counts(shard)
        both = {key: held[key] + own[key] for key in ("narrations", "segments")}
        if groups and both["narrations"] <= size and both["segments"] <= SHARD_SEGMENTS:
            groups[-1].append(shard)
        else:
            groups.append([shard])
        held = total_counts(groups[-1])
    return groups


def _is_due(group: Sequence[ShardRecord], everything: bool) -> bool:
    """Whether a group of shards is to be written anew as one."""
    removed, narrations = sum(len(removed_rows(shard)) for shard in group), sum(shard["narrations"] for shard in group)
    if everything:
        return removed > 0 or len(group) > 1
    return 100 * removed > REMOVED_PERCENT * narrations or len(group) > SMALL_SHARDS


def _compacted(folder: Path, group: Sequence[ShardRecord], name: str) -> ShardRecord:
    """Write the narrations of some shards that were not removed as one shard, with the vectors and codes they have.

    Raises CorpusError for a shard that is damaged.
    """
    narrations: list[Narration] = []
    arrays: dict[str, list[NDArray[Any]]] = {EMBEDDINGS: [], CODES: [], BOUNDS: []}
    for shard in group:
        path, rows = folder / SHARDS / shard["name"], live_rows(shard)
        require_unchanged(path, shard, FILES)
        narrations += read_narrations(path, shard)
        offsets = np.load(path / OFFSETS)
        segments = np.concatenate([np.arange(offsets[row], offsets[row + 1]) for row in rows])
        for file, chosen in ((EMBEDDINGS, segments), (CODES, segments), (BOUNDS, rows)):
            arrays[file].append(np.load(path / file, mmap_mode="r")[chosen])
    with atomic_path(folder / SHARDS / name) as partial:
        partial.mkdir()
        write_tables(partial, narrations)
        for file, parts in arrays.items():
            write_array(partial / file, np.concatenate(parts))
        return shard_record(name, narrations, file_records(partial))


def _free_names(folder: Path) -> Iterator[str]:
    """Names for new shards, behind those of all that are there, also of shards that only an earlier manifest names."""
    taken = (int(path.name) for path in (folder / SHARDS).iterdir() if path.name.isdigit())
    return map(shard_name, count(max(taken, default=-1) + 1))


def _clean(folder: Path) -> None:
    """Delete the shards that neither the corpus names nor an earlier manifest that somebody still holds.

    What a killed change has left is among them, because the caller is the only one that changes the corpus.
    """
    named = {shard["name"] for shard in open_manifest(folder)["shards"]}
    for path in sorted((folder / EARLIER).glob("*.json")):
        if _is_held(path):
            named |= {shard["name"] for shard in read_json(path)["shards"]}
        else:
            path.unlink()
    with suppress(OSError):  # it is not there, or not empty
        (folder / EARLIER).rmdir()
    for path in sorted((folder / SHARDS).iterdir()):
        if path.name not in named and (path.name.isdigit() or path.name.endswith(".partial")):
            remove(path)


def _is_held(manifest: Path) -> bool:
    """Whether a process holds this earlier manifest, and so may still read its shards."""
    # Over NFS an exclusive lock needs a file that is open for writing (flock(2)); another user's may be read-only.
    descriptor = os.open(manifest, os.O_RDWR if os.access(manifest, os.W_OK) else os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(descriptor)
    return False
