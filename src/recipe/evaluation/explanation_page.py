"""An explanation as one HTML page that needs nothing but itself; its only script is pinned by its hash."""

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from recipe.artifacts import write_text
from recipe.errors import MissingExtra
from recipe.evaluation.alignment_picture import Picture, barcode, draw, link_numbers, place, pool_strip, segment_note
from recipe.evaluation.formats import format_number
from recipe.reward.explanation.links import Links
from recipe.reward.explanation.records import AlignedNarration, Explanation, GroundedStep, StepEvidence
from recipe.reward.explanation.words import Part, in_words, parts, when
from recipe.types import Narration

try:
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup
except ModuleNotFoundError as error:
    raise MissingExtra("an explanation's page", "report") from error

_GROUNDS = 3
"""Segments named for each step, of all that the pool has for it."""


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step of h + c with what the pool says of it, ready to be shown."""

    name: str
    number: int
    """In the history or in the plan, from 1."""
    evidence: StepEvidence
    share: float
    """Its contribution against the largest one, from -1 to 1."""
    strip: Markup
    grounds: tuple["GroundRow", ...]


@dataclass(frozen=True, slots=True)
class GroundRow:
    """A segment that a step is matched with."""

    text: str
    place: str
    similarity: float
    link: str | None


@dataclass(frozen=True, slots=True)
class StepMark:
    """A step beside the picture: where it stands, and what is said where it is pointed at."""

    y: float
    ground: GroundedStep
    links: str
    """The numbers of its links in the picture."""
    note: str


@dataclass(frozen=True, slots=True)
class TextMark:
    """A segment's text beside the axis."""

    y: float
    text: str
    place: str
    link: str | None
    links: str
    kind: str
    """`done`, `plan`, or `free` where it is unmatched."""
    similarity: float | None
    note: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One narration of the pool with its picture."""

    aligned: AlignedNarration
    link: str | None
    picture: Picture
    svg: Markup
    strip: Markup
    steps: tuple[StepMark, ...]
    texts: tuple[TextMark, ...]
    transcript: tuple[TextMark, ...]


def write_page(explanation: Explanation, target: Path, links: Links, narrations: int) -> None:
    """Write the page with pictures of the `narrations` best narrations, all or nothing."""
    write_text(target, render_page(explanation, links, narrations))


def render_page(explanation: Explanation, links: Links, narrations: int) -> str:
    """The whole page. The same explanation gives the same page."""
    script = page_template("alignment.js") + page_template("explanation.js")
    return (
        page_environment()
        .get_template("explanation.html.jinja")
        .render(
            explanation=explanation,
            sentences=in_words(explanation),
            parts=_shown_parts(explanation),
            rows=list(step_rows(explanation, links)),
            panels=[panel(explanation, aligned, links) for aligned in explanation.narrations[:narrations]],
            others=[(aligned, links.of(aligned.narration)) for aligned in explanation.narrations[narrations:]],
            style=Markup(page_template("explanation.css") + page_template("alignment.css")),
            script=Markup(script),
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            settings=_settings(explanation),
        )
    )


def page_environment() -> Environment:
    """What renders the pages with pictures of alignments: templates of this room, texts escaped."""
    environment = Environment(
        loader=FunctionLoader(page_template),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": format_number, "signed": _signed}
    return environment


def page_template(name: str) -> str:
    """A file of the templates."""
    return files("recipe.evaluation").joinpath("templates", name).read_text(encoding="utf-8")


def _shown_parts(explanation: Explanation) -> list[tuple[Part, float]]:
    """The parts with the length of each one's bar, all on one scale that reaches 1 or the largest of them."""
    found = parts(explanation)
    largest = max(1.0, *(abs(part.value) for part in found))
    return [(part, round(abs(part.value) / largest, 4)) for part in found]


def _settings(explanation: Explanation) -> list[tuple[str, object]]:
    config = explanation.config
    if config.verifier == "paper":
        return [(name, value) for name, value in config.model_dump(exclude={"grounded"}).items()]
    return [("verifier", config.verifier), *config.grounded.model_dump().items()]


def _signed(value: float) -> str:
    """A contribution with its sign; none before a zero."""
    shown = format_number(value, 3)
    return shown if value < 0 or not shown.strip("0.") else f"+{shown}"


def _names(explanation: Explanation) -> list[str]:
    done = [f"history step {number}" for number in range(1, len(explanation.history) + 1)]
    return done + [f"step {number}" for number in range(1, len(explanation.continuation) + 1)]


def step_rows(explanation: Explanation, links: Links) -> Iterator[StepRow]:
    """Every step with what the pool says of it."""
    largest = max((abs(step.contribution or 0.0) for step in explanation.evidence), default=0.0) or 1.0
    narrations = {aligned.index: aligned.narration for aligned in explanation.narrations}
    for name, step in zip(_names(explanation), explanation.evidence, strict=True):
        found = {ground.narration: ground.similarity for ground in step.grounds}
        strip = pool_strip([found.get(index) for index in narrations])
        grounds = tuple(_strongest(step, narrations, links))
        number = int(name.split()[-1])
        yield StepRow(name, number, step, (step.contribution or 0.0) / largest, Markup(strip), grounds)


def _strongest(step: StepEvidence, narrations: dict[int, Narration], links: Links) -> Iterator[GroundRow]:
    """The most similar segments of a step, each text once."""
    said = set[str]()
    for ground in step.grounds:
        narration = narrations[ground.narration]
        segment = narration.segments[ground.segment]
        if len(said) < _GROUNDS and segment.text not in said:
            said.add(segment.text)
            place = when(segment) or f"segment {ground.segment + 1}"
            yield GroundRow(segment.text, place, ground.similarity, links.of(narration, segment))


def panel(explanation: Explanation, aligned: AlignedNarration, links: Links) -> Panel:
    """One narration of the pool with its picture."""
    history, names = len(explanation.history), _names(explanation)
    picture, segments = place(aligned, history), aligned.narration.segments
    notes = [segment_note(aligned, k, names) for k in range(len(segments))]
    addresses = [links.of(aligned.narration, segment) or "" for segment in segments]
    marks = [_text_mark(aligned, picture, k, history, addresses[k], notes[k]) for k in range(len(segments))]
    return Panel(
        aligned=aligned,
        link=links.of(aligned.narration),
        picture=picture,
        svg=Markup(draw(picture, aligned, history, notes, addresses)),
        strip=Markup(barcode(aligned, history)),
        steps=tuple(_step_marks(explanation, aligned, picture, names)),
        texts=tuple(marks[k] for k in sorted(picture.texts)),
        transcript=tuple(marks),
    )


def _text_mark(
    aligned: AlignedNarration, picture: Picture, segment: int, history: int, address: str, note: str
) -> TextMark:
    here = aligned.narration.segments[segment]
    matches = [(number, match) for number, match in enumerate(aligned.matches) if match.segment == segment]
    return TextMark(
        y=picture.texts.get(segment, 0.0),
        text=here.text,
        place=when(here) or f"segment {segment + 1}",
        link=address or None,
        links=link_numbers(aligned, segment),
        kind=("done" if matches[0][1].step < history else "plan") if matches else "free",
        similarity=max((match.similarity for _, match in matches), default=None),
        note=note,
    )


def _step_marks(
    explanation: Explanation, aligned: AlignedNarration, picture: Picture, names: list[str]
) -> Iterator[StepMark]:
    for i, (y, ground) in enumerate(zip(picture.steps, explanation.grounded(aligned), strict=True)):
        numbers = " ".join(str(number) for number, match in enumerate(aligned.matches) if match.step == i)
        yield StepMark(y, ground, numbers, _step_note(names[i], ground, aligned, i))


def _step_note(name: str, ground: GroundedStep, aligned: AlignedNarration, step: int) -> str:
    here = f"{name} “{ground.text}”"
    if ground.segment is None or ground.index is None or ground.similarity is None:
        nearest = aligned.closest_segment(step)
        if nearest is None:
            return f"{here}: unmatched"
        text = aligned.narration.segments[nearest.segment].text
        return f"{here}: unmatched; nearest is “{text}” ({nearest.similarity:.2f})"
    place = when(ground.segment) or f"segment {ground.index + 1}"
    return f"{here}: matched with {place} “{ground.segment.text}” ({ground.similarity:.2f})"
