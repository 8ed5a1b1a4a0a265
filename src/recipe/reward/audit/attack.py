"""A greedy attack: a plan grown by whichever step raises the reward most, from steps good and bad.

It shows what a policy is drawn to. The plan starts empty, may use a step again, and grows to three times the true
length at most, or until two steps running brought nothing; its best beginning is the attack. Of steps that raise the
reward alike the true one is taken.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args

from recipe.errors import ComputeError, CorpusError
from recipe.progress import SILENT, Progress
from recipe.reward.adapters.batch import Scorer
from recipe.reward.audit.corruptions import AuditPrompt
from recipe.reward.audit.scoring import Audited, checked_rewards
from recipe.reward.prompts import Steps

Kind = Literal["true", "other goal", "filler", "paraphrased history", "history"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Where the steps of an attack come from, in the order in which equal rewards are decided."""

LONGEST = 3
"""Length of a plan at most, in true lengths."""
PATIENCE = 2
"""Steps that may bring nothing before the attack gives up: a gate makes rewards flat in places."""
_FILLERS = 8


class Attacked(NamedTuple):
    """The plan that the attack ends with."""

    prompt: AuditPrompt
    steps: Steps
    kinds: tuple[Kind, ...]
    """Where each step comes from."""
    reward: float
    true_reward: float
    """Of the true continuation."""

    @property
    def repeated(self) -> int:
        """Steps that the plan already holds."""
        return len(self.steps) - len(set(self.steps))


def attack_prompts(
    audited: Audited, prompts: Sequence[AuditPrompt], count: int, progress: Progress = SILENT
) -> list[Attacked]:
    """The attack on `count` prompts, spread evenly; those that cannot be computed are left out."""
    chosen = spread(prompts, count)
    found = []
    with progress.task(f"Attack {audited.name}", len(chosen)) as advance:
        for prompt in chosen:
            try:
                found.append(attack(audited.scorer, prompt))
            except (ComputeError, CorpusError):
                continue
            finally:
                advance(1)
    return found


def spread(prompts: Sequence[AuditPrompt], count: int) -> list[AuditPrompt]:
    """`count` of the prompts at even distances, all where there are fewer."""
    count = min(count, len(prompts))
    return [prompts[i * len(prompts) // count] for i in range(count)]


def attack(scorer: Scorer, prompt: AuditPrompt) -> Attacked:
    """The greedy optimum for one prompt. Raises ComputeError, CorpusError."""
    vocabulary = mixed_vocabulary(prompt)
    start, truth = checked_rewards(scorer, prompt.history, [(), prompt.true], prompt.goal)
    plan: Steps = ()
    best, highest = plan, start.total
    while len(plan) < min(LONGEST * len(prompt.true), len(best) + PATIENCE + 1):
        grown = [(*plan, step) for step in vocabulary]
        totals = [reward.total for reward in checked_rewards(scorer, prompt.history, grown, prompt.goal)]
        plan = grown[totals.index(max(totals))]
        if max(totals) > highest:
            best, highest = plan, max(totals)
    return Attacked(prompt, best, tuple(vocabulary[step] for step in best), highest, truth.total)


def mixed_vocabulary(prompt: AuditPrompt) -> dict[str, Kind]:
    """Steps with their kinds; a text that occurs in several is of the first."""
    vocabulary: dict[str, Kind] = {}
    for step, kind in _sources(prompt):
        vocabulary.setdefault(step, kind)
    return vocabulary


def _sources(prompt: AuditPrompt) -> Iterator[tuple[str, Kind]]:
    foreign = prompt.variants.get("offgoal", ())
    paraphrased = prompt.variants.get("paraphrased_history", ())[: len(prompt.history)]
    yield from ((step, "true") for step in prompt.true)
    yield from ((step, "other goal") for step in foreign)
    yield from ((step, "filler") for step in prompt.padding[:_FILLERS])
    yield from ((step, "paraphrased history") for step in paraphrased)
    yield from ((step, "history") for step in prompt.history)


def composition(attacked: Sequence[Attacked]) -> dict[Kind, float]:
    """Share of each kind among all steps of the plans; empty where the plans hold none."""
    counts = Counter(kind for one in attacked for kind in one.kinds)
    total = counts.total()
    return {kind: counts[kind] / total for kind in KINDS} if total else {}
