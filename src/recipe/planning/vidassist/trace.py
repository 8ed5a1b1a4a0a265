"""Traces of plans: why each action was chosen, as JSON lines with one line an action; predictions and counts."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from recipe.artifacts import JsonObject, read_jsonl, write_jsonl
from recipe.errors import InputError
from recipe.planning.predictions import Prediction
from recipe.planning.vidassist.search import Choice, Option, PartialPlan
from recipe.text import format_plan


def predicted(example_id: str, plan: PartialPlan) -> Prediction:
    """The planned actions as steps; `text` is the same plan in the words of the proposals, the nearest of each."""
    written = [_words(plan, place) for place in range(len(plan.choices))]
    actions = tuple(choice.option.candidate.action for choice in plan.choices)
    return Prediction(example_id, actions, text=format_plan(written))


def _words(plan: PartialPlan, place: int) -> str:
    candidate = plan.choices[place].option.candidate
    pairs = zip(candidate.proposals, candidate.mapped, strict=True)
    proposal, _ = max(pairs, key=lambda pair: pair[1].similarity)
    return proposal.text


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts over the actions of plans."""

    plans: int
    actions: int
    short: int
    """Plans with fewer actions than the horizon, because nothing more was proposed."""
    candidates: int
    """Different actions that there were to choose from."""
    lost: int
    """Answers without an action."""
    unscored: int
    """Actions that were chosen although no value function gave a score."""
    untold: dict[str, int] = field(default_factory=dict)
    """Candidates without a score, by value function."""
    chosen_from: dict[str, int] = field(default_factory=dict)
    """Actions by who proposed them: `original`, `recipe`, or `original + recipe`."""


def summarize(plans: Sequence[PartialPlan], horizon: int, assessed: bool = True) -> Summary:
    """The counts of the plans; `assessed` says whether value functions were asked at all."""
    choices = [choice for plan in plans for choice in plan.choices]
    untold: Counter[str] = Counter()
    for choice in choices:
        for option in choice.among.options:
            untold.update({name: int(score is None) for name, score in option.scores.items()})
    return Summary(
        plans=len(plans),
        actions=len(choices),
        short=sum(len(plan.choices) < horizon for plan in plans),
        candidates=sum(len(choice.among.options) for choice in choices),
        lost=sum(len(choice.among.lost) for choice in choices),
        unscored=sum(choice.option.total is None for choice in choices) if assessed else 0,
        untold=dict(untold),
        chosen_from=dict(sorted(Counter(map(_sources, choices)).items())),
    )


def count_sentences(counts: JsonObject) -> list[str]:
    """A sentence for everything that a `Summary`, as JSON, counts as short or missing; empty where nothing is."""
    reasons = {
        "short": "plans are shorter than the horizon: nothing more was proposed",
        "lost": "answers held no action",
        "unscored": "actions were chosen by order alone: no value function gave a score",
    }
    sentences = [f"{counts[name]:,} {reason}" for name, reason in reasons.items() if counts[name]]
    return sentences + [
        f"{name}: no score for {count:,} of {counts['candidates']:,} candidates, left out of their mean"
        for name, count in counts["untold"].items()
        if count
    ]


def _sources(choice: Choice) -> str:
    return " + ".join(dict.fromkeys(proposal.source for proposal in choice.option.candidate.proposals))


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TracedProposal(_Row):
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


class TracedCandidate(_Row):
    """An action that could have been next."""

    action: str
    chosen: bool
    total: float | None
    """Weighted mean of the scores; null where there is none."""
    scores: dict[str, float | None]
    """By value function; null where it has none."""
    proposals: tuple[TracedProposal, ...]


class TracedStep(_Row):
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
    """The trace beside a file of predictions, unless another is named."""
    return output.with_name(f"{output.stem}.trace.jsonl")


def manifest_of(output: Path) -> Path:
    """The manifest beside a file of predictions."""
    return output.with_name(f"{output.name}.manifest.json")


def write_trace(path: Path, plans: Iterable[tuple[str, PartialPlan]]) -> int:
    """Write the trace of plans by example id, all or nothing; returns the number of actions."""
    return write_jsonl(path, (row.model_dump() for example_id, plan in plans for row in traced(example_id, plan)))


def read_trace(path: Path, example_id: str) -> list[TracedStep]:
    """The actions of one example, in order. Raises InputError, with file and line, and where the example has none."""
    found = [_step(path, line, row) for line, row in read_jsonl(path) if row.get("example_id") == example_id]
    if not found:
        raise InputError.at(path, f"no action of example {example_id!r} is in it", "check the id")
    return found


def traced(example_id: str, plan: PartialPlan) -> Iterator[TracedStep]:
    """The actions of a plan."""
    actions = [choice.option.candidate.action for choice in plan.choices]
    before = plan.state.done[: len(plan.state.done) - len(actions)]
    for place, choice in enumerate(plan.choices):
        yield TracedStep(
            example_id=example_id,
            step=place + 1,
            goal=plan.state.goal,
            done=(*before, *actions[:place]),
            action=actions[place],
            candidates=_candidates(choice),
            lost=tuple(f"{one.source}: {one.raw}" for one in choice.among.lost),
        )


def _candidates(choice: Choice) -> tuple[TracedCandidate, ...]:
    return tuple(_candidate(option, place == choice.chosen) for place, option in enumerate(choice.among.options))


def _candidate(option: Option, chosen: bool) -> TracedCandidate:
    pairs = zip(option.candidate.proposals, option.candidate.mapped, strict=True)
    return TracedCandidate(
        action=option.candidate.action,
        chosen=chosen,
        total=option.total,
        scores=option.scores,
        proposals=tuple(
            TracedProposal(
                source=one.source,
                text=one.text,
                raw=one.raw,
                cosine=mapped.similarity,
                margin=mapped.margin,
                logprob=one.logprob,
            )
            for one, mapped in pairs
        ),
    )


def _step(path: Path, line: int, row: dict[str, object]) -> TracedStep:
    try:
        return TracedStep.model_validate(row)
    except ValidationError as error:
        [first, *_] = error.errors(include_url=False)
        field = ".".join(map(str, first["loc"])) or None
        remedy = "give a trace that `recipe vpa plan` wrote"
        raise InputError.at(path, first["msg"].lower(), remedy, line=line, field=field) from None
