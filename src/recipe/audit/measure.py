"""An audit from end to end: prompts, rewards, and P(true > corrupted) by class, with intervals clustered by goal.

Ties count half. MEAN is the mean of the classes' shares; the same number is a mean over prompts of each prompt's
weighted wins, and that is what its interval resamples.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recipe.audit.classes import EDITIONS, GROUP_OF, GROUPS, Edition, Group
from recipe.audit.perturb import (
    ALTERNATIVE,
    FEWEST,
    MOST,
    TRUE,
    AuditPrompt,
    Embed,
    Selection,
    build_prompts,
    same_goal,
    select,
)
from recipe.audit.results import AttackResult, Audit, CoverageResult, Padding, RewardAudit, answer, findings
from recipe.audit.score import (
    LENGTH,
    LONGEST,
    PADDED,
    RELEVANCE,
    AuditScores,
    NamedScorer,
    ProcedureCoverage,
    ScoredPrompt,
    attack_prompts,
    composition,
    controls,
    corpus_coverage,
    score_prompts,
)
from recipe.errors import ComputeError, InputError
from recipe.progress import SILENT, Progress
from recipe.reward.embeddings import NarrationIndex
from recipe.stats import Interval, mean_interval
from recipe.types import Procedure

Array = NDArray[np.float64]
Key = tuple[str, str]
"""Source and video id of a prompt."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is audited."""

    limit: int | None = None
    """Procedures of each source at most."""
    seed: int = 0
    attacked: int = 40
    """Prompts that the greedy attack is run on; 0 leaves it out."""
    classes: Edition = "v2"
    """Edition of the classes of corruption; a class is the same in both."""


_ALL = Extent()


def audit_rewards(
    audited: Sequence[NamedScorer],
    corpus: NarrationIndex,
    procedures: Iterable[Procedure],
    embed: Embed,
    extent: Extent = _ALL,
    settings: dict[str, Any] | None = None,
    progress: Progress = SILENT,
) -> Audit:
    """The audit of these rewards and of the two controls, which always stand beside them; the same input gives the same
    audit but for its seconds. `settings` are kept as they are.

    Raises InputError where no procedure can be audited or a name occurs twice, ComputeError where a reward scores none.
    """
    names = [one.name for one in audited]
    if twice := [name for name, count in Counter([*names, LENGTH, RELEVANCE]).items() if count > 1]:
        raise InputError(f"{twice[0]!r} is audited twice, or is a control's name; give each reward a name of its own.")
    videos = frozenset(corpus.narration(index).video_id for index in range(len(corpus)))
    selection = select(procedures, extent.seed, extent.limit, videos)
    if not selection.audited:
        counts = _counts(selection) or "the files hold none"
        raise InputError(f"no procedure can be audited ({counts}); give procedures of {FEWEST} to {MOST} steps.")
    prompts = build_prompts(selection, embed, extent.seed, extent.classes)
    coverage, kappas, problem = _coverage(corpus, selection, embed, extent.seed, progress)
    beside = controls(prompts, embed)
    scored = {one.name: score_prompts(one, prompts, progress) for one in (*beside, *audited)}
    rewards = tuple(
        measure(
            one.name,
            scored[one.name],
            kappas,
            None if one.name == RELEVANCE else scored[RELEVANCE],
            None if one.name == LENGTH else measure_attack(one, prompts, extent.attacked, progress),
        )
        for one in (*audited, *beside)
    )
    return Audit(
        settings=dict(settings or {}) | asdict(extent),
        procedures=dict(Counter(one.source for one in selection.audited)),
        left_out=selection.left_out,
        answer=answer(coverage, problem),
        findings=(*_cautions(selection, prompts), *findings(rewards)),
        coverage=coverage,
        rewards=rewards,
    )


def _coverage(
    corpus: NarrationIndex, selection: Selection, embed: Embed, seed: int, progress: Progress
) -> tuple[CoverageResult | None, dict[Key, float], str]:
    """The statistic, kappa of each procedure, and why there is none."""
    try:
        covered = corpus_coverage(corpus, selection, embed, seed, progress)
    except ComputeError as error:
        return None, {}, str(error).rstrip(".")
    kappas = {(one.performed.source, one.performed.video_id): one.kappa for one in covered}
    return (
        measure_coverage(covered),
        kappas,
        "every source has one goal only, so that no steps of other tasks are known",
    )


def _cautions(selection: Selection, prompts: Sequence[AuditPrompt]) -> list[str]:
    """What a reader must know of the procedures before any number."""
    found = []
    if counts := _counts(selection):
        found.append(f"Left out: {counts}.")
    names = (*EDITIONS[prompts[0].edition], ALTERNATIVE)
    missing = {name: sum(name not in prompt.variants for prompt in prompts) for name in names}
    never = [name for name, count in missing.items() if count == len(prompts)]
    if never:
        found.append(f"Could not be made for any procedure, and are left out of the mean: {', '.join(never)}.")
    return found


def _counts(selection: Selection) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in selection.left_out.items() if count)


def wins(true: float, other: float) -> float:
    """1 where the true continuation earns more, 0 where less, 1/2 where as much.

    >>> wins(0.3, 0.1), wins(0.2, 0.2)
    (1.0, 0.5)
    """
    return float(true > other) + 0.5 * float(true == other)


def win_table(prompts: Sequence[ScoredPrompt]) -> Array:
    """Wins of the true continuation [prompts, classes of their edition]; NaN where a prompt has no such corruption.

    Raises InputError where the prompts are of two editions.
    """
    if len({prompt.prompt.edition for prompt in prompts}) > 1:
        raise InputError("the prompts are of two editions of the classes; audit them apart.")
    names = EDITIONS[prompts[0].prompt.edition] if prompts else ()
    rows = [[_win(prompt, name) for name in names] for prompt in prompts]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(names))


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
    name: str,
    scored: AuditScores,
    kappas: Mapping[Key, float],
    relevance: AuditScores | None,
    attack: AttackResult | None,
) -> RewardAudit:
    """The audit of one reward. Raises ComputeError where no prompt could be scored."""
    prompts = scored.prompts
    if not prompts:
        reason = scored.unscored[0] if scored.unscored else "there are no prompts"
        raise ComputeError(f"{name}: not one prompt could be scored ({reason.rstrip('.')}).")
    table, goals = win_table(prompts), [same_goal(one.prompt.goal) for one in prompts]
    classes = EDITIONS[prompts[0].prompt.edition]
    shares = [_share(column, goals) for column in table.T]
    truths = [one.rewards[TRUE] for one in prompts]
    corrupted = [one.rewards[kind] for one in prompts for kind in classes if kind in one.rewards]
    coverages = [reward.coverage for reward in truths if reward.coverage is not None]
    return RewardAudit(
        name=name,
        prompts=len(prompts),
        unscored=tuple(scored.unscored),
        mean=mean_interval(prompt_means(table), goals),
        groups=_group_means(table, classes, goals),
        classes={kind: found for kind, found in zip(classes, shares, strict=True) if found},
        alternative=_share([_win(one, ALTERNATIVE) for one in prompts], goals),
        over_relevance=None if relevance is None else _difference(scored, relevance),
        length_correlation=length_correlation(prompts),
        gated=float(np.mean([reward.gated for reward in truths])),
        gated_corrupted=float(np.mean([reward.gated for reward in corrupted])),
        coverage=float(np.mean(coverages)) if coverages else None,
        abstained=float(np.mean([reward.abstained for reward in truths])),
        mean_by_coverage=_by_coverage(prompts, table, kappas),
        filler_curve=tuple(
            Padding(
                steps=count,
                reward=mean_interval([one.padded[place].total for one in prompts], goals),
                true_wins=float(np.mean([wins(one.rewards[TRUE].total, one.padded[place].total) for one in prompts])),
            )
            for place, count in enumerate(PADDED)
        ),
        attack=attack,
        seconds=round(scored.seconds, 2),
    )


def _group_means(table: Array, classes: Sequence[str], goals: Sequence[str]) -> dict[Group, Interval]:
    """The mean over the classes of each group that has any."""
    means = {}
    for group in GROUPS:
        own = table[:, [GROUP_OF[name] == group for name in classes]]
        if np.isfinite(own).any():
            means[group] = mean_interval(prompt_means(own), goals)
    return means


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


def measure_attack(
    audited: NamedScorer, prompts: Sequence[AuditPrompt], count: int, progress: Progress = SILENT
) -> AttackResult | None:
    """The attack on `count` of the prompts; None where there are none."""
    began = time.perf_counter()
    attacked = attack_prompts(audited, prompts, count, progress) if count else []
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
        seconds=round(time.perf_counter() - began, 2),
        example_goal=longest.prompt.goal,
        example=tuple(zip(longest.steps, longest.kinds, strict=True)),
    )


def measure_coverage(covered: Sequence[ProcedureCoverage]) -> CoverageResult | None:
    """How far the corpus covers the procedures; None where no procedure could be compared."""
    if not covered:
        return None

    def share(chosen: Sequence[ProcedureCoverage]) -> Interval:
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


def _share(values: Sequence[float] | Array, goals: Sequence[str]) -> Interval | None:
    """The mean of what is known; None where nothing is."""
    known = [(value, goal) for value, goal in zip(values, goals, strict=True) if np.isfinite(value)]
    return mean_interval([value for value, _ in known], [goal for _, goal in known]) if known else None


def _difference(scored: AuditScores, baseline: AuditScores) -> Interval | None:
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


def _key(one: ScoredPrompt) -> Key:
    return one.prompt.source, one.prompt.video_id
