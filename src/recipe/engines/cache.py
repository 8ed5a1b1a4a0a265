"""Answers kept by what was asked: one small JSON file each, so that a killed job goes on where it stood.

An entry appears whole or not at all, and several processes may share a folder: who writes an entry twice writes the
same. What is no entry any more, because a disk was full or a file was cut, counts as absent.
"""

import json
import os
import threading
from pathlib import Path

from recipe.artifacts import JsonObject, file_sha256, fingerprint


class AnswerCache:
    """A folder of JSON objects, each under the fingerprint of what it answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, asked: object) -> JsonObject | None:
        """What was kept for `asked`, None where nothing was."""
        try:
            value = json.loads(self._path(asked).read_bytes())
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        return value if isinstance(value, dict) else None

    def put(self, asked: object, answer: JsonObject) -> None:
        """Keep `answer` for `asked`; it is on disk when this returns. Raises OSError."""
        path = self._path(asked)
        path.parent.mkdir(parents=True, exist_ok=True)
        # A name of its own, because threads and processes may keep the same answer at once.
        partial = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
        try:
            with partial.open("w", encoding="utf-8") as stream:
                json.dump(answer, stream, ensure_ascii=False, sort_keys=True)
                stream.flush()
                os.fsync(stream.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    def sha256(self, file: Path) -> str:
        """SHA-256 of a file, computed again only where its size or its time of change is another. Raises OSError."""
        status = file.stat()
        asked = {"file": str(file.resolve()), "size": status.st_size, "changed": status.st_mtime_ns}
        known = self.get(asked)
        if known is None:
            known = {"sha256": file_sha256(file)}
            self.put(asked, known)
        return str(known["sha256"])

    def _path(self, asked: object) -> Path:
        key = fingerprint(asked)
        return self.folder / key[:2] / f"{key}.json"
