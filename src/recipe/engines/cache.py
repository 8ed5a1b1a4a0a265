"""Answers kept by what was asked: one small JSON file each, so that a killed job goes on where it stood.

An entry appears whole or not at all, and several processes may share a folder, on a disk of the network too: who writes
an entry twice writes the same. What is no entry any more, because a disk was full or a file was cut, counts as absent.

A kill loses nothing that was written. A power cut may lose what is not on the disk yet: `put` waits for that (some
milliseconds), `keep` does not, and `flush` waits for all that was kept before.
"""

import contextlib
import json
import os
import threading
from io import FileIO
from pathlib import Path

from recipe.artifacts import JsonObject, file_sha256, fingerprint
from recipe.engines.protocol import Answer

_MANY = 16
"""New entries from which on the system is asked for all its files at once: a single one takes milliseconds."""


class AnswerCache:
    """A folder of JSON objects, each under the fingerprint of what it answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._unsafe: list[Path] = []

    def get(self, asked: object) -> JsonObject | None:
        """What was kept for `asked`, None where nothing was."""
        return self.find(fingerprint(asked))

    def put(self, asked: object, answer: JsonObject) -> None:
        """Keep `answer` for `asked`; it is on disk when this returns. Raises OSError."""
        self._write(self._path(fingerprint(asked)), answer, wait=True)

    def find(self, key: str) -> JsonObject | None:
        """What was kept under a fingerprint, None where nothing was."""
        try:
            value = json.loads(self._path(key).read_bytes())
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        return value if isinstance(value, dict) else None

    def answer(self, key: str) -> Answer | None:
        """The answer that was kept under a fingerprint, as one from the cache."""
        kept = self.find(key)
        try:
            return None if kept is None else read_kept(kept)
        except KeyError:
            return None

    def keep(self, key: str, answer: JsonObject) -> None:
        """Keep `answer` under a fingerprint, safe from a kill now, from a power cut after `flush`. Raises OSError."""
        path = self._path(key)
        self._write(path, answer, wait=False)
        self._unsafe.append(path)

    def flush(self) -> None:
        """Wait until all that was kept is on the disk; safe in any thread."""
        unsafe, self._unsafe = self._unsafe, []
        if len(unsafe) > _MANY:
            os.sync()
            return
        for path in unsafe:
            with contextlib.suppress(FileNotFoundError), path.open("rb") as stream:
                os.fsync(stream.fileno())

    def sha256(self, file: Path) -> str:
        """SHA-256 of a file, computed again only where its size or its time of change is another. Raises OSError."""
        status = file.stat()
        asked = {"file": str(file.resolve()), "size": status.st_size, "changed": status.st_mtime_ns}
        known = self.get(asked)
        if known is None:
            known = {"sha256": file_sha256(file)}
            self.put(asked, known)
        return str(known["sha256"])

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"

    def _write(self, path: Path, answer: JsonObject, wait: bool) -> None:
        # A name of its own, because threads and processes may keep the same answer at once.
        partial = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
        data = json.dumps(answer, ensure_ascii=False, sort_keys=True).encode("utf-8", "surrogatepass")
        try:
            with _opened(partial) as stream:
                stream.write(data)
                if wait:
                    os.fsync(stream.fileno())
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def _opened(partial: Path) -> FileIO:
    """A new file to write to, in a folder that is made where it is missing."""
    try:
        return partial.open("wb", buffering=0)
    except FileNotFoundError:
        partial.parent.mkdir(parents=True, exist_ok=True)
        return partial.open("wb", buffering=0)


def read_kept(kept: JsonObject) -> Answer:
    """An answer as it was kept, now from the cache. Raises KeyError."""
    told = (kept["text"], kept["tokens_in"], kept["tokens_out"], kept["seconds"])
    return Answer(*told, cached=True, logprob=kept.get("logprob"), structured=kept.get("structured", ""))
