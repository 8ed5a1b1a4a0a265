"""Attacks: what a policy is drawn to by a reward, and what a best-of-N choice takes.

The greedy attack grows a plan by whichever step, good or bad, raises the reward most. The plan starts empty, may use a
step again, and grows to three times the true length at most, or until two steps running brought nothing; its best
beginning is the attack. Of steps that raise the reward alike the true one is taken.

The best-of-64 attack needs no search: of 64 plans that are composed of the same steps at random, it is the one with the
highest reward. A reward under which it often beats the true continuation is not fit to choose among samples.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Literal, NamedTuple, get_args

from recipe.audit.perturb import AuditPrompt
from recipe.progress import Advance
from recipe.reward.scorer import Outcome, PromptGroup, Scorer, Steps, batches, outcomes_of
from recipe.types import Reward

Kind = Literal["true", "other goal", "filler", "paraphrased history", "history", "goal"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Where the steps of an attack come from, in the order in which equal rewards are decided."""
LONGEST = 3
"""Length of a greedy plan at most, in true lengths."""
PATIENCE = 2
"""Steps that may bring nothing before the attack gives up: a gate makes rewards flat in places."""
BEST_OF, BEST_OF_LENGTH = 64, 2
"""Composed plans of which the best is taken, and their length at most, in true lengths."""
_FILLERS = 8
_REWORDED = 4
"""Lines of the goal in other words that the attack may use, beside the goal itself."""


class AttackPlan(NamedTuple):
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


def spread(prompts: Sequence[AuditPrompt], count: int) -> list[AuditPrompt]:
    """`count` of the prompts at even distances, all where there are fewer."""
    count = min(count, len(prompts))
    return [prompts[i * len(prompts) // count] for i in range(count)]


def greedy_plans(scorer: Scorer, prompts: Sequence[AuditPrompt], advance: Advance = lambda _: None) -> list[AttackPlan]:
    """The greedy optimum for each prompt that can be scored; all plans grow together, so that each round is one call.

    `advance` counts the prompts that are finished.
    """
    running = [_Greedy(prompt) for prompt in prompts]
    attacks = running
    while running:
        outcomes = outcomes_of(scorer, [one.group() for one in running])
        for one, own in zip(running, outcomes, strict=True):
            one.choose(own)
        left = [one for one in running if one.goes_on]
        advance(len(running) - len(left))
        running = left
    return [one.result() for one in attacks if not one.failed]


class _Greedy:
    """The greedy attack on one prompt: the plan so far, and the best beginning of it."""

    def __init__(self, prompt: AuditPrompt) -> None:
        self.prompt, self.failed = prompt, False
        self._vocabulary = mixed_vocabulary(prompt)
        self._plan: Steps = ()
        self._best: Steps = ()
        self._rewards: tuple[float, float] | None = None
        """Of the best beginning, and of the true continuation."""

    @property
    def goes_on(self) -> bool:
        limit = min(LONGEST * len(self.prompt.true), len(self._best) + PATIENCE + 1)
        return not self.failed and len(self._plan) < limit

    def group(self) -> PromptGroup:
        """The plans of the next round: no steps and the true continuation first, then the plan with each step."""
        plans = [(), self.prompt.true] if self._rewards is None else self._grown()
        return PromptGroup(self.prompt.goal, self.prompt.history, plans)

    def choose(self, outcomes: Sequence[Outcome]) -> None:
        """Take the plan with the highest reward; the first of equals."""
        totals = [outcome.total for outcome in outcomes if isinstance(outcome, Reward)]
        if len(totals) < len(outcomes):
            self.failed = True
        elif self._rewards is None:
            self._rewards = totals[0], totals[1]
        else:
            highest = max(totals)
            self._plan = self._grown()[totals.index(highest)]
            if highest > self._rewards[0]:
                self._best, self._rewards = self._plan, (highest, self._rewards[1])

    def result(self) -> AttackPlan:
        kinds = tuple(self._vocabulary[step] for step in self._best)
        reward, true = self._rewards or (0.0, 0.0)
        return AttackPlan(self.prompt, self._best, kinds, reward, true)

    def _grown(self) -> list[Steps]:
        return [(*self._plan, step) for step in self._vocabulary]


def best_plans(
    scorer: Scorer, prompts: Sequence[AuditPrompt], seed: int = 0, advance: Advance = lambda _: None
) -> list[AttackPlan]:
    """The best of the composed plans for each prompt that can be scored, the first of equals."""
    found = []
    candidates = [composed_plans(prompt, seed) for prompt in prompts]
    groups = [
        PromptGroup(prompt.goal, prompt.history, [prompt.true, *plans])
        for prompt, plans in zip(prompts, candidates, strict=True)
    ]
    outcomes: list[list[Outcome]] = []
    for batch in batches(groups):
        outcomes += outcomes_of(scorer, batch)
        advance(len(batch))
    for prompt, plans, own in zip(prompts, candidates, outcomes, strict=True):
        totals = [outcome.total for outcome in own if isinstance(outcome, Reward)]
        if len(totals) == len(own):
            true, *others = totals
            best = plans[others.index(max(others))]
            kinds = mixed_vocabulary(prompt)
            found.append(AttackPlan(prompt, best, tuple(kinds[step] for step in best), max(others), true))
    return found


def composed_plans(prompt: AuditPrompt, seed: int = 0) -> list[Steps]:
    """64 plans of 1 to 2n steps, the same for every reward.

    A step is drawn by its kind first, so that a kind does not weigh more for having more steps.
    """
    by_kind: dict[Kind, list[str]] = {}
    for step, kind in mixed_vocabulary(prompt).items():
        by_kind.setdefault(kind, []).append(step)
    kinds = list(by_kind)
    random = Random("/".join((str(seed), prompt.source, prompt.video_id, "best of")))
    lengths = (random.randint(1, BEST_OF_LENGTH * len(prompt.true)) for _ in range(BEST_OF))
    return [tuple(random.choice(by_kind[random.choice(kinds)]) for _ in range(length)) for length in lengths]


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
    if prompt.edition != "v1":
        yield from ((step, "goal") for step in (prompt.goal, *prompt.variants.get("goal_reworded", ())[:_REWORDED]))


def composition(attacked: Sequence[AttackPlan]) -> dict[Kind, float]:
    """Share of each kind among all steps of the plans; empty where the plans hold none."""
    counts = Counter(kind for one in attacked for kind in one.kinds)
    total = counts.total()
    kinds = [kind for kind in KINDS if kind != "goal" or any(one.prompt.edition != "v1" for one in attacked)]
    return {kind: counts[kind] / total for kind in kinds} if total else {}
