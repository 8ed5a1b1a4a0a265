"""Traces of plans: why each action was chosen, as JSON lines with one line an action; predictions and counts."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from recipe.artifacts import JsonObject
from recipe.errors import InputError
from recipe.planning.predictions import Prediction
from recipe.planning.vidassist.search import Candidate, PartialPlan
from recipe.rows import write_rows
from recipe.tables import read_rows
from recipe.text import format_plan


def predicted(example_id: str, plan: PartialPlan) -> Prediction:
    """The planned actions as steps; `text` is the same plan in the words of the proposals, the nearest of each."""
    candidates = [choice.candidate for choice in plan.choices]
    actions = tuple(candidate.action for candidate in candidates)
    return Prediction(example_id, actions, text=format_plan([candidate.nearest.text for candidate in candidates]))


def summarize(plans: Sequence[PartialPlan], horizon: int, assessed: bool = True) -> JsonObject:
    """Counts over the actions of plans; `assessed` says whether value functions were asked at all.

    `short` are plans with fewer actions than the horizon, because nothing more was proposed; `candidates` the different
    actions that there were to choose from; `lost` answers without an action; `unscored` chosen actions without a score;
    `untold` candidates without a score by value function; `chosen_from` actions by who proposed them.
    """
    choices = [choice for plan in plans for choice in plan.choices]
    without_score: Counter[str] = Counter()
    sources: Counter[str] = Counter()
    for choice in choices:
        for candidate in choice.candidates:
            without_score.update({name: int(score is None) for name, score in candidate.scores.items()})
        sources[" + ".join(dict.fromkeys(proposal.source for proposal in choice.candidate.proposals))] += 1
    return {
        "plans": len(plans),
        "actions": len(choices),
        "short": sum(len(plan.choices) < horizon for plan in plans),
        "candidates": sum(len(choice.candidates) for choice in choices),
        "lost": sum(len(choice.lost) for choice in choices),
        "unscored": sum(choice.candidate.total is None for choice in choices) if assessed else 0,
        "untold": dict(without_score),
        "chosen_from": dict(sorted(sources.items())),
    }


def count_sentences(counts: JsonObject) -> list[str]:
    """A sentence for everything that `summarize` counts as short or missing; empty where nothing is.

    >>> count_sentences({"short": 0, "lost": 1, "unscored": 2, "untold": {}})[0]
    '1 answer held no action'
    """
    reasons = {
        "short": ("plan is", "plans are", "shorter than the horizon: nothing more was proposed"),
        "lost": ("answer", "answers", "held no action"),
        "unscored": ("action was", "actions were", "chosen by order alone: no value function gave a score"),
    }
    sentences = [
        f"{counts[name]:,} {single if counts[name] == 1 else several} {reason}"
        for name, (single, several, reason) in reasons.items()
        if counts[name]
    ]
    return sentences + [
        f"{name}: no score for {count:,} of {counts['candidates']:,} candidates, left out of their mean"
        for name, count in counts["untold"].items()
        if count
    ]


@dataclass(frozen=True, slots=True)
class TracedProposal:
    """A proposal, and how it was mapped."""

    source: str
    text: str
    """The action in its own words."""
    raw: str
    """The whole answer."""
    cosine: float
    margin: float
    """The cosine minus that of the second best action."""
    logprob: float | None


@dataclass(frozen=True, slots=True)
class TracedCandidate:
    """An action that could have been next."""

    action: str
    chosen: bool
    total: float | None
    """Mean of the scores; null where there is none."""
    scores: dict[str, float | None]
    """By value function; null where it has none."""
    proposals: tuple[TracedProposal, ...]

    @classmethod
    def of(cls, candidate: Candidate, chosen: bool) -> "TracedCandidate":
        """The candidate as a trace keeps it."""
        proposals = tuple(
            TracedProposal(own.source, own.text, own.raw, match.similarity, match.margin, own.logprob)
            for own, match in zip(candidate.proposals, candidate.matches, strict=True)
        )
        return cls(candidate.action, chosen, candidate.total, dict(candidate.scores), proposals)


@dataclass(frozen=True, slots=True)
class TracedStep:
    """One action of a plan."""

    example_id: str
    step: int
    """From 1."""
    goal: str
    done: tuple[str, ...]
    """History and plan before it."""
    action: str
    candidates: tuple[TracedCandidate, ...]
    lost: tuple[str, ...] = ()
    """Answers without an action, each as its source and text."""


def trace_of(output: Path) -> Path:
    """The trace next to a file of predictions, unless another is named."""
    return output.with_name(f"{output.stem}.trace.jsonl")


def manifest_of(output: Path) -> Path:
    """The manifest next to a file of predictions."""
    return output.with_name(f"{output.name}.manifest.json")


def write_trace(path: Path, plans: Iterable[tuple[str, PartialPlan]]) -> int:
    """Write the trace of plans by example id, all or nothing; returns the number of actions."""
    rows = []
    for example_id, plan in plans:
        actions = [choice.candidate.action for choice in plan.choices]
        before = plan.state.done[: len(plan.state.done) - len(actions)]
        for index, choice in enumerate(plan.choices):
            rows.append(
                TracedStep(
                    example_id,
                    index + 1,
                    plan.state.goal,
                    (*before, *actions[:index]),
                    actions[index],
                    tuple(
                        TracedCandidate.of(own, place == choice.chosen) for place, own in enumerate(choice.candidates)
                    ),
                    tuple(f"{proposal.source}: {proposal.raw}" for proposal in choice.lost),
                )
            )
    return write_rows(path, rows)


def read_trace(path: Path, example_id: str) -> list[TracedStep]:
    """The actions of one example, in order. Raises InputError, with file and line, and where the example has none."""
    steps = [row for _, row in read_rows(path, TracedStep) if row.example_id == example_id]
    if not steps:
        raise InputError.at(path, f"no action of example {example_id!r} is in it", "check the id")
    return steps
