"""From rewards to what they tell apart: P(true > corrupted) by class, with intervals clustered by goal.

Ties count half. MEAN is the mean of the classes' shares; the same number is a mean over prompts of each prompt's
weighted wins, and that is what its interval resamples.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from recipe.errors import ComputeError
from recipe.evaluation.audit.results import AttackResult, CoverageResult, Padding, RewardAudit
from recipe.evaluation.results import Interval
from recipe.evaluation.statistics import mean_interval
from recipe.reward.audit.attack import LONGEST, Attacked, composition
from recipe.reward.audit.corruptions import ALTERNATIVE, CORRUPTIONS, TRUE
from recipe.reward.audit.coverage import Covered
from recipe.reward.audit.scoring import PADDED, Scored, ScoredPrompt
from recipe.reward.audit.selection import same_goal

Array = NDArray[np.float64]
Key = tuple[str, str]
"""Source and video id of a prompt."""


def wins(true: float, other: float) -> float:
    """1 where the true continuation earns more, 0 where less, 1/2 where as much.

    >>> wins(0.3, 0.1), wins(0.2, 0.2)
    (1.0, 0.5)
    """
    return float(true > other) + 0.5 * float(true == other)


def win_table(prompts: Sequence[ScoredPrompt]) -> Array:
    """Wins of the true continuation [prompts, 16 classes]; NaN where a prompt has no such corruption."""
    rows = [[_win(prompt, name) for name in CORRUPTIONS] for prompt in prompts]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(CORRUPTIONS))


def prompt_means(table: Array) -> Array:
    """Values [prompts] whose mean is the mean over classes of the classes' means.

    >>> prompt_means(np.array([[1.0, 0.0], [1.0, np.nan]])).mean()
    np.float64(0.5)
    """
    known = np.isfinite(table)
    sizes = known.sum(axis=0)
    there = sizes > 0
    weights = len(table) / (there.sum() * np.maximum(sizes, 1))
    return np.asarray((np.where(known, table, 0.0) * weights).sum(axis=1), dtype=np.float64)


def measure(
    name: str, scored: Scored, kappas: Mapping[Key, float], relevance: Scored | None, attack: AttackResult | None
) -> RewardAudit:
    """Everything that the audit tells of one reward. Raises ComputeError where no prompt could be scored."""
    prompts = scored.prompts
    if not prompts:
        reason = scored.unscored[0] if scored.unscored else "there are no prompts"
        raise ComputeError(f"{name}: not one prompt could be scored ({reason.rstrip('.')}).")
    table, goals = win_table(prompts), [same_goal(one.prompt.goal) for one in prompts]
    truths = [one.rewards[TRUE] for one in prompts]
    corrupted = [one.rewards[kind] for one in prompts for kind in CORRUPTIONS if kind in one.rewards]
    coverages = [reward.coverage for reward in truths if reward.coverage is not None]
    return RewardAudit(
        name=name,
        prompts=len(prompts),
        unscored=tuple(scored.unscored),
        mean=mean_interval(prompt_means(table), goals),
        classes={kind: found for kind, found in zip(CORRUPTIONS, _shares(table, goals), strict=True) if found},
        alternative=_share([_win(one, ALTERNATIVE) for one in prompts], goals),
        over_relevance=None if relevance is None else _difference(scored, relevance),
        length_correlation=length_correlation(prompts),
        gated=float(np.mean([reward.gated for reward in truths])),
        gated_corrupted=float(np.mean([reward.gated for reward in corrupted])),
        coverage=float(np.mean(coverages)) if coverages else None,
        abstained=float(np.mean([reward.abstained for reward in truths])),
        mean_by_coverage=_by_coverage(prompts, table, kappas),
        filler_curve=tuple(_padding(prompts, goals, place, count) for place, count in enumerate(PADDED)),
        attack=attack,
        seconds=round(scored.seconds, 2),
    )


def length_correlation(prompts: Sequence[ScoredPrompt]) -> float | None:
    """Mean over prompts of the correlation (Pearson) of reward and |c| over the true and all corrupted continuations.

    Prompts whose rewards are all equal are left out; None where no prompt is left.
    """
    found = []
    for one in prompts:
        variants = [name for name in one.rewards if name != ALTERNATIVE]
        rewards = np.array([one.rewards[name].total for name in variants])
        lengths = np.array([len(one.prompt.variants[name]) for name in variants], dtype=np.float64)
        if np.ptp(rewards) > 0 and np.ptp(lengths) > 0:
            found.append(np.corrcoef(rewards, lengths)[0, 1])
    return float(np.mean(found)) if found else None


def measure_attack(attacked: Sequence[Attacked], seconds: float) -> AttackResult | None:
    """The attacks on one reward together; None where there are none."""
    if not attacked:
        return None
    goals = [same_goal(one.prompt.goal) for one in attacked]
    total = sum(len(one.steps) for one in attacked)
    longest = max(attacked, key=lambda one: len(one.steps) / len(one.prompt.true))
    return AttackResult(
        prompts=len(attacked),
        beats_true=mean_interval([wins(one.reward, one.true_reward) for one in attacked], goals),
        length_ratio=float(np.mean([len(one.steps) / len(one.prompt.true) for one in attacked])),
        composition={str(kind): share for kind, share in composition(attacked).items()},
        repeated=sum(one.repeated for one in attacked) / total if total else 0.0,
        at_limit=float(np.mean([len(one.steps) == LONGEST * len(one.prompt.true) for one in attacked])),
        seconds=round(seconds, 2),
        example_goal=longest.prompt.goal,
        example=tuple(zip(longest.steps, longest.kinds, strict=True)),
    )


def measure_coverage(covered: Sequence[Covered]) -> CoverageResult | None:
    """How far the corpus covers the procedures; None where no procedure could be compared."""
    if not covered:
        return None

    def share(chosen: Sequence[Covered]) -> Interval:
        return mean_interval([one.wins for one in chosen], [same_goal(one.performed.goal) for one in chosen])

    sources = dict.fromkeys(one.performed.source for one in covered)
    return CoverageResult(
        wins=share(covered),
        by_source={source: share([one for one in covered if one.performed.source == source]) for source in sources},
        kappa=float(np.mean([one.kappa for one in covered])),
        mixed=float(np.mean([kappa for one in covered for kappa in one.mixed])),
    )


def _win(one: ScoredPrompt, name: str) -> float:
    return wins(one.rewards[TRUE].total, one.rewards[name].total) if name in one.rewards else float("nan")


def _shares(table: Array, goals: Sequence[str]) -> Iterable[Interval | None]:
    return (_share(column, goals) for column in table.T)


def _share(values: Sequence[float] | Array, goals: Sequence[str]) -> Interval | None:
    """The mean of what is known; None where nothing is."""
    known = [(value, goal) for value, goal in zip(values, goals, strict=True) if np.isfinite(value)]
    return mean_interval([value for value, _ in known], [goal for _, goal in known]) if known else None


def _difference(scored: Scored, baseline: Scored) -> Interval | None:
    """MEAN less the baseline's, on the prompts that both scored."""
    common = {_key(one) for one in scored.prompts} & {_key(one) for one in baseline.prompts}
    if not common:
        return None
    first, second = ([one for one in which.prompts if _key(one) in common] for which in (scored, baseline))
    gains = prompt_means(win_table(first)) - prompt_means(win_table(second))
    return mean_interval(gains, [same_goal(one.prompt.goal) for one in first])


def _by_coverage(prompts: Sequence[ScoredPrompt], table: Array, kappas: Mapping[Key, float]) -> tuple[float, ...]:
    """MEAN in thirds of the prompts by kappa, the least covered first; empty where there are fewer than three."""
    known = sorted((kappas[_key(one)], row) for row, one in enumerate(prompts) if _key(one) in kappas)
    if len(known) < 3:
        return ()
    thirds = np.array_split([row for _, row in known], 3)
    return tuple(float(prompt_means(table[rows]).mean()) for rows in thirds)


def _padding(prompts: Sequence[ScoredPrompt], goals: Sequence[str], place: int, count: int) -> Padding:
    rewards = [one.padded[place].total for one in prompts]
    lost = [wins(one.rewards[TRUE].total, reward) for one, reward in zip(prompts, rewards, strict=True)]
    return Padding(count, mean_interval(rewards, goals), float(np.mean(lost)))


def _key(one: ScoredPrompt) -> Key:
    return one.prompt.source, one.prompt.video_id
