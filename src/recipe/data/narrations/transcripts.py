"""Transcripts of one video in JSON, as recognisers of speech and YouTube write them; the video id is the file's name.

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
    caption,
    in_seconds,
)
from recipe.data.narrations.files import SourceFile, whole
from recipe.data.narrations.times import is_time, times_of
from recipe.data.video_ids import video_name
from recipe.errors import InputError, listed

_PHRASES = (
    "segments", "chunks", "transcription", "events", "snippets", "audio_segments", "utterances", "sentences",
    "recognizedPhrases", "phrases", "initialSegments", "cues", "segment", "results",
)  # fmt: skip
_WORDS = ("words", "items", "word", "result")
_RANKS = {name: rank for rank, name in enumerate((*_PHRASES, *_WORDS))}
_YOUTUBE = {"events", "snippets", "initialSegments", "cues"}
_DIVIDED = {"sentences", "cues", "results", *_WORDS}
"""Lists that one transcript may have several of; two of another name are two transcripts."""
_READINGS = ("alternatives", "nBest")
"""Lists of readings of the same speech, the likeliest first."""
_TEXTS = (
    "text", "transcript", "display", "punctuated_word", "word", "content", "segment", "sentence", "simpleText", "utf8",
)  # fmt: skip
_SPEAKERS = ("speaker", "speaker_label", "speaker_id", "speakerTag", "speakerLabel", "speaker_tag")
_SENTENCE_END = re.compile(r"[.?!\u3002\uff01\uff1f]\W*$")
_CJK = r"[\u3040-\u30ff\u3400-\u9fff]"
_NO_GAP = re.compile(rf"\s+(?=[,.?!;:%\u3001\u3002\uff0c\uff01\uff1f])|(?<={_CJK})\s(?={_CJK})")
_PAUSE = 1.0
"""Seconds of silence after which words begin a caption of their own."""
_MOST_WORDS = 40

Items = list[tuple[str, dict[str, Any]]]
"""The place of an object in the file, such as `segments[3]`, and the object."""


def read_transcript(file: SourceFile, options: ReadingOptions, report: ReadingReport) -> Iterator[Draft]:
    """The draft of the file's video. Raises InputError for a file that is not JSON."""
    try:
        value = json.loads(whole(file, options.encoding).removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise InputError.at(file.label, f"not valid JSON ({error})", "fetch the file again") from None
    name, groups = _transcript(value)
    captions: Sequence[Caption | Fault] | Fault
    labels: Sequence[str] = ()
    if not name:
        holds = listed([repr(key) for key in value]) if isinstance(value, dict) and value else "none of its fields"
        problem = f"no list of captions with texts, such as 'segments', is in the file, which has {holds}"
        captions = Fault(UNREAD, problem, "give a transcript in a layout of docs/data.md, or convert it to WebVTT")
    elif len(groups) > 1 and name not in _DIVIDED:
        problem = f"the file has {len(groups)} lists {name!r} with texts"
        captions = Fault(UNREAD, problem, "give a file for each video, named by its id")
    else:
        items = [item for group in groups for item in group]
        labels = [label for label, _ in items]
        read = [_caption(item) for _, item in items]
        last = read[-1]
        if name == "chunks" and isinstance(last, Caption) and is_time(last.start) and last.end is None:
            read[-1] = last._replace(end=last.start)
            report.moments += 1
        captions = in_seconds(read, report, recognised=True, duration=_duration(value))
        if name in _WORDS:
            labels, captions = _sentences(items, captions)
        elif options.rolling == "collapse":
            # As in subtitles: a caption that a file holds twice was said once.
            keys = [
                repr(one) if isinstance(one, Caption) and is_time(one.start) else n for n, one in enumerate(captions)
            ]
            first = sorted({key: n for n, key in reversed(list(enumerate(keys)))}.values())
            report.collapsed += len(captions) - len(first)
            labels, captions = [labels[n] for n in first], [captions[n] for n in first]
    source = options.source or ("youtube" if name in _YOUTUBE else "whisperx")

    def where(index: int, part: str) -> Place:
        return Place(file.label, field=f"{labels[index]}.{part}" if part else labels[index])

    yield Draft(Place(file.label), video_name(file.name).id, captions, where, source=source)


def _transcript(value: object) -> tuple[str, list[Items]]:
    """The name and the lists of the file's captions; no name where it has none."""
    known: list[tuple[tuple[bool, int, int], tuple[str, ...], list[Items]]] = []
    bare: list[tuple[str, list[Items]]] = []
    for path, groups in _lists(value).items():
        name = path[-1] if path else "snippets"
        if name not in _RANKS:
            continue
        told = [group for group in groups if any(_text(item) for _, item in group)]
        timed = any(_text(item) and times_of(item).start is not None for group in told for _, item in group)
        if told:
            known.append(((not timed, _RANKS[name], len(path)), (*path[:-1], name), told))
        elif len(path) <= 1 and name in _PHRASES:
            bare.append((name, groups))
    if not known:
        return bare[0] if bare else ("", [])
    (untimed, rank, _), path, groups = min(known, key=lambda one: one[0])
    if path[-1] not in _DIVIDED:
        groups = [group for key, _, told in known if key[:2] == (untimed, rank) for group in told]
    if path[-1] in _WORDS and len(groups) > 1:
        # Google repeats all words, with their speakers, in the last result.
        begins = [times_of(group[0][1]).start for group in (groups[0], groups[-1])]
        if begins[0] == begins[1] and len(groups[-1]) >= sum(map(len, groups[:-1])):
            groups = groups[-1:]
    return path[-1], groups


def _lists(value: object) -> dict[tuple[str, ...], list[Items]]:
    """All lists of objects, in file order, by their path of keys; of several readings the first."""
    found: dict[tuple[str, ...], list[Items]] = {}
    stack: list[tuple[tuple[str, ...], str, object]] = [((), "", value)]
    while stack:
        path, label, node = stack.pop()
        inner: list[tuple[tuple[str, ...], str, object]] = []
        if isinstance(node, dict):
            inner = [((*path, key), f"{label}.{key}" if label else key, one) for key, one in node.items()]
        elif isinstance(node, list) and any(isinstance(one, dict | list) for one in node):
            inner = [(path, f"{label}[{n}]", one) for n, one in enumerate(node)]
            inner = inner[:1] if path and path[-1] in _READINGS else inner
            if any(isinstance(one, dict) for one in node):
                rows = [(place, _unwrapped(one)) for _, place, one in inner]
                found.setdefault(path, []).append([row for row in rows if not _is_silent(row[1])])
        stack.extend(one for one in reversed(inner) if isinstance(one[2], dict | list))
    return found


def _unwrapped(item: object) -> object:
    """The object inside one that only names its kind, as YouTube's `transcriptSegmentRenderer`."""
    if isinstance(item, dict) and len(item) == 1:
        ((name, inner),) = item.items()
        return inner if name.endswith("Renderer") else item
    return item


def _is_silent(item: object) -> bool:
    """Whether an item of YouTube opens a window or a section, and says nothing."""
    return isinstance(item, dict) and (
        "sectionHeader" in item or ("tStartMs" in item and not (_text(item) or "").strip())
    )


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


def _caption(item: object) -> Caption | Fault:
    if not isinstance(item, dict):
        return caption(item)
    text = _text(item)
    if "tStartMs" in item:
        item = {"dDurationMs": 0} | item
    return Caption(item.get("text") if text is None else " ".join(text.split()), *times_of(item))


def _duration(value: object) -> object:
    """The seconds of the recording, where the file states them."""
    about = value if isinstance(value, dict) else {}
    metadata = about.get("metadata")
    inner = metadata.get("duration") if isinstance(metadata, dict) else None
    return next((one for one in (about.get("duration"), about.get("audio_duration"), inner) if is_time(one)), None)


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
        about = item if isinstance(item, dict) else {}
        now = next((about[name] for name in _SPEAKERS if name in about), speaker)
        last = captions[-1] if said else None
        if about.get("type") == "spacing":
            continue
        if isinstance(word, Fault) or not isinstance(word.text, str) or not word.text.strip():
            labels.append(label)
            captions.append(word)
            said = []
            continue
        joins, end = False, None
        if isinstance(last, Caption) and word.start is None and word.end is None:
            joins, end = True, last.end
        elif isinstance(last, Caption) and is_time(word.start) and is_time(word.end) and is_time(last.end):
            near = abs(word.start - last.end) <= _PAUSE
            joins = near and now == speaker and len(said) < _MOST_WORDS and not _SENTENCE_END.search(said[-1])
            end = max(last.end, word.end)
        if joins and isinstance(last, Caption):
            said.append(word.text)
            captions[-1] = last._replace(text=_NO_GAP.sub("", " ".join(said)), end=end)
        else:
            labels.append(label)
            captions.append(word)
            said = [word.text]
        speaker = now
    return labels, captions
