"""Answers on disk: one small JSON file each, under the fingerprint of what was asked.

An entry appears whole or not at all. Several processes may share a folder, on a network disk too: two that write one
entry write the same. A damaged entry counts as absent. A kill loses nothing that was written; a power cut may lose what
`flush` has not brought to the disk yet.
"""

import contextlib
import json
import os
import threading
import time
from pathlib import Path

from recipe.artifacts import JsonObject, file_sha256, fingerprint, sync_names
from recipe.errors import InputError
from recipe.models.protocol import Answer
from recipe.models.sampling import read_decoding

# New entries from which on the system is asked for all its files at once: a single one takes milliseconds.
_MANY = 16
# Seconds between two times that entries are brought to the disk while more of them come.
_FLUSH = 1.0


class AnswerStore:
    """A folder of JSON objects by fingerprint; safe to share between threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._unsafe: list[Path] = []
        self._flushed = 0.0
        self._adding, self._flushing = threading.Lock(), threading.Lock()

    def find(self, key: str) -> JsonObject | None:
        """The entry under a fingerprint, None where there is none."""
        try:
            value = json.loads(self._path(key).read_bytes())
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        return value if isinstance(value, dict) else None

    def answer(self, key: str) -> Answer | None:
        """The answer under a fingerprint, marked as cached; None where there is none."""
        entry = self.find(key)
        try:
            return None if entry is None else parse_answer(entry)
        except (KeyError, TypeError, ValueError, InputError):
            return None

    def keep(self, key: str, entry: JsonObject) -> None:
        """Write an entry. It survives a kill now, and a power cut within a second. Raises OSError."""
        path = self._path(key)
        # A name of its own, because threads and processes may keep the same answer at once.
        partial = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
        data = json.dumps(entry, ensure_ascii=False, sort_keys=True).encode("utf-8", "surrogatepass")
        try:
            try:
                partial.write_bytes(data)
            except FileNotFoundError:
                partial.parent.mkdir(parents=True, exist_ok=True)
                partial.write_bytes(data)
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        with self._adding:
            self._unsafe.append(path)
        if time.monotonic() - self._flushed >= _FLUSH:
            self._flushed = time.monotonic()
            # In a thread of its own, because the caller may be an event loop.
            threading.Thread(target=self.flush, name="answers", daemon=True).start()

    def flush(self) -> None:
        """Wait until every entry is on the disk."""
        # One at a time: the entries that another thread is bringing to the disk are waited for too.
        with self._flushing:
            with self._adding:
                unsafe, self._unsafe = self._unsafe, []
            if len(unsafe) > _MANY:
                os.sync()
                return
            for path in unsafe:
                with contextlib.suppress(FileNotFoundError), path.open("rb") as stream:
                    os.fsync(stream.fileno())
            for folder in {path.parent for path in unsafe}:
                with contextlib.suppress(FileNotFoundError):
                    sync_names(folder)

    def sha256(self, file: Path) -> str:
        """SHA-256 of a file, computed again only where its size or its time of change is another. Raises OSError."""
        status = file.stat()
        key = fingerprint({"file": str(file.resolve()), "size": status.st_size, "changed": status.st_mtime_ns})
        entry = self.find(key)
        if entry is None:
            entry = {"sha256": file_sha256(file)}
            self.keep(key, entry)
        return str(entry["sha256"])

    def _path(self, key: str) -> Path:
        # In 256 folders, as Git keeps its objects.
        return self.folder / key[:2] / f"{key}.json"


def parse_answer(entry: JsonObject) -> Answer:
    """The answer of an entry, marked as cached. Raises KeyError, TypeError, ValueError, InputError."""
    fields = (entry["text"], entry["tokens_in"], entry["tokens_out"], entry["seconds"])
    words = {name: entry.get(name, "") for name in ("structured", "finish", "refusal", "reasoning")}
    card = entry.get("decoding")
    decoding = None if card is None else read_decoding(card)
    return Answer(*fields, cached=True, logprob=entry.get("logprob"), decoding=decoding, **words)
