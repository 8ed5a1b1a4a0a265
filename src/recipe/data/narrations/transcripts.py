"""Transcripts of one video in JSON, as recognisers of speech and YouTube write them; the video id is the file's name,
or its `video_id`.

A transcript is a list of objects with a text, wherever in the file it lies. Its name tells phrases (`segments`,
`utterances`, ...) from words, which are joined to sentences. What the fields of times are called is left to `times`.
docs/data.md lists the layouts that were compared with their documentation.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from recipe.data.narrations.drafts import (
    UNREAD,
    Caption,
    Draft,
    Fault,
    Place,
    ReadingOptions,
    ReadingReport,
    in_seconds,
)
from recipe.data.narrations.files import SourceFile
from recipe.data.narrations.times import is_time, times_of
from recipe.data.video_ids import video_name
from recipe.errors import InputError, listed

_PHRASES = (
    "segments", "chunks", "transcription", "events", "snippets", "audio_segments", "utterances", "sentences",
    "recognizedPhrases", "phrases", "initialSegments", "cues", "segment", "results",
)  # fmt: skip
_WORDS = ("words", "items", "word", "result")
# Of several lists in a file the first here is read: phrases before their words.
_RANKS = {name: rank for rank, name in enumerate((*_PHRASES, *_WORDS))}
_YOUTUBE = {"events", "snippets", "initialSegments", "cues"}
# Lists that one transcript may have several of; two of another name are two transcripts.
_DIVIDED = {"sentences", "cues", "results", *_WORDS}
# Lists of readings of the same speech, the likeliest first.
_READINGS = ("alternatives", "nBest")
_TEXTS = (
    "text", "transcript", "display", "punctuated_word", "word", "content", "segment", "sentence", "simpleText", "utf8",
)  # fmt: skip
# Seconds of the recording, at the top of a file or in its metadata.
_LENGTHS = ("duration", "audio_duration")
_SPEAKERS = ("speaker", "speaker_label", "speaker_id", "speakerTag", "speakerLabel", "speaker_tag")
_SENTENCE_END = re.compile(r"[.?!\u3002\uff01\uff1f]\W*$")
_CJK = r"[\u3040-\u30ff\u3400-\u9fff]"
# No space before punctuation, and none between characters of Chinese and Japanese.
_NO_GAP = re.compile(rf"\s+(?=[,.?!;:%\u3001\u3002\uff0c\uff01\uff1f])|(?<={_CJK})\s(?={_CJK})")
# Seconds of silence after which words begin a caption of their own.
_PAUSE = 1.0
_MOST_WORDS = 40

Items = list[tuple[str, dict[str, Any]]]
"""The place of an object in the file, such as `segments[3]`, and the object."""


def read_transcript(file: SourceFile, options: ReadingOptions, report: ReadingReport) -> Iterator[Draft]:
    """The draft of the file's video. Raises InputError for a file that is not JSON."""
    try:
        value = json.loads(file.whole(options.encoding).removeprefix("\ufeff"))
        name, count, items = _transcript(value)
    except (ValueError, RecursionError) as error:
        raise InputError.at(file.label, f"not valid JSON ({error})", "fetch the file again") from None
    captions: Sequence[Caption | Fault] | Fault
    labels = [label for label, _ in items]
    about = value if isinstance(value, dict) else {}
    if count == 1:
        stated = (
            part.get(key) for part in (about, about.get("metadata")) if isinstance(part, dict) for key in _LENGTHS
        )
        read = [_caption(item) for _, item in items]
        last = read[-1]
        if name == "chunks" and is_time(last.start) and last.end is None:
            read[-1] = last._replace(end=last.start)
            report.moments += 1
        elif name in _WORDS and read[0].start is None and is_time(read[0].end):
            read[0] = read[0]._replace(start=0.0)  # Google leaves out a start of 0
        captions = in_seconds(read, report, recognised=True, duration=next(filter(is_time, stated), None))
        if name in _WORDS:
            labels, captions = _sentences(items, captions)
    elif count:
        problem = f"the file has {count} lists {name!r} with texts"
        captions = Fault(UNREAD, problem, "give a file for each video, named by its id")
    else:
        fields = f"; its fields are {listed([repr(key) for key in value])}" if isinstance(value, dict) and value else ""
        problem = f"no list of captions with texts, such as 'segments', is in the file{fields}"
        captions = Fault(UNREAD, problem, "give a transcript in a layout of docs/data.md, or convert it to WebVTT")
    source = options.source or ("youtube" if name in _YOUTUBE else "whisperx")

    def where(index: int, part: str) -> Place:
        return Place(file.label, field=f"{labels[index]}.{part}" if part else labels[index])

    video = about.get("video_id") or video_name(file.name).id
    yield Draft(Place(file.label), video, captions, where, source=source)


def _transcript(value: object) -> tuple[str, int, Items]:
    """The name of the list that has the file's captions, how many transcripts it makes, and its objects."""
    known: list[tuple[tuple[bool, int, int], list[Items]]] = []
    for path, groups in _lists(value).items():
        rank = _RANKS.get(path[-1] if path else "snippets")
        spoken = [group for group in groups if any(_text(item) for _, item in group)]
        if spoken and rank is not None:
            timed = any(_text(item) and times_of(item)[0] is not None for group in spoken for _, item in group)
            known.append(((not timed, rank, len(path)), spoken))
    if not known:
        return "", 0, []
    best = min(key for key, _ in known)
    name = (*_PHRASES, *_WORDS)[best[1]]
    divided = name in _DIVIDED
    rivals = [spoken for key, spoken in known if key[: 2 + divided] == best[: 2 + divided]]
    groups = rivals[0]
    if name in _WORDS and len(groups) > 1:
        # Google repeats all words, with their speakers, in the last result.
        begins = [times_of(group[0][1])[0] for group in (groups[0], groups[-1])]
        # It then begins where the first begins, and has as many words as all before it.
        if begins[0] == begins[1] and len(groups[-1]) >= sum(map(len, groups[:-1])):
            groups = groups[-1:]
    count = len(rivals) if divided and isinstance(value, dict) else sum(map(len, rivals))
    return name, count, [item for group in groups for item in group]


def _lists(value: object) -> dict[tuple[str, ...], list[Items]]:
    """All lists of objects, in file order, by their path of keys; of several readings the first."""
    lists: dict[tuple[str, ...], list[Items]] = {}
    # A stack and no recursion: JSON can be nested deeper than Python calls functions.
    stack: list[tuple[tuple[str, ...], str, object]] = [((), "", value)]
    while stack:
        path, label, node = stack.pop()
        inner: list[tuple[tuple[str, ...], str, object]] = []
        if isinstance(node, dict):
            inner = [((*path, key), f"{label}.{key}" if label else key, child) for key, child in node.items()]
        elif isinstance(node, list) and any(isinstance(child, dict | list) for child in node):
            inner = [(path, f"{label}[{n}]", child) for n, child in enumerate(node)]
            inner = inner[:1] if path and path[-1] in _READINGS else inner
            if any(isinstance(child, dict) for child in node):
                rows = [(place, _unwrapped(child) if isinstance(child, dict) else {}) for _, place, child in inner]
                lists.setdefault(path, []).append([row for row in rows if not _is_silent(row[1])])
        stack.extend(entry for entry in reversed(inner) if isinstance(entry[2], dict | list))
    return lists


def _unwrapped(item: dict[str, Any]) -> dict[str, Any]:
    """The object inside one that only names its kind, as YouTube's `transcriptSegmentRenderer`."""
    name = next(iter(item), "")
    return item[name] if len(item) == 1 and name.endswith("Renderer") and isinstance(item[name], dict) else item


def _is_silent(item: dict[str, Any]) -> bool:
    """Whether an item of YouTube opens a window or a section, and says nothing."""
    return "sectionHeader" in item or ("tStartMs" in item and not (_text(item) or "").strip())


def _text(item: object) -> str | None:
    """The text of a caption or word; None where it has none."""
    if not isinstance(item, dict):
        return None
    for name in _TEXTS:
        if isinstance(item.get(name), str):
            return str(item[name])
    for name in (*_READINGS, "snippet", "cue"):
        inner = item.get(name)
        inner = inner[0] if isinstance(inner, list) and inner else inner
        if (text := _text(inner)) is not None:
            return text
    parts = next((item[name] for name in ("segs", "runs") if isinstance(item.get(name), list)), None)
    return parts and "".join(_text(part) or "" for part in parts)


def _caption(item: dict[str, Any]) -> Caption:
    text = _text(item)
    # An event of YouTube without a duration is a moment.
    times = times_of({"dDurationMs": 0} | item if "tStartMs" in item else item)
    return Caption(item.get("text") if text is None else " ".join(text.split()), *times)


def _sentences(items: Items, words: Sequence[Caption | Fault]) -> tuple[list[str], list[Caption | Fault]]:
    """Words joined to captions, with the place of the first word of each.

    One ends with a sentence, before a pause or another speaker, and after 40 words. A mark without times belongs to the
    word before it.
    """
    labels: list[str] = []
    captions: list[Caption | Fault] = []
    said: list[str] = []
    speaker: object = None
    for (label, item), word in zip(items, words, strict=True):
        now = next((item[name] for name in _SPEAKERS if name in item), speaker)
        last, text = captions[-1] if said else None, word.text if isinstance(word, Caption) else None
        if item.get("type") == "spacing":
            continue
        if isinstance(word, Caption) and isinstance(last, Caption) and isinstance(text, str):
            end = last.end
            joins = word.start is None and word.end is None
            if is_time(word.start) and is_time(word.end) and is_time(end):
                joins = abs(word.start - end) <= _PAUSE and now == speaker and len(said) < _MOST_WORDS
                joins = joins and not _SENTENCE_END.search(said[-1])
                end = max(end, word.end)
            if joins:
                said.append(text)
                captions[-1] = last._replace(text=_NO_GAP.sub("", " ".join(said)), end=end)
                continue
        labels.append(label)
        captions.append(word)
        said = [text] if isinstance(text, str) and text else []
        speaker = now
    return labels, captions
