"""Whether the files of a corpus are those that its manifest names.

Sizes, first segments and bounds are compared at every opening: they are small, and a wrong one could lead a scan out
of its array. Codes, vectors and texts of a small corpus are hashed at every opening, too. Those of a large one take
minutes, so that they are hashed once, by the build or by `recipe corpus verify`. A record of it in the user's cache
folder holds the state of each file at that time (size, times of change, inode): a file that has been written to,
restored or copied since counts as not verified. Texts are hashed whenever a shard's are read.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from recipe.artifacts import cache_folder, fingerprint, read_json, write_json
from recipe.corpus.layout import (
    BOUNDS,
    FILES,
    OFFSETS,
    SHARDS,
    ShardRecord,
    damaged,
    require_files,
    require_unchanged,
)
from recipe.errors import InputError
from recipe.progress import SILENT, Progress

_LOG = logging.getLogger(__name__)
HASHED_AT_OPENING = 32 << 20
"""Bytes of a corpus, or of the part of it that is opened, that are hashed at every opening: about .1 s."""
_ALWAYS = (OFFSETS, BOUNDS)


def check_shards(folder: Path, shards: Sequence[ShardRecord]) -> list[bool]:
    """For each of these shards of the corpus in `folder`, whether all of its files are known to be whole.

    Raises CorpusError for a file that is missing, has another size, or was hashed now and differs from its checksum.
    """
    for shard in shards:
        require_files(folder / SHARDS / shard["name"], shard)
    small = sum(file["bytes"] for shard in shards for file in shard["files"].values()) <= HASHED_AT_OPENING
    for shard in shards:
        require_unchanged(folder / SHARDS / shard["name"], shard, FILES if small else _ALWAYS)
    recorded = {} if small else _recorded(folder)
    return [small or recorded.get(shard["name"]) == _state(folder, shard) for shard in shards]


def verify_shards(folder: Path, shards: Sequence[ShardRecord], progress: Progress = SILENT) -> None:
    """Compare every file with its checksum and record that they agree. Raises CorpusError for one that differs."""
    states = {}
    with progress.task("Verify shards", len(shards)) as advance:
        for shard in shards:
            path = folder / SHARDS / shard["name"]
            require_files(path, shard)
            # Before the file is read: what is written to it meanwhile leaves another state.
            states[shard["name"]] = _state(folder, shard)
            require_unchanged(path, shard, FILES)
            if _state(folder, shard) != states[shard["name"]]:
                raise damaged(path, "it was written to while it was read")
            advance(1)
    _record(folder, shards, states)


def record_build(folder: Path, shards: Sequence[ShardRecord], hashed: Collection[str] | None = None) -> None:
    """Record that all of these shards, or those with the names `hashed`, were hashed as they are now.

    A build hashes every file that it writes. The other shards stay what they were. Small corpora are hashed at every
    opening and have no record.
    """
    states, before = {}, _recorded(folder)
    for shard in shards:
        name, state = shard["name"], _state(folder, shard)
        if hashed is None or name in hashed or before.get(name) == state:
            states[name] = state
    _record(folder, shards, states)


def _recorded(folder: Path) -> Mapping[str, object]:
    """The states on record, by the name of the shard; a record that cannot be read verifies nothing."""
    with suppress(InputError, OSError, KeyError, TypeError, ValueError):
        return dict(read_json(_record_path(folder))["shards"])
    return {}


def _record(folder: Path, shards: Sequence[ShardRecord], states: Mapping[str, object]) -> None:
    if sum(file["bytes"] for shard in shards for file in shard["files"].values()) <= HASHED_AT_OPENING:
        return
    try:
        write_json(_record_path(folder), {"folder": str(folder.resolve()), "shards": states})
    except OSError as error:  # a home that is read-only must not fail a build of hours at its end
        _LOG.warning(
            "%s: what was verified cannot be recorded (%s), so that searches call the corpus not verified; set "
            "RECIPE_CACHE to a folder that can be written to.",
            folder,
            error,
        )


def _state(folder: Path, shard: ShardRecord) -> dict[str, list[Any]]:
    """Checksum, size, times of change and inode of each file: what changes when it is written to or replaced."""
    state: dict[str, list[Any]] = {}
    for name, file in shard["files"].items():
        status = (folder / SHARDS / shard["name"] / name).stat()
        state[name] = [file["sha256"], status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
    return state


def _record_path(folder: Path) -> Path:
    return cache_folder() / "verified" / f"{fingerprint(str(folder.resolve()))[:32]}.json"
