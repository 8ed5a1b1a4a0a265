"""Whether the folder on disk still holds the corpus that is served.

The service maps the corpus's files and keeps them when the folder is replaced: rewards stay those of the corpus that
it began with, whatever lies in the folder later.
"""

import logging
from pathlib import Path
from typing import NamedTuple

from recipe.corpus.layout import MANIFEST, open_manifest
from recipe.errors import CorpusError

_LOG = logging.getLogger(__name__)

Stamp = tuple[int, int, int] | None


class OnDisk(NamedTuple):
    """What the folder holds now."""

    id: str | None
    """None where there is no corpus that can be read."""
    replaced: bool


class CorpusWatch:
    """Compares the corpus in a folder with the one that was opened there, reading the manifest when it has changed."""

    def __init__(self, folder: Path, served: str) -> None:
        self.folder, self.served = folder, served
        self._stamp = _stamp(folder)
        self._found = OnDisk(served, False)

    def look(self) -> OnDisk:
        """What the folder holds now; a change is logged once."""
        if (stamp := _stamp(self.folder)) != self._stamp:
            self._stamp, before = stamp, self._found
            self._found = self._read()
            if self._found != before:
                self._tell()
        return self._found

    def _read(self) -> OnDisk:
        try:
            found: str | None = open_manifest(self.folder)["id"]
        except (CorpusError, OSError):
            found = None
        return OnDisk(found, found != self.served)

    def _tell(self) -> None:
        if not self._found.replaced:
            _LOG.warning("%s holds the corpus that is served again", self.folder)
            return
        held = "no readable corpus" if self._found.id is None else f"corpus {self._found.id}"
        _LOG.warning(
            "%s now holds %s; the service goes on with %s: restart it to serve what is there",
            self.folder,
            held,
            self.served,
        )


def _stamp(folder: Path) -> Stamp:
    try:
        status = (folder / MANIFEST).stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
