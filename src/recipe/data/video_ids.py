"""Which video a name is of: ids in the names of files, and the videos of a list that a name belongs to.

yt-dlp and youtube-dl write `ID.en.vtt`, `Title [ID].en.vtt` and `Title-ID.en.vtt`, and whatever else is done with a
file adds parts to its name. An id of YouTube has 11 letters, digits, `-` and `_`. Eleven characters that read as words
(`boil-an-egg`, `ingredients`) are hardly ever one: 1 in 1,200 of random ids reads so, and 11 of the 14,928 ids of COIN
and CrossTask. After a hyphen they count as part of the title, and `other` says that the name may mean them.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

# 64 bits in base 64.
LENGTH = 11
"""Characters of a YouTube id."""
# Fewest characters of an id that does not stand in one of a million YouTube ids by chance.
_CHANCE = 6
_ID = rf"[A-Za-z0-9_-]{{{LENGTH}}}"
YOUTUBE = re.compile(_ID)
_WORD = r"(?:[A-Z]?[a-z]*|[A-Z]*|[0-9]*)"
_WORDS = re.compile(rf"{_WORD}(?:[-_]+{_WORD})*")
_BRACKETS = re.compile(rf".*\[({_ID})\]", re.DOTALL)
_TAIL = re.compile(rf"(.*)-({_ID})", re.DOTALL)
_ALONE = re.compile(rf"(?<![A-Za-z0-9_-]){_ID}(?![A-Za-z0-9_-])")
_ADDRESS = re.compile(rf"(?:youtu\.be/|[?&]v=|/(?:embed|live|shorts|v)/)({_ID})(?![A-Za-z0-9_-])")
LANGUAGE = re.compile(rf"(?:a[-_])?[a-z]{{2,3}}(?:[-_][A-Za-z0-9]{{1,8}})*?(?P<track>[-_]{_ID})?")
"""The form of a language tag."""
# The first parts of language tags: ISO 639-1, and of the codes of three letters those that subtitles carry.
_CODES = """aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz
    ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik in io is
    it iu iw ja ji jv jw ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mo
    mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si
    sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo
    za zh zu ara ben bul cat ces chi cmn cze dan deu dut ell eng est fas fil fin fra fre ger gre hau haw heb hin hmn
    hrv hun ind ita jpn kor lav lit mis msa mul nld nno nob nor per pol por rum ron rus slk slo slv spa srp swa swe
    tam tel tgl tha tur ukr und urd vie yue zho zxx ceb"""
_LANGUAGES = frozenset(_CODES.split())
_SUBTAG = re.compile(r"[A-Za-z]{2}|[A-Z][a-z]{3}|\d{3}|orig|auto|asr|hans|hant|latn|cyrl|valencia|tarask", re.ASCII)
# Tracks for those who do not hear, which describe sounds, too.
_DESCRIBED = frozenset({"sdh", "cc", "hi"})
_AUTOMATIC = frozenset({"asr", "auto", "whisper", "whisperx"})
# Endings of the recording that a file is named after, as in `ID.mp4.vtt`.
_MEDIA = frozenset(("aac", "avi", "flac", "m4a", "m4v", "mkv", "mov", "mp3", "mp4", "ogg", "opus", "wav", "webm"))
_MARKS = _DESCRIBED | _AUTOMATIC | _MEDIA | {"captions", "default", "forced", "subtitles", "transcript"}
_METADATA = re.compile(r"\.(info|live_chat)\.json$", re.IGNORECASE)
OWN_IDS = {
    "coin": "",
    "crosstask": "",
    "captaincook4d": r"\d+_\d+",
    "egoprocel": r"(?:CMU-MMAC|EGTEA_Gaze\+|EPIC-Tents|MECCANO|pc_assembly|pc_disassembly)/.+",
    "niv": r"(?:changing_tire|coffee|cpr|jump_car|repot)_\d{4}",
    "egoexo4d": r"[a-z]+_\w*?\d+_\d+",
    "egoper": r"[a-z]+_u\d+_a\d+_\w+",
}
"""The form of the video ids of each benchmark, where they are its own; empty where they are ids of YouTube."""


def has_own_id(source: str, video_id: str) -> bool:
    """Whether the id of a video is its benchmark's own, which no corpus of narrations knows; by its form where the
    source is no benchmark.
    """
    if source in OWN_IDS:
        return bool(OWN_IDS[source])
    return any(form and re.fullmatch(form, video_id) for form in OWN_IDS.values())


class VideoName(NamedTuple):
    """What the name of a file says of its video."""

    id: str
    language: str = ""
    """Its language tag, such as `en`, `en-orig` or `pt-BR`; empty where the name has none."""
    marks: tuple[str, ...] = ()
    """Further parts, such as `sdh` or `forced`, in lower case."""
    other: str = ""
    """Another id that the name may mean; empty where it is clear."""

    def rank(self, language: str) -> tuple[bool, int, bool, int]:
        """The place of the track among those of one language, the best first, where `language` was asked for.

        The language alone comes before a region or script of it, then a named track, an automatic one and a machine's
        translation; full tracks come before `forced` ones, and plain ones before those that describe sounds.
        """
        track = _track(self.language)
        first, *subtags = self.language.removesuffix(track).split("-")
        if self.language.lower() == language.lower():
            kind = 0
        # `en-orig` is yt-dlp's name for the recognised speech that translations are made of.
        elif first == "a" or {"orig", "auto", "asr"} & set(subtags):
            kind = 3
        # A second language: `de-en` is German that a machine translated from English.
        elif any(re.fullmatch("[a-z]{2,3}", subtag) for subtag in subtags):
            kind = 4
        else:
            kind = 2 if track else 1 if subtags else 0
        kind = max(kind, 3) if _AUTOMATIC & set(self.marks) else kind
        return "forced" in self.marks, kind, bool(_DESCRIBED & set(self.marks)), len(self.marks)

    @property
    def primary(self) -> str:
        """The language without region, script and track."""
        return self.language.removeprefix("a-").partition("-")[0].lower()

    def speaks(self, language: str) -> bool:
        """Whether the track is in a language: `en` takes `en-US` and `en-orig`, `en-US` takes no other region."""
        return f"{self.language.lower().removeprefix('a-')}-".startswith(f"{language.lower()}-")


def normalised(language: str) -> str:
    """A language tag with hyphens in place of underscores; the id of a named track stays.

    >>> normalised("pt_BR"), normalised("en-j3PyPqV_e1s")
    ('pt-BR', 'en-j3PyPqV_e1s')
    """
    track = _track(language)
    return language.removesuffix(track).replace("_", "-") + track


def _track(language: str) -> str:
    """The id of a named track that ends a language tag, with its hyphen; empty where there is none."""
    match = LANGUAGE.fullmatch(language)
    return (match["track"] or "") if match else ""


def _is_language(part: str) -> bool:
    """Whether a part of a name is a language tag by its subtags, and not a word such as `pie`."""
    if LANGUAGE.fullmatch(part) is None:
        return False
    first, *rest = re.split("[-_]", part.removesuffix(_track(part)).removeprefix("a-").removeprefix("a_"))
    return first in _LANGUAGES and all(_SUBTAG.fullmatch(tag) or tag in _LANGUAGES for tag in rest)


def is_metadata(name: str) -> bool:
    """Whether a file is one that yt-dlp writes next to a video and that holds nothing said in it."""
    return _METADATA.search(name) is not None


def video_name(name: str, *, suffix: bool = True) -> VideoName:
    """The video, language and marks that a file's name gives; without `suffix`, that a name without an ending gives.

    >>> video_name("How to boil [dQw4w9WgXcQ].de.srt")
    VideoName(id='dQw4w9WgXcQ', language='de', marks=(), other='')
    >>> [video_name(name).id for name in ("Tea-dQw4w9WgXcQ.en.vtt", "dQw4w9WgXcQ.pt_BR.sdh.vtt", "a.b.csv")]
    ['dQw4w9WgXcQ', 'dQw4w9WgXcQ', 'a.b']
    """
    stem = (name.rpartition(".")[0] or name) if suffix else name
    parts = stem.split(".")
    language, marks, kept = "", list[str](), len(parts)
    while kept > 1 and any(parts[: kept - 1]):
        part, before = parts[kept - 1], parts[kept - 2] if kept > 2 else ""
        # `hi` is Hindi, or after a language a track for those who are hard of hearing.
        marked = part.lower() in _MARKS and (part.lower() != "hi" or LANGUAGE.fullmatch(before) is not None)
        if marked:
            marks.insert(0, part.lower())
        elif not language and _is_language(part):
            language = part
        else:
            break
        kept -= 1
    head = ".".join(parts[:kept])
    video, other = _identity(head)
    if not video:
        # An id that further parts follow, such as the name of a model.
        for end in range(1, kept):
            video, _ = _identity(".".join(parts[:end]))
            if video and not _WORDS.fullmatch(video):
                rest = [part for part in parts[end:kept] if part]
                spoken = [part for part in rest if not language and LANGUAGE.fullmatch(part.lower())]
                language = language or (spoken[0].lower() if spoken else "")
                marks = [part.lower() for part in rest if part not in spoken[:1]] + marks
                break
            video = ""
    if not video:
        video = head
        alone = [id for id in _ALONE.findall(head) if not _WORDS.fullmatch(id)]
        last = parts[kept - 1] if kept > 1 and LANGUAGE.fullmatch(parts[kept - 1]) else ""
        other = other or _track(language)[1:] or "".join(alone[-1:]) or (last and head.removesuffix(f".{last}"))
    return VideoName(video, normalised(language), tuple(marks), other)


def _identity(head: str) -> tuple[str, str]:
    """The YouTube id that a name without language and marks is or ends with, or none, and another that it may mean."""
    if YOUTUBE.fullmatch(head):
        return head, ""
    if match := _BRACKETS.fullmatch(head):
        return match[1], head if _WORDS.fullmatch(match[1]) else ""
    if match := _TAIL.fullmatch(head):
        title, tail = match.groups()
        if _WORDS.fullmatch(tail):
            return "", tail
        return tail, title if YOUTUBE.fullmatch(title) and not _WORDS.fullmatch(title) else ""
    return "", ""


class VideoIds:
    """Ids of videos, and the one rule by which names are compared with them; safe to share between threads."""

    def __init__(self, ids: Iterable[str]) -> None:
        self.ids = frozenset(filter(None, ids))
        self._youtube = frozenset(filter(YOUTUBE.fullmatch, self.ids))
        self._others = self.ids - self._youtube
        self._lengths = sorted({len(video) for video in self._others})
        self._in_paths = sorted({len(video) for video in self._others if len(video) >= LENGTH or "/" in video})
        # Sorted, so that of two ids with one form the same is found each time.
        forms = ((form, video) for video in sorted(self._others) for form in _forms(video))
        self._forms = {form: video for form, video in forms if YOUTUBE.fullmatch(form)}
        self._parts = {part: video for video in sorted(self._others) for part in _windows(video)}

    def find(self, name: str) -> str | None:
        """The id of the video that a name is of, itself or as the name of a file or an address of YouTube; or None."""
        if name in self.ids:
            return name
        if name in self._forms:
            return self._forms[name]
        # An id of YouTube that is not listed is of another video, whatever else it looks like.
        if YOUTUBE.fullmatch(name):
            return None
        forms = (*_forms(name), video_name(name, suffix=False).other)
        return next((self._forms.get(form, form) for form in forms if form in self.ids or form in self._forms), None)

    def may_be(self, name: str) -> str | None:
        """The id of a video that a narration of this id is, or may be, of; None where it is of none."""
        return self.find(name) or self.inside(name)

    def inside(self, text: str, *, path: bool = False) -> str | None:
        """An id that occurs in a text that is no form of it, such as the id of another video or with `path` a path.

        A YouTube id counts anywhere. Any other counts where it cuts no word; one of letters or of digits alone only in
        brackets, after a last hyphen or before a dot; and in a path only one of 11 characters or more, or with a slash.
        A YouTube id that is part of a longer id of the list counts, too. In what may be a YouTube id itself, ids of
        fewer than 6 characters do not count.
        """
        random = YOUTUBE.fullmatch(text) and not _WORDS.fullmatch(text)
        if text in self._parts:
            return self._parts[text]
        if self._youtube and (youtube_id := next((part for part in _windows(text) if part in self._youtube), None)):
            return youtube_id
        if not self._others:
            return None
        # Places where no word is cut: not between two letters or digits.
        edges = [i == 0 or i == len(text) or not text[i - 1 : i + 1].isalnum() for i in range(len(text) + 1)]
        lengths = self._in_paths if path else self._lengths
        lengths = [length for length in lengths if length >= _CHANCE] if random else lengths
        for start in (i for i, edge in enumerate(edges) if edge):
            for length in lengths:
                end = start + length
                if end > len(text):
                    break
                if not edges[end] or (video := text[start:end]) not in self._others:
                    continue
                # An ordinary word or number is an id only where the text sets it apart.
                counts = not path or length >= LENGTH or "/" in video
                if video.isalpha() or video.isdigit():
                    around = text[start - 1 : start], text[end : end + 1]
                    apart = around == ("[", "]") or (around[0] in ("", "-") and around[1] in ("", "."))
                    counts = not path and apart
                if counts:
                    return video
        return None


def _forms(name: str) -> tuple[str, ...]:
    """The ids that a name gives as an address of YouTube, or as the name of a file."""
    return (*_ADDRESS.findall(name), video_name(name, suffix=False).id)


def _windows(text: str) -> Iterable[str]:
    return (text[start : start + LENGTH] for start in range(len(text) - LENGTH + 1))
