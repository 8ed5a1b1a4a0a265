"""Captions in place of speech: what is done in a video, as short sentences made of what is said in it.

Speech greets, jokes and repeats itself. HowToCaption (Shvetsova et al., ECCV 2024, arXiv 2310.04900) made a corpus of
captions from the speech of HowTo100M with a language model; this is the same for a user's own videos:

    windows    the segments of a narration in order, about 200 words in each; a segment is never divided
    asking     one request a window, with the title: the answer is a list of captions, empty where nothing is done
    checking   a caption that is like no segment of its window was not said there, and is left out
    times      a caption is laid on segments in order; it begins with the first of its segments and ends with the last

A caption keeps the speech of its segments as evidence (`Segment.speech`). A window whose answer cannot be read counts
as failed. It is never a window in which nothing is done.

Without a model, `supported_speech` keeps the segments that narrations of the same activity say too
(`recipe.mining.consensus`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recipe.artifacts import JsonObject, fingerprint
from recipe.config import CaptionConfig
from recipe.corpus.store import best_matches
from recipe.errors import InputError
from recipe.mining.consensus import consensus
from recipe.models.protocol import Answer, Chat, Refusal, unanswered
from recipe.progress import SILENT, Progress
from recipe.prompting import fence, fill, json_object
from recipe.reward.embeddings import NarrationIndex
from recipe.text import final_answer, first_list, plan_steps
from recipe.types import Narration, Segment

SCHEMA: JsonObject = {
    "name": "captions",
    "schema": {
        "type": "object",
        "properties": {"captions": {"type": "array", "items": {"type": "string"}}},
        "required": ["captions"],
        "additionalProperties": False,
    },
}
"""The form of an answer, for endpoints that take a schema."""
LONGEST = 40
"""Words of a caption from which on it is a paragraph, and left out."""
LEAST_WORDS = 3
"""Words of a segment below which it says no action, where no model is asked."""
UNLIKE, LONG, TWICE = "like no segment of its window", f"longer than {LONGEST} words", "a second time in its window"
"""Why a caption is left out."""
_AT_ONCE = 256
"""Windows that are asked for in one call: enough for an endpoint, and few enough for any memory."""
_NAMED, _SHOWN = 100, 10
"""Narrations without a caption that a report names, and captions that it shows."""
_SETTINGS = CaptionConfig()
Ask = Callable[[Sequence[Chat], int], Sequence[Answer | Refusal]]
"""From chats and the number of the attempt to the outcome of each."""
Embed = Callable[[Sequence[str]], NDArray[np.float32]]


@dataclass(slots=True)
class CaptionReport:
    """Counts of windows and captions, filled while narrations are captioned."""

    narrations: int = 0
    without: int = 0
    """Narrations of which no caption came; they are not in the output."""
    without_ids: list[str] = field(default_factory=list)
    """The first hundred of them."""
    segments: int = 0
    speech_words: int = 0
    windows: int = 0
    captioned: int = 0
    """Windows with a caption."""
    nothing: int = 0
    """Windows in which the model, or the rule without a model, finds nothing that is done."""
    dropped: int = 0
    """Windows whose captions were all left out."""
    failed: Counter[str] = field(default_factory=Counter)
    """Windows without an answer that can be read, by reason."""
    cut: int = 0
    """Windows whose list of captions was cut off at the limit of tokens, and read as far as it goes."""
    asked_again: int = 0
    captions: int = 0
    caption_words: int = 0
    copies: int = 0
    """Captions whose words stand in the speech of their window just so."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Captions that were left out, by reason."""
    shown: list[tuple[str, JsonObject]] = field(default_factory=list, repr=False)
    """Some captions with their speech, each under a hash that draws them."""

    def count(self, narration: Narration | None, video_id: str) -> None:
        """Add a narration and its captions; None where none came."""
        self.narrations += 1
        if narration is None:
            self.without += 1
            self.without_ids += [video_id] * (self.without <= _NAMED)
            return
        for number, segment in enumerate(narration.segments):
            self.captions += 1
            self.caption_words += len(segment.text.split())
            row = {"video_id": video_id, "caption": segment.text, "start": segment.start, "speech": segment.speech}
            self.shown.append((fingerprint([video_id, number]), row))
        self.shown = sorted(self.shown, key=lambda entry: entry[0])[:_SHOWN]

    def numbers(self) -> JsonObject:
        """The counts and shares as plain values; a share of nothing is None."""
        return {
            "narrations": self.narrations,
            "narrations_without_caption": self.without,
            "without_caption": self.without_ids,
            "segments": self.segments,
            "speech_words": self.speech_words,
            "windows": self.windows,
            "windows_with_caption": self.captioned,
            "windows_without_action": self.nothing,
            "windows_all_left_out": self.dropped,
            "windows_failed": sum(self.failed.values()),
            "failed_because": dict(self.failed.most_common()),
            "share_without_caption": _share(self.windows - self.captioned, self.windows),
            "windows_cut": self.cut,
            "asked_again": self.asked_again,
            "captions": self.captions,
            "words_of_a_caption": _share(self.caption_words, self.captions),
            "share_copied": _share(self.copies, self.captions),
            "left_out": dict(self.left_out.most_common()),
            "samples": [row for _, row in self.shown],
        }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


class Window(NamedTuple):
    """A part of a narration that a model is shown at once."""

    narration: Narration
    segments: tuple[Segment, ...]

    def chat(self, template: str) -> Chat:
        """The request for its captions. Raises InputError for a template that takes other names."""
        speech = "\n".join(_line(segment.text) for segment in self.segments)
        title = _line(self.narration.title or "") or "unknown"
        try:
            return [{"role": "user", "content": fill(template, {"title": fence(title), "speech": fence(speech)})}]
        except ValueError as error:
            remedy = "let the prompt take $title and $speech, and write a plain dollar as $$"
            raise InputError(f"{error}; {remedy}.") from None


def windows(narration: Narration, words: int) -> list[Window]:
    """The narration in parts of `words` words at most, or of one segment that is longer.

    >>> narration = Narration("v", tuple(map(Segment, ("boil the water", "pour it", "wait"))))
    >>> [[segment.text for segment in window.segments] for window in windows(narration, 5)]
    [['boil the water', 'pour it'], ['wait']]
    """
    parts: list[list[Segment]] = []
    room = 0
    for segment in narration.segments:
        length = len(segment.text.split())
        if not parts or length > room:
            parts.append([])
            room = words
        parts[-1].append(segment)
        room -= length
    return [Window(narration, tuple(part)) for part in parts]


def read_captions(outcome: Answer | Refusal) -> list[str] | str:
    """The captions of an answer, none where it says that nothing is done, or in a few words why it cannot be read.

    >>> read_captions(Answer('{"captions": ["Boil water."]}')), read_captions(Answer('{"captions": []}'))
    (['Boil water.'], [])
    >>> read_captions(Answer("1. Boil water\\n2. Pour it")), read_captions(Answer("I cannot help with that."))
    (['Boil water', 'Pour it'], 'no captions in the answer')
    """
    listed = isinstance(outcome, Answer) and first_list(final_answer(outcome.text) or "")
    if reason := unanswered(outcome, whole=not listed):
        return reason.partition(":")[0]
    assert isinstance(outcome, Answer)
    text = final_answer(outcome.text) or ""
    texts = (json_object(text) or {}).get("captions")
    if texts is None and (listed or text.lstrip().startswith("[")):
        # A list in place of the object. Prose is no caption, so that without marks no line is read; of a list that is
        # cut off, as small models go on for ever, the whole lines are.
        texts = list(plan_steps(text, cut=outcome.cut)) or None
    if not isinstance(texts, list) or not all(isinstance(item, str) for item in texts):
        return "no captions in the answer"
    captions = [line for line in map(_line, texts) if any(map(str.isalnum, line))]
    return captions if captions or not texts else "no captions in the answer"


def spans(W: ArrayLike, least: float) -> list[range]:
    """The run of segments that each caption is made of, from cosines [captions, segments] of a window.

    Captions are laid on segments in order, two of them on one that says both (`best_matches`). From there a run goes on
    to both sides while the segments are most like this caption, by `least` or more. So talk between two captions
    belongs to neither, and no run begins before that of an earlier caption.

    >>> spans([[0.9, 0.5, 0.1, 0.0], [0.1, 0.2, 0.6, 0.8]], 0.4)
    [range(0, 2), range(2, 4)]
    """
    W = np.asarray(W, dtype=np.float32)
    owners = np.where(W.max(axis=0) >= least, W.argmax(axis=0), -1)
    anchors = [match.segment for match in best_matches(W)]
    runs = []
    for number, (before, anchor, after) in enumerate(
        zip([-1, *anchors], anchors, [*anchors[1:], W.shape[1]], strict=False)
    ):
        first = last = anchor
        while first - 1 > before and owners[first - 1] == number:
            first -= 1
        while last + 1 < after and owners[last + 1] == number:
            last += 1
        runs.append(range(first, last + 1))
    return runs


def caption_speech(
    narrations: Iterable[Narration],
    ask: Ask,
    embed: Embed,
    template: str,
    config: CaptionConfig = _SETTINGS,
    report: CaptionReport | None = None,
) -> Iterator[Narration]:
    """The narrations in captions, in order, those without any left out; counts go to `report`.

    `template` takes `$title` and `$speech`; `embed` gives unit-norm vectors. Narrations are read and asked for a few
    hundred windows at a time. Raises InputError for a template that takes other names, and as `ask` does.
    """
    report = CaptionReport() if report is None else report
    for group in _groups(narrations, config.words):
        parts = [window for own in group for window in own]
        chats = [window.chat(template) for window in parts]
        written: list[list[str] | str] = [""] * len(parts)
        for attempt in range(config.reasks + 1):
            todo = [at for at, captions in enumerate(written) if isinstance(captions, str)]
            if not todo:
                break
            report.asked_again += len(todo) if attempt else 0
            for at, outcome in zip(todo, ask([chats[at] for at in todo], attempt), strict=True):
                written[at] = read_captions(outcome)
                report.cut += isinstance(outcome, Answer) and outcome.cut and not isinstance(written[at], str)

        # Every text of the group is encoded once, in one call.
        texts = set[str]()
        for window, captions in zip(parts, written, strict=True):
            if captions and not isinstance(captions, str):
                texts.update(captions, (segment.text for segment in window.segments))
        ordered = sorted(texts)
        vectors = dict(zip(ordered, embed(ordered), strict=True)) if ordered else {}
        outcomes = iter(zip(parts, written, strict=True))
        for own in group:
            segments: list[Segment] = []
            for window, captions in islice(outcomes, len(own)):
                report.windows += 1
                report.segments += len(window.segments)
                report.speech_words += sum(len(segment.text.split()) for segment in window.segments)
                if isinstance(captions, str):
                    report.failed[captions] += 1
                elif not captions:
                    report.nothing += 1
                else:
                    timed = _timed(window, captions, vectors, config, report)
                    report.captioned += bool(timed)
                    report.dropped += not timed
                    segments += timed
            narration = own[0].narration
            captioned = replace(narration, segments=tuple(segments)) if segments else None
            report.count(captioned, narration.video_id)
            if captioned is not None:
                yield captioned


def _groups(narrations: Iterable[Narration], words: int) -> Iterator[list[list[Window]]]:
    """The windows of each narration, in groups of many windows."""
    group: list[list[Window]] = []
    for narration in narrations:
        group.append(windows(narration, words))
        if sum(map(len, group)) >= _AT_ONCE:
            yield group
            group = []
    if group:
        yield group


def _timed(
    window: Window,
    captions: Sequence[str],
    vectors: dict[str, NDArray[np.float32]],
    config: CaptionConfig,
    report: CaptionReport,
) -> list[Segment]:
    """The captions of a window that its speech supports, each with the time and the speech of its segments."""
    lines = np.stack([vectors[segment.text] for segment in window.segments])
    speech = f" {_words(' '.join(segment.text for segment in window.segments))} "
    kept: dict[str, str] = {}
    for text in captions:
        if len(text.split()) > LONGEST:
            report.left_out[LONG] += 1
        elif text.casefold() in kept:
            report.left_out[TWICE] += 1
        elif float((lines @ vectors[text]).max()) < config.min_similarity:
            report.left_out[UNLIKE] += 1
        else:
            kept[text.casefold()] = text
            report.copies += f" {_words(text)} " in speech
    if not kept:
        return []
    segments = []
    cosines = np.stack([vectors[text] for text in kept.values()]) @ lines.T
    for text, span in zip(kept.values(), spans(cosines, config.min_similarity), strict=True):
        own = window.segments[span.start : span.stop]
        said = " ".join(segment.text for segment in own)
        segments.append(Segment(text, own[0].start, own[-1].end, said))
    return segments


def supported_speech(
    corpus: NarrationIndex,
    config: CaptionConfig = _SETTINGS,
    report: CaptionReport | None = None,
    progress: Progress = SILENT,
) -> Iterator[Narration]:
    """Of each narration the segments that other narrations support most; no model is asked.

    The share `keep` of a narration's segments stays. The same share of all segments at once would leave little of
    videos that few others are like. Segments of fewer than three words go. Raises InputError as `consensus`.
    """
    report = CaptionReport() if report is None else report
    for number, support in enumerate(consensus(corpus, progress=progress)):
        narration, kept, at = corpus.narration(number), list[Segment](), 0
        least = np.quantile(support, 1.0 - config.keep)
        for window in windows(narration, config.words):
            own = [
                segment
                for place, segment in enumerate(window.segments, start=at)
                if support[place] >= least and len(segment.text.split()) >= LEAST_WORDS
            ]
            at += len(window.segments)
            report.windows += 1
            report.segments += len(window.segments)
            report.speech_words += sum(len(segment.text.split()) for segment in window.segments)
            report.captioned += bool(own)
            report.nothing += not own
            report.copies += len(own)
            kept += own
        captioned = replace(narration, segments=tuple(kept)) if kept else None
        report.count(captioned, narration.video_id)
        if captioned is not None:
            yield captioned


def _line(text: str) -> str:
    return " ".join(text.split())


def _words(text: str) -> str:
    """A text as its words alone, so that punctuation and capitals hide no copy."""
    return " ".join("".join(sign if sign.isalnum() else " " for sign in text.casefold()).split())
