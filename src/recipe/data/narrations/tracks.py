"""Several files of one video, such as its subtitles in several languages: which of them is read.

All names are looked through before the first file is read, because a better track may come later. Where nothing says
which language is wanted, that is a question to the user; the order of the names never answers it.
"""

import sqlite3
from collections.abc import Iterable
from contextlib import AbstractContextManager

from recipe.data.narrations.files import SourceFile
from recipe.data.video_ids import VideoName, is_metadata, normalised, video_name
from recipe.errors import InputError, listed

METADATA = "metadata of a video"
OTHER_LANGUAGE = "in another language"
OTHER_TRACK = "another track of a video that is read"


class Tracks(AbstractContextManager["Tracks"]):
    """The tracks that names of files give for each video, in a private temporary database."""

    def __init__(self, names: Iterable[str], language: str | None) -> None:
        self._language = normalised(language or "")
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._database.executescript("PRAGMA journal_mode = OFF; PRAGMA cache_size = -16384; BEGIN;")
        columns = "video BLOB, language TEXT, marks BLOB, PRIMARY KEY (video, language, marks)"
        self._database.execute(f"CREATE TABLE tracks ({columns}) WITHOUT ROWID")
        read = (video_name(name) for name in names if not is_metadata(name))
        # As bytes: the name of a file need not be text.
        rows = ((_bytes(one.id), one.language, _bytes(".".join(one.marks))) for one in read)
        self._database.executemany("INSERT OR IGNORE INTO tracks VALUES (?, ?, ?)", rows)

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def reason_against(self, file: SourceFile) -> str:
        """Why a file of one video is passed over; empty where it is read.

        A language takes its regions and tracks, and where a video has none of it, files whose names have no language.
        Of several, the best by `VideoName.rank` is read. Raises InputError where languages or regions are left to
        choose from.
        """
        own = video_name(file.name)
        query = "SELECT language, marks FROM tracks WHERE video = ?"
        rows = self._database.execute(query, (_bytes(own.id),)).fetchall()
        others = [
            VideoName(own.id, tag, tuple(marks.decode(errors="surrogatepass").split(".")) if marks else ())
            for tag, marks in rows
        ]
        tracks = [own, *others]
        if self._language:
            pool = [one for one in tracks if one.speaks(self._language)]
            pool = pool or [one for one in tracks if not one.language]
            if own not in pool:
                return OTHER_LANGUAGE if own.language and not own.speaks(self._language) else OTHER_TRACK
        else:
            pool = tracks
            if len({one.primary for one in pool}) > 1:
                raise _question(file, pool)
        ranks = {one: one.rank(self._language or own.primary) for one in pool}
        best = [one for one in pool if ranks[one] == min(ranks.values())]
        if len({one.language for one in best}) > 1:
            raise _question(file, best)
        return "" if own in best else OTHER_TRACK


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _question(file: SourceFile, tracks: Iterable[VideoName]) -> InputError:
    tags = sorted({one.language for one in tracks})
    names = listed([tag for tag in tags if tag]) + ("" if tags[0] else " and one that its name does not tell")
    problem = f"video {video_name(file.name).id!r} is there in several languages ({names})"
    return InputError.at(file.label, problem, "choose one with --language (`language` of the reading options)")
