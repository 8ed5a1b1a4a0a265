"""Reading narrations: paths to files, files to drafts by format, drafts to narrations, each video once.

Several files may be of one video, such as its subtitles in several languages. All names are looked through before the
first file is read, because a better track may come later. Where nothing says which language is wanted, that is a
question to the user; the order of the names never answers it.
"""

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path

from recipe.data.narrations.drafts import (
    DEFAULTS,
    NAMED,
    UNREAD,
    Draft,
    Duplicates,
    Fault,
    ReadingOptions,
    ReadingReport,
    clean,
)
from recipe.data.narrations.files import HEAD, SourceFile, encoding_of, file_names, source_files
from recipe.data.narrations.formats import FORMATS, JSON_LINES, SUBTITLES
from recipe.data.narrations.subtitles import is_subtitles
from recipe.data.video_ids import VideoName, is_metadata, normalised, video_name
from recipe.errors import InputError, listed
from recipe.tables import delimiter_of, require_text
from recipe.types import Narration

METADATA = "metadata of a video"
PASSED = "without narrations"
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
        named = (video_name(name) for name in names if not is_metadata(name))
        rows = ((_bytes(track.id), track.language, _bytes(".".join(track.marks))) for track in named)
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
        others = [VideoName(own.id, tag, tuple(_text(marks).split(".")) if marks else ()) for tag, marks in rows]
        tracks = [own, *others]
        if self._language:
            pool = [track for track in tracks if track.speaks(self._language)]
            pool = pool or [track for track in tracks if not track.language]
            if own not in pool:
                return OTHER_LANGUAGE if own.language and not own.speaks(self._language) else OTHER_TRACK
        else:
            pool = tracks
            if len({track.primary for track in pool}) > 1:
                raise _question(file, pool)
        ranks = {track: track.rank(self._language or own.primary) for track in pool}
        best = [track for track in pool if ranks[track] == min(ranks.values())]
        if len({track.language for track in best}) > 1:
            raise _question(file, best)
        return "" if own in best else OTHER_TRACK


def _bytes(text: str) -> bytes:
    """A name as SQLite keeps it: that of a file need not be Unicode, which its texts have to be."""
    return text.encode(errors="surrogatepass")


def _text(name: bytes) -> str:
    return name.decode(errors="surrogatepass")


def _question(file: SourceFile, tracks: Iterable[VideoName]) -> InputError:
    tags = sorted({track.language for track in tracks})
    names = listed([tag for tag in tags if tag]) + ("" if tags[0] else " and one that its name does not tell")
    problem = f"video {video_name(file.name).id!r} is there in several languages ({names})"
    return InputError.at(file.label, problem, "choose one with --language (`language` of the reading options)")


# The fields of a narration in the project's own form.
_OWN = {"video_id", "title", "source", "url", "segments", "sentences"}
# What the JSON of a transcript holds.
_TRANSCRIPT = re.compile(
    r'"(segments|chunks|transcription|events|snippets|utterances|sentences|words|items|results?|phrases|audio_segments'
    r'|recognizedPhrases|initialSegments|cueGroups|segment)"\s*:\s*(\[\s*|\{\s*"\w+"\s*:\s*\[?\s*)[\[{]'
    r'|\A\[\s*\{[^][{}]{0,2000}"text"\s*:|\A\{\s*"(text"\s*:\s*"|(task|language|wireMagic|systeminfo)"\s*:)'
)


def read_narrations(
    files: Path | str | Sequence[Path | str],
    duplicates: Duplicates = "error",
    options: ReadingOptions = DEFAULTS,
    report: ReadingReport | None = None,
    check: Callable[[str, str], None] | None = None,
    *,
    every_track: bool = False,
) -> Iterator[Narration]:
    """The narrations of files, folders and archives, in the order given, read as a stream; counts go to `report`.

    `check` is called with the video id and the file of each narration before it is given, and may raise. Of several
    files of one video, such as its subtitles in several languages, one is read (`Tracks`), or
    with `every_track` each as a narration.

    Raises InputError, with file, line or field and remedy, for a path that is missing or holds no narrations, a file
    that is damaged, or is named itself and of no known format (in a folder it is passed over and counted), a video in
    several languages of which `options` name none, a video id that was read before unless `duplicates` is `keep-first`,
    and, unless `options.bad` is `skip`, a narration or caption that cannot be used (docs/data.md lists the reasons).
    """
    report = ReadingReport() if report is None else report
    paths = [Path(file) for file in ([files] if isinstance(files, Path | str) else files)]
    endings = tuple(ending for layout in FORMATS.values() if layout.one_video for ending in layout.suffixes)
    names = () if every_track else (name for name in file_names(paths) if name.lower().endswith(endings))
    with VideoLog() as videos, Tracks(names, options.language) as tracks:
        for path in paths:
            before = report.narrations + report.duplicates
            for draft in _drafts(path, options, report, tracks):
                narration = clean(draft, options, report)
                if narration is None:
                    continue
                if check is not None:
                    check(narration.video_id, draft.place.file)
                video = f"{narration.video_id}\n{draft.place.file}" if every_track else narration.video_id
                if videos.add(video, str(draft.place)):
                    report.narrations += 1
                    report.segments += len(narration.segments)
                    yield narration
                elif duplicates == "keep-first":
                    report.duplicates += 1
                else:
                    raise InputError.at(
                        draft.place.file,
                        f"video {narration.video_id!r} was read before, from {videos.place(video)}",
                        "remove one of them, or ask for duplicates keep-first, which keeps the earlier one",
                        line=draft.place.line,
                        field="video_id",
                    )
            if report.narrations + report.duplicates > before:
                continue
            if report.skipped_narrations or report.skipped_captions or report.passed_over.keys() - {PASSED, METADATA}:
                reason = f"no narration is left ({'; '.join(report.lines())})"
                raise InputError.at(path, reason, "give other files or settings")
            if path.is_dir() and not any(path.iterdir()):
                raise InputError.at(path, "the folder is empty", "put narrations into it, or give another folder")
            if path.is_dir():
                remedy = "give the path of a file, or of a folder with narrations in a layout that is recognised"
                raise InputError.at(path, "this is a folder", remedy)
            raise InputError.at(path, "the file holds no narrations", "check the path and the format")


def _drafts(path: Path, options: ReadingOptions, report: ReadingReport, tracks: Tracks) -> Iterator[Draft]:
    with closing(source_files(path)) as files:
        for file in files:
            if file.inside and is_metadata(file.name):
                report.pass_over(file.label, METADATA)
                continue
            if options.format != "auto":
                fits = not file.inside or file.name.lower().endswith(FORMATS[options.format].suffixes)
                name: str | None = options.format if fits else None
            else:
                name = _detect(file, options.encoding)
            if name is None and not file.inside:
                require_text(file.label, file.stream.peek(HEAD)[:HEAD])
                remedy = f"name the format it has: {', '.join(FORMATS)}"
                problem = "the file is in no layout of narrations that is recognised"
                raise InputError.at(file.label, problem, remedy)
            if name is None:
                report.pass_over(file.label, PASSED)
                continue
            if FORMATS[name].one_video:
                if reason := tracks.reason_against(file):
                    report.pass_over(file.label, reason)
                    continue
                if video_name(file.name).other:
                    report.unclear_ids += 1
                    report.unclear_names += [file.label] * (report.unclear_ids <= NAMED)
            report.files[name] += 1
            drafts: Iterator[Draft] = FORMATS[name].open_reader()(file, options, report)
            # A damaged file among many must not cost the others; of one with many videos, only where none was read.
            spared = file.inside and options.bad == "skip"
            begun = False
            try:
                # Read to its end before the first is given: nothing of a damaged file is.
                for draft in list(drafts) if spared and FORMATS[name].one_video else drafts:
                    fault = draft.captions if isinstance(draft.captions, Fault) and not begun else None
                    if file.inside and fault and fault.reason == UNREAD:
                        report.pass_over(file.label, fault.problem)
                        report.files -= Counter([name])
                        break
                    begun = True
                    yield draft
            except InputError:
                if begun or not spared:
                    raise
                report.skipped_narrations["file that cannot be read"] += 1


def _detect(file: SourceFile, encoding: str) -> str | None:
    """The format of a file, from its name and first bytes; None where it has no known layout."""
    head = file.stream.peek(HEAD)[:HEAD]
    if head[:4] == b"PAR1":
        return "parquet"
    file_name = file.name.lower()
    # Or as pickles of protocol 2 to 5 begin.
    if file_name.endswith(FORMATS["howtocaption"].suffixes) or re.match(rb"\x80[\x02-\x05]", head):
        return "howtocaption"
    text = head.decode(encoding_of(head, encoding), "replace").lstrip("\ufeff \t\r\n")
    row = None
    with suppress(ValueError, RecursionError):
        row = json.loads(text.partition("\n")[0]) if text.startswith("{") else None
    # Procedures have a goal, steps, and nothing that narrations have.
    if isinstance(row, dict) and row.keys() >= {"goal", "steps"} and not row.keys() & {"segments", "sentences"}:
        return "procedures"
    if file_name.endswith(JSON_LINES):
        return "jsonl"
    transcript = text[:1] in ("{", "[") and _TRANSCRIPT.search(text) is not None
    if not transcript and (file_name.endswith(SUBTITLES) or is_subtitles(text)):
        return "subtitles"
    # Transcripts of YouTube may name their video, too.
    foreign = transcript and re.search(r'"(segments|sentences)"\s*:', text) is None
    if isinstance(row, dict) and not foreign and ("video_id" in row or (len(row) > 1 and row.keys() <= _OWN)):
        return "jsonl"
    for name, layout in FORMATS.items():
        if layout.begins and re.match(layout.begins, text) and not (foreign and name == "jsonl"):
            return name
    first = text.partition("\n")[0]
    header = {field.strip(" \"'\r").lower() for field in first.split(delimiter_of(first))}
    for name, layout in FORMATS.items():
        if layout.columns and layout.columns <= header:
            return name
    by_suffix = [name for name, layout in FORMATS.items() if file_name.endswith(layout.suffixes)]
    if len(by_suffix) == 1 and not FORMATS[by_suffix[0]].begins:
        return by_suffix[0]
    named = not file.inside or (transcript and file_name.endswith((*FORMATS["whisperx"].suffixes, *SUBTITLES)))
    if text[:1] in ("{", "[") and named:
        if (not foreign and '"video_id"' in text) or (row is not None and re.match(r"[^\n]+\n\s*\{", text)):
            return "jsonl"
        return "whisperx"
    # An empty file that the user named is read as JSON lines, whose error says most about it.
    return "jsonl" if not file.inside and not text else None


class VideoLog(AbstractContextManager["VideoLog"]):
    """The place where each video was read first: a private temporary database that vanishes with the object.

    SQLite keeps it within its page cache (16 MiB) and the temporary folder, which takes about 100 bytes a video.
    """

    def __init__(self) -> None:
        # Narrations may be consumed on another thread than the one that asked for them.
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA cache_size = -16384")
        # Nothing of it outlives the process, so that no crash needs a journal.
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute("CREATE TABLE seen (video BLOB PRIMARY KEY, place BLOB) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def add(self, video_id: str, place: str) -> bool:
        """Record a video; False where it was recorded before."""
        row = (_bytes(video_id), _bytes(place))
        return self._database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", row).rowcount == 1

    def place(self, video_id: str) -> str:
        """Where a recorded video was read first."""
        query = "SELECT place FROM seen WHERE video = ?"
        (place,) = self._database.execute(query, (_bytes(video_id),)).fetchone()
        return _text(place)
