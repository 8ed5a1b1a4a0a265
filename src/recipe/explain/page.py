"""An explanation as one self-contained HTML page, with a picture of each alignment.

A picture has the steps at the left, the narration along a time axis at the right, and links between them. Heights are
in units that the page scales; widths are percent of the column between steps and texts, so that one picture fits a
screen and a phone. The page's only script is pinned by its hash.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from recipe.artifacts import write_text
from recipe.clock import clock
from recipe.errors import MissingExtra
from recipe.explain.explain import in_words, parts, when, whole_sentence
from recipe.explain.records import AlignedNarration, Explanation, Links
from recipe.report.elements import Cell, NamedValues, Section, Table, headings, row
from recipe.report.html import page_environment, template
from recipe.report.numbers import format_number
from recipe.report.page import render

try:
    from markupsafe import Markup
except ModuleNotFoundError as error:
    raise MissingExtra("an explanation's page", "report") from error

STEP, TEXT, LINE = 52.0, 54.0, 21.0
"""Heights of a step, of the text of a matched segment, and of the one line of an unmatched one."""
AXIS, WIDTH = 70.0, 7.0
"""Left edge and width of the time axis, in percent of the column."""
_LOWEST, _THINNEST = 440.0, 3.0
# Seconds between two ticks of the axis.
_TICKS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200)
# Numbers of a self-trained net that the page names, of 49.
_FEATURES = 12
# Segments named for each step, of all that narrations about the task have for it.
_GROUNDS = 3


def write_page(explanation: Explanation, target: Path | str, links: Links, narrations: int) -> None:
    """Write the page with pictures of the `narrations` best narrations, all or nothing."""
    write_text(target, render_page(explanation, links, narrations))


def render_page(explanation: Explanation, links: Links, narrations: int) -> str:
    """The whole page. The same explanation gives the same page."""
    named = parts(explanation)
    largest = max(1.0, *(abs(value) for _, value, _ in named))
    config = explanation.config
    settings = config.model_dump(exclude={"grounded", "frames"})
    if not config.aligns:
        settings = {"verifier": config.verifier}
    elif config.verifier == "grounded":
        settings = {"verifier": config.verifier} | config.grounded.model_dump()
    values = {
        "explanation": explanation,
        "parts": [(*part, round(abs(part[1]) / largest, 4)) for part in named],
        "rows": list(step_rows(explanation, links)),
        "panels": [panel(explanation, aligned, links) for aligned in explanation.narrations[:narrations]],
        "others": [(aligned, links.of(aligned.narration)) for aligned in explanation.narrations[narrations:]],
    }
    macros = vars(page_environment("recipe.explain").get_template("explanation.html.jinja").make_module(values))
    done, planned = len(explanation.history), len(explanation.continuation)
    pool = f"{done} done and {planned} planned steps · pool of {len(explanation.narrations)}"
    features = []
    if explanation.attribution:
        rows = tuple(row(words, Cell(added, 3, signed=True)) for words, added in explanation.attribution[:_FEATURES])
        about = "Its largest shares, compared with an average plan: distance from the mean times the slope of the net."
        table = Table("", "number of the plan", headings("adds"), rows, notes=(about,))
        features = [Section("net", "What moved the net", "Net", blocks=(table,))]
    pairs = NamedValues(tuple((name, str(value)) for name, value in settings.items()))
    return render(
        f"{explanation.goal}: why this plan earns {format_number(explanation.reward.total, 3)}",
        f"{config.verifier} verifier · {pool}",
        in_words(explanation),
        [
            Section("steps", "What each step adds", "Steps", blocks=(macros["steps"](),)),
            Section("alignment", "How it aligns", "Alignment", blocks=(macros["alignments"](),)),
            *features,
            Section("settings", "The verifier", "Verifier", blocks=(pairs,)),
        ],
        lead=(macros["reward"](),),
        style=template("recipe.explain", "explanation.css") + template("recipe.explain", "alignment.css"),
        script=template("recipe.explain", "alignment.js") + template("recipe.explain", "explanation.js"),
    )


def step_rows(explanation: Explanation, links: Links) -> Iterator[dict[str, Any]]:
    """Every step of h + c with what the pool says of it, as the templates read it; `share` is its contribution against
    the largest one, from -1 to 1, `number` counts in the history or in the plan."""
    # Of a plan whose steps add nothing the bars are empty, and not divided by 0.
    largest = max((abs(step.contribution or 0.0) for step in explanation.evidence), default=0.0) or 1.0
    narrations = {own.index: own.narration for own in explanation.narrations if own.index in explanation.about}
    for name, step in zip(_names(explanation), explanation.evidence, strict=True):
        similarity = {ground.narration: ground.similarity for ground in step.grounds}
        # The best quotes, each text once; those that say the opposite last.
        strongest: dict[str, dict[str, Any]] = {}
        for ground in sorted(step.grounds, key=lambda ground: ground.opposite):
            narration = narrations[ground.narration]
            segment = whole_sentence(narration.segments, ground.segment)
            if len(strongest) < _GROUNDS and segment.text not in strongest:
                strongest[segment.text] = {
                    "text": segment.text,
                    "opposite": ground.opposite,
                    "place": when(segment) or f"segment {ground.segment + 1}",
                    "similarity": ground.similarity,
                    "link": links.of(narration, segment),
                }
        # One cell a narration, the darker the more similar, none where the step is unmatched.
        cells = (
            f'<rect x="{i}.08" width=".84" height="1" style="--s:{min(max(similarity[index], 0.0), 1.0):g}"/>'
            for i, index in enumerate(narrations)
            if index in similarity
        )
        strip = (
            f'<svg class="pool" viewBox="0 0 {max(len(narrations), 1)} 1" preserveAspectRatio="none" '
            f'aria-hidden="true">{"".join(cells)}</svg>'
        )
        yield {
            "name": name,
            "number": int(name.split()[-1]),
            "evidence": step,
            "share": (step.contribution or 0.0) / largest,
            "strip": Markup(strip),
            "grounds": list(strongest.values()),
        }


def panel(explanation: Explanation, aligned: AlignedNarration, links: Links) -> dict[str, Any]:
    """One narration of the pool with its picture, as the templates read it.

    Each mark is next to the picture at the height `y`; `links` are the numbers of its links in the picture, `note` is
    the text that the page shows when it is pointed at.
    """
    history, names = len(explanation.history), _names(explanation)
    picture, segments = Picture.of(aligned, history), aligned.narration.segments
    notes = [segment_note(aligned, k, names) for k in range(len(segments))]
    addresses = [links.of(aligned.narration, segment) or "" for segment in segments]
    kinds = _kinds(aligned, history)
    marks = [
        {
            "y": picture.texts.get(k, 0.0),
            "text": segment.text,
            "place": when(segment) or f"segment {k + 1}",
            "link": addresses[k] or None,
            "links": _link_numbers(aligned, k),
            "kind": kinds.get(k, "free"),
            "similarity": max((match.similarity for match in aligned.matches if match.segment == k), default=None),
            "note": notes[k],
        }
        for k, segment in enumerate(segments)
    ]
    steps = []
    for i, (y, ground) in enumerate(zip(picture.steps, explanation.grounded(aligned), strict=True)):
        note = f"{names[i]} “{ground.text}”: unmatched"
        if ground.segment is not None and ground.index is not None and ground.similarity is not None:
            place = when(ground.segment) or f"segment {ground.index + 1}"
            note = f"{names[i]} “{ground.text}”: matched with {place} “{ground.segment.text}” ({ground.similarity:.2f})"
        elif (nearest := aligned.closest_segment(i)) is not None:
            note += f"; nearest is “{segments[nearest.segment].text}” ({nearest.similarity:.2f})"
        links_of_step = " ".join(str(number) for number, match in enumerate(aligned.matches) if match.step == i)
        steps.append({"y": y, "ground": ground, "links": links_of_step, "note": note})
    return {
        "aligned": aligned,
        "link": links.of(aligned.narration),
        "picture": picture,
        "svg": Markup(picture.draw(aligned, history, notes, addresses)),
        "strip": Markup(barcode(aligned, history)),
        "steps": steps,
        "texts": [marks[k] for k in sorted(picture.texts)],
        "transcript": marks,
    }


def _names(explanation: Explanation) -> list[str]:
    done = [f"history step {number}" for number in range(1, len(explanation.history) + 1)]
    return done + [f"step {number}" for number in range(1, len(explanation.continuation) + 1)]


def segment_note(aligned: AlignedNarration, segment: int, names: Sequence[str]) -> str:
    """What is said of a segment where it is pointed at: its time, text, and the step it is matched with or nearest to.

    `names` are those of the steps of h + c, such as `step 2`.
    """
    here = aligned.narration.segments[segment]
    position = when(here) or f"segment {segment + 1}"
    if matches := [match for match in aligned.matches if match.segment == segment]:
        with_steps = ", ".join(f"{names[match.step]} ({match.similarity:.2f})" for match in matches)
        return f"{position} “{here.text}”: matched with {with_steps}"
    nearest = aligned.closest_step(segment)
    near = f"; nearest is {names[nearest.step]} ({nearest.similarity:.2f})" if nearest else ""
    return f"{position} “{here.text}”: unmatched{near}"


class _Span(NamedTuple):
    """Where something lies from top to bottom."""

    top: float
    bottom: float

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2


@dataclass(frozen=True, slots=True)
class Picture:
    """The layout of one alignment, in units from the top."""

    height: float
    steps: tuple[float, ...]
    """The middle of each step of h + c."""
    divide: float | None
    """Between the last step of h and the first of c; None without a history."""
    segments: tuple[_Span, ...]
    """Each segment on the axis: its time, or its turn where there are no times."""
    history_end: float | None
    """On the axis, the end of the last segment that the history is matched with."""
    texts: dict[int, float]
    """Middle of the text of each segment with text next to the axis: all matched ones, others where there is room."""
    ticks: tuple[tuple[float, str], ...]
    """Heights on the axis, each with its time."""

    @classmethod
    def of(cls, aligned: AlignedNarration, history: int) -> "Picture":
        """Lay out one alignment whose first `history` steps are those of h."""
        steps, segments = len(aligned.similarities), aligned.narration.segments
        matched = sorted({match.segment for match in aligned.matches})
        # Room for each step and each matched text; a long transcript alone gets no more than _LOWEST.
        height = max(STEP * steps, TEXT * len(matched), min(LINE * len(segments), _LOWEST))
        spans = _spans(aligned, height)
        end = aligned.history_end(history)
        # Matched segments have their texts first, as near to them as they fit; others where room is left.
        texts = dict(zip(matched, keep_apart([spans[k].middle for k in matched], TEXT, height), strict=True))
        taken = [_Span(y - TEXT / 2, y + TEXT / 2) for y in texts.values()]
        for k, span in enumerate(spans):
            y = min(max(span.middle, LINE / 2), height - LINE / 2)
            line = _Span(y - LINE / 2, y + LINE / 2)
            if k not in texts and all(line.bottom <= other.top or line.top >= other.bottom for other in taken):
                texts[k] = y
                taken.append(line)
        ticks = []
        if (times := _times(aligned)) is not None:
            first, last = times
            # Labels are 60 units apart at least, so that none overlaps another.
            every = next((step for step in _TICKS if (last - first) / step <= height / 60), _TICKS[-1])
            for second in range(-int(-first // every) * every, int(last) + 1, every):
                ticks.append(((second - first) * height / (last - first), clock(second)))
        return cls(
            height=height,
            steps=tuple((i + 0.5) * height / steps for i in range(steps)),
            divide=history * height / steps if history else None,
            segments=spans,
            history_end=None if end is None else spans[end].bottom,
            texts=texts,
            ticks=tuple(ticks),
        )

    def draw(self, aligned: AlignedNarration, history: int, notes: Sequence[str], links: Sequence[str]) -> str:
        """The column between steps and texts as an `<svg>` element: links, leaders and the axis.

        `notes` and `links` are a sentence and an address, which may be empty, for each segment.
        """
        elements = []
        if self.divide is not None and self.history_end is not None:
            curve = _curve(self.divide, self.history_end)
            elements.append(f'<path class="frontier" d="{curve} H{AXIS + WIDTH + 4:g}"/>')
        for k, text in self.texts.items():
            start, middle = AXIS + WIDTH + 1, self.segments[k].middle
            elements.append(f'<path class="leader" d="M{start:g} {middle:.2f} L98 {text:.2f}"/>')
        for number, match in enumerate(aligned.matches):
            curve = _curve(self.steps[match.step], self.segments[match.segment].middle)
            kind = "done" if match.step < history else "plan"
            elements.append(
                f'<path class="link {kind}" data-links="{number}" data-step="{match.step}" '
                f'data-segment="{match.segment}" style="--s:{min(max(match.similarity, 0.0), 1.0):g}" d="{curve}"/>'
            )
        kinds = _kinds(aligned, history)
        for k, span in enumerate(self.segments):
            bar = (
                f'<rect class="bar {kinds.get(k, "free")}" x="{AXIS:g}" width="{WIDTH:g}" y="{span.top:.2f}" '
                f'height="{span.bottom - span.top:.2f}"/>'
            )
            address = f' href="{escape(links[k])}" target="_blank" rel="noopener noreferrer"' if links[k] else ""
            name, role = ("a", "") if links[k] else ("g", ' role="img"')
            note = escape(notes[k])
            tied = f'data-links="{_link_numbers(aligned, k)}" data-note="{note}" aria-label="{note}"'
            # One stop of the Tab key for all segments; arrow keys move between them.
            focus = f'class="segment" tabindex="{-1 if k else 0}"'
            elements.append(f"<{name}{address}{role} {focus} {tied}><title>{note}</title>{bar}</{name}>")
        return (
            f'<svg class="links" viewBox="0 0 100 {self.height:g}" preserveAspectRatio="none" role="group" '
            f'aria-label="Segments along time; arrow keys move between them">{"".join(elements)}</svg>'
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


def _spans(aligned: AlignedNarration, height: float) -> tuple[_Span, ...]:
    segments = aligned.narration.segments
    if (times := _times(aligned)) is None:
        slot = height / max(len(segments), 1)
        return tuple(_Span((k + 0.06) * slot, (k + 0.94) * slot) for k in range(len(segments)))
    first, last = times
    scale = height / (last - first)
    # A segment of no length would not be seen, and could not be pointed at.
    thin = min(_THINNEST, height)
    spans = []
    for segment in segments:
        top = min(((segment.start or 0.0) - first) * scale, height - thin)
        spans.append(_Span(top, min(max(((segment.end or 0.0) - first) * scale, top + thin), height)))
    return tuple(spans)


def _times(aligned: AlignedNarration) -> tuple[float, float] | None:
    """When the first segment starts and the last one ends; None where that is unknown, or within a millisecond."""
    starts = [segment.start for segment in aligned.narration.segments if segment.start is not None]
    ends = [segment.end for segment in aligned.narration.segments if segment.end is not None]
    segments = len(aligned.narration.segments)
    if not segments or len(starts) < segments or len(ends) < segments or max(ends) - min(starts) < 0.001:
        return None
    return min(starts), max(ends)


def keep_apart(wanted: Sequence[float], size: float, height: float) -> list[float]:
    """Middles nearest to those wanted, in squares, that keep `size` apart in [0, height]; they must fit there.

    Isotonic regression of the wanted middles less i * size, by pooling neighbours that are too close.
    """
    blocks: list[tuple[float, int]] = []
    for i, middle in enumerate(wanted):
        mean, count = middle - i * size, 1
        # Pool adjacent violators (Ayer et al., 1955).
        while blocks and blocks[-1][0] > mean:
            before, members = blocks.pop()
            mean, count = (before * members + mean * count) / (members + count), members + count
        blocks.append((mean, count))
    # Shifted back by i * size, neighbours of one block touch, and its mean is the mean of what its members want.
    offsets = [mean for mean, count in blocks for _ in range(count)]
    lowest, highest = size / 2, height - size / 2 - (len(wanted) - 1) * size
    return [min(max(offset, lowest), max(highest, lowest)) + i * size for i, offset in enumerate(offsets)]


def _kinds(aligned: AlignedNarration, history: int) -> dict[int, str]:
    """Whose segment each matched one is: the history's, or the plan's."""
    return {match.segment: "done" if match.step < history else "plan" for match in aligned.matches}


def _curve(left: float, right: float) -> str:
    return f"M0 {left:.2f} C{AXIS / 2:g} {left:.2f} {AXIS / 2:g} {right:.2f} {AXIS:g} {right:.2f}"


def _link_numbers(aligned: AlignedNarration, segment: int) -> str:
    """The key that a segment's bar, text and links share: the numbers of its matches, or a key without a match."""
    numbers = [str(i) for i, match in enumerate(aligned.matches) if match.segment == segment]
    return " ".join(numbers or [f"free{segment}"])
