"""Why each action of a plan was chosen, as JSON lines beside the predictions: one line for each action."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from recipe.artifacts import read_jsonl, write_jsonl
from recipe.errors import InputError
from recipe.planning.vidassist.search import Choice, Option, PartialPlan


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TracedProposal(_Row):
    """What a proposer wrote, and how it was mapped."""

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
    """Weighted mean of the scores that were told."""
    scores: dict[str, float | None]
    """By value function; null where it could not tell."""
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
