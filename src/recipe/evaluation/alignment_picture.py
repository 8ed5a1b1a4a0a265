"""An alignment as a picture: steps at the left, the narration along a time axis at the right, links between them.

Heights are in units that the page scales; widths are percent of the column between steps and texts, so that one
picture fits a screen and a phone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from recipe.clock import clock
from recipe.reward.explanation.records import AlignedNarration, Match
from recipe.reward.explanation.words import when

STEP, TEXT, LINE = 52.0, 54.0, 21.0
"""Heights of a step, of the text of a matched segment, and of the one line of an unmatched one."""
AXIS, WIDTH = 70.0, 7.0
"""Left edge and width of the time axis, in percent of the column."""

_LOWEST, _THINNEST = 440.0, 3.0
_TICKS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200)
"""Seconds between two ticks of the axis."""


class Span(NamedTuple):
    """Where something lies from top to bottom."""

    top: float
    bottom: float

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2


class Tick(NamedTuple):
    """A time on the axis."""

    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Picture:
    """Where everything of one alignment stands, in units from the top."""

    height: float
    steps: tuple[float, ...]
    """The middle of each step of h + c."""
    divide: float | None
    """Between the last step of h and the first of c; None without a history."""
    segments: tuple[Span, ...]
    """Each segment on the axis: its time, or its turn where there are no times."""
    history_end: float | None
    """On the axis, the end of the last segment that the history is matched with."""
    texts: dict[int, float]
    """Middle of the text of each segment that has one beside the axis: all matched ones, others where there is room."""
    ticks: tuple[Tick, ...]


def place(aligned: AlignedNarration, history: int) -> Picture:
    """Lay out one alignment whose first `history` steps are those of h."""
    steps, segments = len(aligned.similarities), aligned.narration.segments
    matched = sorted({match.segment for match in aligned.matches})
    height = max(STEP * steps, TEXT * len(matched), min(LINE * len(segments), _LOWEST))
    spans = _spans(aligned, height)
    end = aligned.history_end(history)
    return Picture(
        height=height,
        steps=tuple((i + 0.5) * height / steps for i in range(steps)),
        divide=history * height / steps if history else None,
        segments=spans,
        history_end=None if end is None else spans[end].bottom,
        texts=_texts(spans, matched, height),
        ticks=_ticks(aligned, height),
    )


def draw(picture: Picture, aligned: AlignedNarration, history: int, notes: Sequence[str], links: Sequence[str]) -> str:
    """The column between steps and texts as an `<svg>` element: links, leaders and the axis.

    `notes` and `links` are a sentence and an address, which may be empty, for each segment.
    """
    number = {match: i for i, match in enumerate(aligned.matches)}
    parts = [
        *_frontier(picture),
        *(_leader(picture, k) for k in picture.texts),
        *(_link(picture, match, number[match], history) for match in aligned.matches),
        *_axis(picture, aligned, history, notes, links),
    ]
    return (
        f'<svg class="links" viewBox="0 0 100 {picture.height:g}" preserveAspectRatio="none" role="group" '
        f'aria-label="Segments along time; arrow keys move between them">{"".join(parts)}</svg>'
    )


def barcode(aligned: AlignedNarration, history: int) -> str:
    """A narration as a strip, its matched segments in the colours of their steps, as an `<svg>` element."""
    kinds = _kinds(aligned, history)
    bars = (
        f'<rect class="bar {kinds.get(k, "free")}" x="{span.top:.2f}" width="{max(span.bottom - span.top, 0.6):.2f}" '
        'y="0" height="10"/>'
        for k, span in enumerate(_spans(aligned, 100.0))
    )
    return (
        f'<svg class="barcode" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{"".join(bars)}</svg>'
    )


def pool_strip(similarities: Sequence[float | None]) -> str:
    """One cell a narration, the darker the more similar, none where a step is unmatched, as an `<svg>` element."""
    cells = (
        f'<rect x="{i}.08" width=".84" height="1" style="--s:{min(max(similarity, 0.0), 1.0):g}"/>'
        for i, similarity in enumerate(similarities)
        if similarity is not None
    )
    return (
        f'<svg class="pool" viewBox="0 0 {max(len(similarities), 1)} 1" preserveAspectRatio="none" aria-hidden="true">'
        f"{''.join(cells)}</svg>"
    )


def _spans(aligned: AlignedNarration, height: float) -> tuple[Span, ...]:
    segments = aligned.narration.segments
    if (times := _times(aligned)) is None:
        slot = height / max(len(segments), 1)
        return tuple(Span((k + 0.06) * slot, (k + 0.94) * slot) for k in range(len(segments)))
    first, last = times
    scale = height / (last - first)
    thin = min(_THINNEST, height)
    spans = []
    for segment in segments:
        top = min(((segment.start or 0.0) - first) * scale, height - thin)
        spans.append(Span(top, min(max(((segment.end or 0.0) - first) * scale, top + thin), height)))
    return tuple(spans)


def _times(aligned: AlignedNarration) -> tuple[float, float] | None:
    """When the first segment starts and the last one ends; None where that is unknown or the same moment."""
    starts = [segment.start for segment in aligned.narration.segments if segment.start is not None]
    ends = [segment.end for segment in aligned.narration.segments if segment.end is not None]
    segments = len(aligned.narration.segments)
    if not segments or len(starts) < segments or len(ends) < segments or max(ends) <= min(starts):
        return None
    return min(starts), max(ends)


def _texts(spans: Sequence[Span], matched: Sequence[int], height: float) -> dict[int, float]:
    placed = dict(zip(matched, _apart([spans[k].middle for k in matched], TEXT, height), strict=True))
    taken = [Span(y - TEXT / 2, y + TEXT / 2) for y in placed.values()]
    for k, span in enumerate(spans):
        y = min(max(span.middle, LINE / 2), height - LINE / 2)
        line = Span(y - LINE / 2, y + LINE / 2)
        if k not in placed and all(line.bottom <= other.top or line.top >= other.bottom for other in taken):
            placed[k] = y
            taken.append(line)
    return placed


def _apart(wanted: Sequence[float], size: float, height: float) -> list[float]:
    """Middles nearest to those wanted, in squares, that keep `size` apart in [0, height]; they must fit there.

    Isotonic regression of the wanted middles less i * size, by pooling neighbours that are too close.
    """
    blocks: list[tuple[float, int]] = []
    for i, middle in enumerate(wanted):
        mean, count = middle - i * size, 1
        while blocks and blocks[-1][0] > mean:
            before, members = blocks.pop()
            mean, count = (before * members + mean * count) / (members + count), members + count
        blocks.append((mean, count))
    offsets = [mean for mean, count in blocks for _ in range(count)]
    lowest, highest = size / 2, height - size / 2 - (len(wanted) - 1) * size
    return [min(max(offset, lowest), max(highest, lowest)) + i * size for i, offset in enumerate(offsets)]


def _ticks(aligned: AlignedNarration, height: float) -> tuple[Tick, ...]:
    if (times := _times(aligned)) is None:
        return ()
    first, last = times
    every = next((step for step in _TICKS if (last - first) / step <= height / 60), _TICKS[-1])
    seconds = range(-int(-first // every) * every, int(last) + 1, every)
    return tuple(Tick((second - first) * height / (last - first), clock(second)) for second in seconds)


def _kinds(aligned: AlignedNarration, history: int) -> dict[int, str]:
    """Whose segment each matched one is: the history's, or the plan's."""
    return {match.segment: _kind(match, history) for match in aligned.matches}


def _kind(match: Match, history: int) -> str:
    return "done" if match.step < history else "plan"


def _frontier(picture: Picture) -> Iterable[str]:
    if picture.divide is not None and picture.history_end is not None:
        curve = _curve(picture.divide, picture.history_end)
        yield f'<path class="frontier" d="{curve} H{AXIS + WIDTH + 4:g}"/>'


def _leader(picture: Picture, segment: int) -> str:
    start, y = AXIS + WIDTH + 1, picture.segments[segment].middle
    return f'<path class="leader" d="M{start:g} {y:.2f} L98 {picture.texts[segment]:.2f}"/>'


def _link(picture: Picture, match: Match, number: int, history: int) -> str:
    curve = _curve(picture.steps[match.step], picture.segments[match.segment].middle)
    strength = min(max(match.similarity, 0.0), 1.0)
    return (
        f'<path class="link {_kind(match, history)}" data-links="{number}" data-step="{match.step}" '
        f'data-segment="{match.segment}" style="--s:{strength:g}" d="{curve}"/>'
    )


def _curve(left: float, right: float) -> str:
    return f"M0 {left:.2f} C{AXIS / 2:g} {left:.2f} {AXIS / 2:g} {right:.2f} {AXIS:g} {right:.2f}"


def _axis(
    picture: Picture, aligned: AlignedNarration, history: int, notes: Sequence[str], links: Sequence[str]
) -> Iterable[str]:
    kinds = _kinds(aligned, history)
    for k, span in enumerate(picture.segments):
        bar = (
            f'<rect class="bar {kinds.get(k, "free")}" x="{AXIS:g}" width="{WIDTH:g}" y="{span.top:.2f}" '
            f'height="{span.bottom - span.top:.2f}"/>'
        )
        name = "a" if links[k] else "g"
        address = f' href="{escape(links[k])}" target="_blank" rel="noopener noreferrer"' if links[k] else ""
        role = "" if links[k] else ' role="img"'
        note = escape(notes[k])
        tied = f'data-links="{link_numbers(aligned, k)}" data-note="{note}" aria-label="{note}"'
        focus = f'class="segment" tabindex="{-1 if k else 0}"'
        yield f"<{name}{address}{role} {focus} {tied}><title>{note}</title>{bar}</{name}>"


def link_numbers(aligned: AlignedNarration, segment: int) -> str:
    """What ties a segment's bar, text and links together: the numbers of its matches, or a mark of its own."""
    numbers = [str(i) for i, match in enumerate(aligned.matches) if match.segment == segment]
    return " ".join(numbers or [f"free{segment}"])


def segment_note(aligned: AlignedNarration, segment: int, names: Sequence[str]) -> str:
    """What is said of a segment where it is pointed at: its time, text, and the step it is matched with or nearest to.

    `names` are those of the steps of h + c, such as `step 2`.
    """
    here = aligned.narration.segments[segment]
    place = when(here) or f"segment {segment + 1}"
    matches = [match for match in aligned.matches if match.segment == segment]
    if matches:
        with_steps = ", ".join(f"{names[match.step]} ({match.similarity:.2f})" for match in matches)
        return f"{place} “{here.text}”: matched with {with_steps}"
    nearest = aligned.closest_step(segment)
    near = f"; nearest is {names[nearest.step]} ({nearest.similarity:.2f})" if nearest else ""
    return f"{place} “{here.text}”: unmatched{near}"
