"""The ids of the videos read so far, on disk, so that memory does not grow with a corpus."""

import sqlite3
from types import TracebackType


class SeenVideos:
    """Where each video was read first: a private temporary database that vanishes with the object.

    SQLite keeps it within its page cache (16 MiB) and the temporary folder, which takes about 100 bytes a video.
    """

    def __init__(self) -> None:
        # Narrations may be consumed on another thread than the one that asked for them.
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA cache_size = -16384")
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute("CREATE TABLE seen (video TEXT PRIMARY KEY, place TEXT) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def __enter__(self) -> "SeenVideos":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._database.close()

    def add(self, video_id: str, place: str) -> bool:
        """Take note of a video; False where it was there before."""
        row = (video_id, place)
        return self._database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", row).rowcount == 1

    def place(self, video_id: str) -> str:
        """Where a video that was added was read first."""
        (found,) = self._database.execute("SELECT place FROM seen WHERE video = ?", (video_id,)).fetchone()
        return str(found)
