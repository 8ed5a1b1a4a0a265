"""What the folder of a served corpus holds now: a look at the manifest, which a change replaces in one step."""

from recipe.corpus.layout import MANIFEST, open_manifest
from recipe.corpus.store import Corpus
from recipe.errors import CorpusError

LOOK = 1.0
"""Seconds between two looks, each a question for the state of one file."""


class CorpusWatch:
    """Notices when a corpus's folder holds another corpus."""

    def __init__(self, corpus: Corpus) -> None:
        self.folder = corpus.folder
        # The corpus that lies in the folder now, by its id; None where there is none that can be read.
        self.on_disk: str | None = corpus.manifest["id"]
        self._stamp: tuple[int, int, int] | None = None

    def look(self) -> bool:
        """Read the manifest where its file is another one, and tell whether the corpus is another than before."""
        try:
            status = (self.folder / MANIFEST).stat()
            stamp = status.st_ino, status.st_size, status.st_mtime_ns
        except OSError:
            stamp = -1, -1, -1
        if stamp == self._stamp:
            return False
        self._stamp, before = stamp, self.on_disk
        try:
            self.on_disk = open_manifest(self.folder)["id"]
        except (CorpusError, OSError):
            # Without a stamp, so that an error that passes is followed by another look.
            self.on_disk, self._stamp = None, None
        return self.on_disk != before
