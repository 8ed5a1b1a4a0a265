"""An audit from end to end: prompts, rewards, and P(true > corrupted) by class, with intervals clustered by goal."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from recipe.audit.attack import BEST_OF_LENGTH, GREEDY_LENGTH, best_plans, composition, greedy_plans, spread
from recipe.audit.classes import CORRUPTIONS
from recipe.audit.perturb import (
    ALTERNATIVE,
    FEWEST_STEPS,
    IN_CORPUS,
    MOST_STEPS,
    TRUE,
    AuditPrompt,
    Embed,
    Selection,
    build_prompts,
    select,
)
from recipe.audit.results import (
    FEWEST_PROCEDURES,
    AttackResult,
    Audit,
    CoverageResult,
    Padding,
    RewardAudit,
    SampleResult,
    findings,
)
from recipe.audit.samples import with_samples
from recipe.audit.score import (
    LENGTH,
    PADDED,
    RELEVANCE,
    AuditScores,
    Key,
    NamedScorer,
    ProcedureCoverage,
    ScoredPrompt,
    controls,
    corpus_coverage,
    group_means,
    known_share,
    paired_difference,
    prompt_means,
    win_table,
    wins,
)
from recipe.data.video_ids import YOUTUBE, VideoIds, has_own_id
from recipe.errors import ComputeError, InputError
from recipe.planning.predictions import Prediction
from recipe.progress import SILENT, Progress
from recipe.reward.embeddings import NarrationIndex
from recipe.stats import mean_interval
from recipe.text import same_goal
from recipe.types import Procedure


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is audited."""

    limit: int | None = None
    """Procedures of each source at most."""
    seed: int = 0
    attacked: int = 40
    """Prompts that the attacks are run on; 0 leaves them out."""


_ALL = Extent()
Attack = Literal["greedy", "best of"]
ATTACKS: dict[Attack, int] = {"greedy": GREEDY_LENGTH, "best of": BEST_OF_LENGTH}
"""The attacks, and the length of their plans at most, in true lengths."""


def audit_rewards(
    audited: Sequence[NamedScorer],
    corpus: NarrationIndex,
    procedures: Iterable[Procedure],
    embed: Embed,
    extent: Extent = _ALL,
    settings: dict[str, Any] | None = None,
    progress: Progress = SILENT,
    samples: Mapping[str, Sequence[Prediction]] | None = None,
) -> Audit:
    """The audit of these rewards and of the two controls, which are always added; the same input gives the same audit
    except for its seconds. `settings` are kept as they are; `samples` are systems' predictions for the prompts.

    Raises InputError where no procedure can be audited, a name occurs twice or samples are for other prompts,
    ComputeError where a reward scores none.
    """
    names = [reward.name for reward in audited]
    if twice := [name for name, count in Counter([*names, LENGTH, RELEVANCE]).items() if count > 1]:
        raise InputError(f"{twice[0]!r} is audited twice, or is a control's name; give each reward a name of its own.")
    selection, prompts = audited_prompts(corpus, procedures, embed, extent)
    prompts, unused = with_samples(prompts, samples or {})
    coverage, kappas = None, dict[Key, float]()
    problem = "every source has one goal only, so that no steps of other tasks are known"
    try:
        covered = corpus_coverage(corpus, selection, embed, extent.seed, progress)
    except ComputeError as error:
        problem = str(error).rstrip(".")
    else:
        kappas = {(procedure.performed.source, procedure.performed.video_id): procedure.kappa for procedure in covered}
        coverage = _measure_coverage(covered)
    beside = controls(prompts, embed)
    scored = {reward.name: reward.score(prompts, progress) for reward in (*beside, *audited)}
    attacked = spread(prompts, extent.attacked)
    attacks = {
        (reward.name, kind): measure_attack(reward, attacked, kind, extent.seed, progress)
        for reward in (*audited, *beside)
        for kind in ATTACKS
        if reward.name != LENGTH
    }
    rewards = tuple(
        measure(
            reward.name,
            scored[reward.name],
            kappas,
            None if reward.name == RELEVANCE else scored[RELEVANCE],
            attacks.get((reward.name, "greedy")),
            attacks.get((reward.name, "best of")),
        )
        for reward in (*audited, *beside)
    )
    return Audit(
        settings=dict(settings or {}) | asdict(extent),
        procedures=dict(Counter(procedure.source for procedure in selection.audited)),
        left_out=selection.left_out,
        answer=f"Whether the corpus covers these tasks is not known: {problem}."
        if coverage is None
        else coverage.answer,
        findings=(
            *(f"{reward.name}: {reward.caution}" for reward in audited if reward.caution),
            *_cautions(selection, prompts, unused),
            *findings(rewards),
        ),
        coverage=coverage,
        rewards=rewards,
    )


def audited_prompts(
    corpus: NarrationIndex, procedures: Iterable[Procedure], embed: Embed, extent: Extent = _ALL
) -> tuple[Selection, list[AuditPrompt]]:
    """The procedures that are audited, and their prompts. Raises InputError where there are fewer than five."""
    procedures = list(procedures)
    ids = VideoIds(procedure.video_id for procedure in procedures)
    held, unclear = set[str](), set[str]()
    # A reward that reads the very video of a procedure would be audited on its own answer.
    for name in (corpus.narration(index).video_id for index in range(len(corpus))):
        if video_id := ids.find(name):
            held.add(video_id)
        # An id of YouTube's form inside another is that video; a short id of a benchmark may be there by chance.
        elif video_id := ids.inside(name):
            (held if YOUTUBE.fullmatch(video_id) else unclear).add(video_id)
    selection = select(procedures, extent.seed, extent.limit, held)
    selection = selection._replace(unclear=sum(procedure.video_id in unclear for procedure in selection.audited))
    if (count := len(selection.audited)) < FEWEST_PROCEDURES:
        reasons = "".join(f", {reason}" for reason in (selection.counts(),) if reason)
        also = ", or build the corpus with --exclude and their file" * bool(selection.left_out[IN_CORPUS])
        raise InputError(
            f"{count} of {len(procedures)} procedures can be audited{reasons}: too few to tell anything of a reward; "
            f"give {FEWEST_PROCEDURES} or more of {FEWEST_STEPS} to {MOST_STEPS} steps{also}."
        )
    return selection, build_prompts(selection, embed, extent.seed)


def _cautions(selection: Selection, prompts: Sequence[AuditPrompt], unused: Mapping[str, int]) -> list[str]:
    """What a reader must know of the procedures before any number."""
    cautions = []
    if counts := selection.counts():
        cautions.append(f"Left out: {counts}.")
    if inside := selection.left_out.get(IN_CORPUS):
        cautions.append(
            f"{inside} of the videos {'is' if inside == 1 else 'are'} in the corpus, and a reward that reads the "
            "answer proves nothing: to audit them, too, build the corpus with --exclude and the file of the procedures."
        )
    if selection.unclear:
        cautions.append(
            f"The ids of {selection.unclear} of the videos occur inside ids of narrations of the corpus; "
            "where these are the same videos, build the corpus without them."
        )
    own = Counter(
        procedure.source for procedure in selection.audited if has_own_id(procedure.source, procedure.video_id)
    )
    cautions += [
        f"{count} of the videos of {source} have ids of their own, which no corpus of narrations knows, so that it is "
        "not known whether the corpus narrates them."
        for source, count in own.items()
    ]
    names = (*CORRUPTIONS, ALTERNATIVE)
    missing = {name: sum(name not in prompt.variants for prompt in prompts) for name in names}
    never = [name for name, count in missing.items() if count == len(prompts)]
    if never:
        cautions.append(f"Could not be made for any procedure, and are left out of the mean: {', '.join(never)}.")
    cautions += [
        f"{count} samples of {system} are for prompts that are not audited."
        for system, count in unused.items()
        if count
    ]
    return cautions


def measure(
    name: str,
    scored: AuditScores,
    kappas: Mapping[Key, float],
    relevance: AuditScores | None,
    attack: AttackResult | None,
    best_of: AttackResult | None = None,
) -> RewardAudit:
    """The audit of one reward. Raises ComputeError where no prompt could be scored."""
    prompts = scored.prompts
    if not prompts:
        reason = scored.unscored[0] if scored.unscored else "there are no prompts"
        raise ComputeError(f"{name}: not one prompt could be scored ({reason.rstrip('.')}).")
    table, goals = win_table(prompts), [same_goal(prompt.prompt.goal) for prompt in prompts]
    shares = [known_share(column, goals) for column in table.T]
    truths = [prompt.rewards[TRUE] for prompt in prompts]
    corrupted = [prompt.rewards[kind] for prompt in prompts for kind in CORRUPTIONS if kind in prompt.rewards]
    coverages = [reward.coverage for reward in truths if reward.coverage is not None]
    # MEAN in thirds of the prompts by kappa, the least covered first; none where there are fewer than three.
    # Thirds and not a threshold: what counts as covered differs by corpus.
    known = sorted((kappas[prompt.key], row) for row, prompt in enumerate(prompts) if prompt.key in kappas)
    thirds = np.array_split([row for _, row in known], 3) if len(known) >= 3 else []
    return RewardAudit(
        name=name,
        prompts=len(prompts),
        unscored=tuple(scored.unscored),
        mean=mean_interval(prompt_means(table), goals),
        groups=group_means(table, goals),
        classes={kind: share for kind, share in zip(CORRUPTIONS, shares, strict=True) if share},
        alternative=known_share(win_table(prompts, (ALTERNATIVE,))[:, 0], goals),
        over_relevance=None if relevance is None else paired_difference(prompts, relevance.prompts),
        length_correlation=length_correlation(prompts),
        gated=float(np.mean([reward.gated for reward in truths])),
        gated_corrupted=float(np.mean([reward.gated for reward in corrupted])),
        coverage=float(np.mean(coverages)) if coverages else None,
        mean_by_coverage=tuple(float(prompt_means(table[rows]).mean()) for rows in thirds),
        filler_curve=tuple(
            Padding(
                steps=count,
                reward=mean_interval([prompt.padded[index].total for prompt in prompts], goals),
                true_wins=float(
                    np.mean([wins(prompt.rewards[TRUE].total, prompt.padded[index].total) for prompt in prompts])
                ),
            )
            for index, count in enumerate(PADDED)
        ),
        attack=attack,
        seconds=round(scored.seconds, 2),
        best_of=best_of,
        samples=_measure_samples(prompts),
    )


def length_correlation(prompts: Sequence[ScoredPrompt]) -> float | None:
    """Mean over prompts of the correlation (Pearson) of reward and |c| over the true and all corrupted continuations.

    Prompts whose rewards are all equal are left out; None where no prompt is left.
    """
    correlations = []
    for prompt in prompts:
        variants = [name for name in prompt.rewards if name != ALTERNATIVE]
        rewards = np.array([prompt.rewards[name].total for name in variants])
        lengths = np.array([len(prompt.prompt.variants[name]) for name in variants], dtype=np.float64)
        # Within a prompt, because prompts differ in level; a correlation with a constant is not defined, and is not 0.
        if np.ptp(rewards) > 0 and np.ptp(lengths) > 0:
            correlations.append(np.corrcoef(rewards, lengths)[0, 1])
    return float(np.mean(correlations)) if correlations else None


def measure_attack(
    audited: NamedScorer, prompts: Sequence[AuditPrompt], kind: Attack, seed: int = 0, progress: Progress = SILENT
) -> AttackResult | None:
    """An attack on these prompts; None where none can be computed."""
    began = time.perf_counter()
    with progress.task(f"Attack {audited.name}, {kind}", len(prompts)) as advance:
        attacked = (
            greedy_plans(audited.scorer, prompts, advance)
            if kind == "greedy"
            else best_plans(audited.scorer, prompts, seed, advance)
        )
    if not attacked:
        return None
    goals = [same_goal(plan.prompt.goal) for plan in attacked]
    total = sum(len(plan.steps) for plan in attacked)
    ratios = [plan.length_ratio for plan in attacked]
    longest = attacked[int(np.argmax(ratios))]
    return AttackResult(
        prompts=len(attacked),
        beats_true=mean_interval([wins(plan.reward, plan.true_reward) for plan in attacked], goals),
        length_ratio=float(np.mean(ratios)),
        composition={str(name): share for name, share in composition(attacked).items()},
        repeated=sum(len(plan.steps) - len(set(plan.steps)) for plan in attacked) / total if total else 0.0,
        at_limit=float(np.mean([ratio == ATTACKS[kind] for ratio in ratios])),
        seconds=round(time.perf_counter() - began, 2),
        example_goal=longest.prompt.goal,
        example=tuple(zip(longest.steps, longest.kinds, strict=True)),
    )


def _measure_samples(prompts: Sequence[ScoredPrompt]) -> dict[str, SampleResult]:
    """The samples of each system against the true continuations, clustered by goal."""
    results = {}
    for system in dict.fromkeys(system for prompt in prompts for system in prompt.samples):
        shares, goals, plans, ratios, unscored = [], [], [], [], 0
        for prompt in prompts:
            rewards = prompt.samples.get(system, [])
            known = [reward.total for reward in rewards if reward is not None]
            unscored += len(rewards) - len(known)
            if known:
                # Of a prompt first: systems may have written several samples for one and few for another.
                shares.append(float(np.mean([wins(prompt.rewards[TRUE].total, total) for total in known])))
                goals.append(same_goal(prompt.prompt.goal))
                scored = zip(prompt.prompt.samples[system], rewards, strict=True)
                lengths = [len(plan) for plan, reward in scored if reward is not None]
                plans += lengths
                ratios += [length / len(prompt.prompt.true) for length in lengths]
        if shares:
            results[system] = SampleResult(
                true_wins=mean_interval(shares, goals),
                samples=len(plans),
                unscored=unscored,
                without_steps=plans.count(0) / len(plans),
                length_ratio=float(np.mean(ratios)),
            )
    return results


def _measure_coverage(covered: Sequence[ProcedureCoverage]) -> CoverageResult | None:
    """How far the corpus covers the procedures; None where no procedure could be compared."""
    if not covered:
        return None
    shares = np.array([procedure.wins for procedure in covered])
    goals = [same_goal(procedure.performed.goal) for procedure in covered]
    sources: dict[str, list[int]] = {}
    for index, procedure in enumerate(covered):
        sources.setdefault(procedure.performed.source, []).append(index)
    return CoverageResult(
        wins=mean_interval(shares, goals),
        by_source={
            source: mean_interval(shares[own], [goals[index] for index in own]) for source, own in sources.items()
        },
        kappa=float(np.mean([procedure.kappa for procedure in covered])),
        mixed=float(np.mean([kappa for procedure in covered for kappa in procedure.mixed])),
    )
