"""A reward in plain words: what was paid, on what evidence, and what was not."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from recipe.clock import clock
from recipe.reward.explanation.records import Explanation, StepEvidence
from recipe.types import Segment

_SMALL = 0.0005
"""Contributions below it read 0.000 and are told as none."""

_PAPER = {
    "A(h)": "how well the history alone aligns",
    "A(h + c)": "how well history and plan align",
    "rho": "the plan's progress over the history alone",
}
_GROUNDED = {
    "A(h)": "how much of the history the pool tells, step by step",
    "A(h + c)": "how much of history and plan the pool tells, step by step",
    "rho": "gain less background, for each step of the plan",
    "gain": "what the plan adds to the pool's narrations beyond the history",
    "background": "what the same plan adds to random narrations",
    "order": "how far the pool confirms the order of the steps, from −1 to 1",
    "price": "what each step must earn to pay for itself",
    "relevance": "how close the steps are to the goal and the history, without the corpus",
}
"""Parts of the two rewards, in words."""


class Part(NamedTuple):
    """One named part of a reward and what it says."""

    name: str
    value: float
    meaning: str


def parts(explanation: Explanation) -> list[Part]:
    """Every part of the reward, the total first."""
    reward = explanation.reward
    meanings = _PAPER if explanation.config.verifier == "paper" else _GROUNDED
    named = [
        Part("R", reward.total, "the reward"),
        Part("A(h)", reward.aligned_history, meanings["A(h)"]),
        Part("A(h + c)", reward.aligned_full, meanings["A(h + c)"]),
        Part("rho", reward.rho, meanings["rho"]),
    ]
    if reward.coverage is not None:
        named.append(Part("coverage", reward.coverage, "how far the corpus covers the prompt, whatever is planned"))
    return named + [Part(name, value, meanings.get(name, "")) for name, value in reward.parts.items()]


def in_words(explanation: Explanation) -> list[str]:
    """The reward in a few sentences: what it is, what the evidence is, which steps earned it and which did not."""
    return [_verdict(explanation), *_coverage(explanation), *_evidence(explanation), *_contributions(explanation)]


def when(segment: Segment) -> str:
    """A segment's time as a player shows it, empty where it has none.

    >>> when(Segment("stir", 62.5, 70.0)), when(Segment("stir", 3725.0, 3726.0)), when(Segment("stir"))
    ('1:02–1:10', '1:02:05–1:02:06', '')
    """
    if segment.start is None or segment.end is None:
        return ""
    return f"{clock(segment.start)}–{clock(segment.end)}"


def _verdict(explanation: Explanation) -> str:
    reward, config = explanation.reward, explanation.config
    if reward.abstained:
        return f"Reward {_number(reward.total)}, without the corpus: it covers this prompt too little to judge by."
    if not explanation.continuation:
        return f"Reward {_number(reward.total)}: the plan holds no steps."
    if config.verifier != "paper":
        return f"Reward {_number(reward.total)}{_contrast(reward.parts)}."
    if reward.gated:
        return (
            f"Penalty {_number(reward.total)}: the plan's progress over the history, rho = {_number(reward.rho)}, "
            f"stays below the threshold of {config.tau:g}."
        )
    threshold = f", above the threshold of {config.tau:g}" if config.gate else ""
    return (
        f"Reward {_number(reward.total)}, the alignment of history and plan with the best narration of the pool; "
        f"progress over the history is rho = {_number(reward.rho)}{threshold}."
    )


def _contrast(found: dict[str, float]) -> str:
    if not {"gain", "background"} <= found.keys():
        return ""
    return (
        f": the plan adds {_number(found['gain'])} to what narrations of this activity say, "
        f"and {_number(found['background'])} to random ones"
    )


def _coverage(explanation: Explanation) -> Iterator[str]:
    if explanation.reward.coverage is not None:
        yield f"The corpus covers this prompt at {explanation.reward.coverage:.2f} (coverage, whatever is planned)."


def _evidence(explanation: Explanation) -> Iterator[str]:
    if not explanation.narrations:
        yield "Nothing was aligned: there is no narration or no step to align."
        return
    steps, pool = explanation.plan_evidence, len(explanation.narrations)
    if not steps:
        return
    best = sum(step.index is not None for step in explanation.steps[len(explanation.history) :])
    found = [ground.similarity for step in steps for ground in step.grounds]
    mean = f", with a mean similarity of {_number(sum(found) / len(found), 2)}" if found else ""
    yield (
        f"The best narration matches {best} of {_count(len(steps), 'plan step')}; over the pool of "
        f"{_count(pool, 'narration')}, a plan step is matched in {100 * len(found) / (pool * len(steps)):.0f}%{mean}."
    )
    if nowhere := [step for step in steps if not step.matched_in]:
        yield f"Matched in no narration: {_quoted(nowhere)}."


def _contributions(explanation: Explanation) -> Iterator[str]:
    added = [(step.contribution or 0.0, number) for number, step in enumerate(explanation.plan_evidence, start=1)]
    most, least = max(added, default=(0.0, 0)), min(added, default=(0.0, 0))
    if most[0] >= _SMALL:
        closes = explanation.plan_evidence[most[1] - 1].gated_without and not explanation.reward.gated
        gate = "; the gate then closes" if closes else ""
        yield f"Leaving one step out, the reward falls most without {_named(explanation, *most)}{gate}."
    if least[0] <= -_SMALL:
        costs = sum(value <= -_SMALL for value, _ in added)
        yield (
            f"The plan would earn more without {costs} of its {_count(len(added), 'step')}, "
            f"most without {_named(explanation, *least)}."
        )


def _named(explanation: Explanation, added: float, number: int) -> str:
    sign = "+" if added > 0 else ""
    return f"step {number}, “{explanation.continuation[number - 1]}”, which adds {sign}{_number(added)}"


def _quoted(steps: Sequence[StepEvidence]) -> str:
    return ", ".join(f"“{text}”" for text in dict.fromkeys(step.text for step in steps))


def _number(value: float, digits: int = 3) -> str:
    """A number with a true minus sign."""
    return f"{value:.{digits}f}".replace("-", "−")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
