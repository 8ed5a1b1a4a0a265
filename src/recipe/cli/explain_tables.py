"""An explanation on the terminal: sentences, parts, steps and the narrations of the pool."""

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from recipe.cli.console import out
from recipe.cli.reward_options import after
from recipe.reward.explanation.links import Links
from recipe.reward.explanation.records import AlignedNarration, Explanation, GroundedStep, StepEvidence
from recipe.reward.explanation.words import in_words, parts, when

_BAR = 8
"""Characters of the longest bar."""


def show(explanation: Explanation, links: Links, narrations: int) -> None:
    """Print an explanation with `narrations` of its narrations."""
    _line(f"{explanation.goal}, {after(explanation.history)}", "bold")
    for sentence in in_words(explanation):
        _line(sentence)
    _show_parts(explanation)
    _show_steps(explanation)
    if explanation.narrations:
        _show_narrations(explanation, links, narrations)


def _line(text: str, style: str = "") -> None:
    out.print(text, style=style, markup=False, highlight=False)


def _show_parts(explanation: Explanation) -> None:
    table = Table(box=None, padding=(0, 1), show_header=False)
    for part in parts(explanation):
        table.add_row(part.name, f"{part.value:.3f}", Text(part.meaning, "dim"))
    out.print()
    out.print(table)


def _show_steps(explanation: Explanation) -> None:
    """One row a step: what it adds, how often the pool matches it, and its segment in the best narration."""
    best = explanation.best
    where = f"in {escape(best.narration.video_id)}" if best else "segment"
    table = Table("", "step", "adds", "", "pool", "sim.", "time", where, box=None, padding=(0, 1))
    grounded = explanation.steps or (None,) * len(explanation.evidence)
    longest = max((abs(step.contribution or 0) for step in explanation.evidence), default=0)
    history = len(explanation.history)
    for number, (step, ground) in enumerate(zip(explanation.evidence, grounded, strict=True), start=1):
        name = f"h{number}" if step.in_history else str(number - history)
        table.add_row(name, Text(step.text), *_added(step, longest), *_matched(step, ground, explanation))
        if number == history:
            table.add_row("", Text("the history ends here", "dim italic"), end_section=True)
    out.print()
    out.print(table)
    if not explanation.continuation:
        _line("(the plan holds no steps)", "dim")


def _added(step: StepEvidence, longest: float) -> tuple[str, Text]:
    if step.contribution is None:
        return "", Text()
    length = round(_BAR * abs(step.contribution) / longest) if longest else 0
    return f"{step.contribution:+.3f}", Text("━" * length, "green" if step.contribution > 0 else "red")


def _matched(step: StepEvidence, ground: GroundedStep | None, explanation: Explanation) -> tuple[str | Text, ...]:
    pool = f"{step.matched_in}/{len(explanation.narrations)}"
    if ground is None or ground.segment is None or ground.similarity is None:
        return pool, "", "", Text("unmatched", "dim")
    return pool, f"{ground.similarity:.2f}", when(ground.segment) or "untimed", Text(ground.segment.text)


def _show_narrations(explanation: Explanation, links: Links, count: int) -> None:
    shown = explanation.narrations[:count]
    out.print()
    _line(f"Narrations of the pool, {len(shown)} of {len(explanation.narrations)}, best first", "bold")
    for rank, aligned in enumerate(shown, start=1):
        narration = aligned.narration
        _line(f"{rank}. {aligned.score:.3f}  {narration.title or 'without a title'} ({narration.video_id})")
        _line(f"   {_told(explanation, aligned)}", "dim")
        if address := links.of(narration):
            out.print(f"   {address}", markup=False, highlight=False, soft_wrap=True)


def _told(explanation: Explanation, aligned: AlignedNarration) -> str:
    """What of a narration is matched, and where the history ends in it."""
    steps, segments = len(explanation.evidence), aligned.narration.segments
    text = (
        f"matches {steps - len(aligned.unmatched_steps)} of {steps} steps, leaves {len(aligned.unmatched_segments)} "
        f"of {len(segments)} segments unmatched, retrieved with {aligned.retrieved:.3f}"
    )
    end = aligned.history_end(len(explanation.history))
    return text if end is None else f"{text}; the history ends at {when(segments[end]) or f'segment {end + 1}'}"
