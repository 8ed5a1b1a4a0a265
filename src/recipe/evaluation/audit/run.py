"""An audit from end to end: procedures, prompts, rewards, controls, attack, coverage."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from recipe.errors import ComputeError, InputError
from recipe.evaluation.audit import sentences
from recipe.evaluation.audit.measures import Key, measure, measure_attack, measure_coverage
from recipe.evaluation.audit.results import AttackResult, Audit, CoverageResult
from recipe.progress import SILENT, Progress
from recipe.reward.audit.attack import attack_prompts
from recipe.reward.audit.controls import LENGTH, RELEVANCE, controls
from recipe.reward.audit.corruptions import ALTERNATIVE, CORRUPTIONS, AuditPrompt, Embed, build_prompts
from recipe.reward.audit.coverage import corpus_coverage
from recipe.reward.audit.scoring import Audited, score_prompts
from recipe.reward.audit.selection import FEWEST, MOST, Selection, select
from recipe.reward.method import NarrationIndex
from recipe.types import Procedure


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is audited."""

    limit: int | None = None
    """Procedures of each source at most."""
    seed: int = 0
    attacked: int = 40
    """Prompts that the greedy attack is run on; 0 leaves it out."""


_ALL = Extent()


def audit_rewards(
    audited: Sequence[Audited],
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
    selection = select(procedures, extent.seed, extent.limit, corpus_videos(corpus))
    _require_some(selection)
    prompts = build_prompts(selection, embed, extent.seed)
    coverage, kappas, problem = _coverage(corpus, selection, embed, extent.seed, progress)
    beside = controls(prompts, embed)
    scored = {one.name: score_prompts(one, prompts, progress) for one in (*beside, *audited)}
    rewards = tuple(
        measure(
            one.name,
            scored[one.name],
            kappas,
            None if one.name == RELEVANCE else scored[RELEVANCE],
            None if one.name == LENGTH else _attack(one, prompts, extent.attacked, progress),
        )
        for one in (*audited, *beside)
    )
    return Audit(
        settings=dict(settings or {}) | {"seed": extent.seed, "limit": extent.limit, "attacked": extent.attacked},
        procedures=dict(Counter(one.source for one in selection.audited)),
        left_out=selection.left_out,
        answer=sentences.answer(coverage, problem),
        findings=(*_cautions(selection, prompts), *sentences.findings(rewards)),
        coverage=coverage,
        rewards=rewards,
    )


def corpus_videos(corpus: NarrationIndex) -> frozenset[str]:
    """Ids of all videos that the corpus holds narrations of."""
    return frozenset(corpus.narration(index).video_id for index in range(len(corpus)))


def _require_some(selection: Selection) -> None:
    if not selection.audited:
        counts = _counts(selection) or "the files hold none"
        raise InputError(f"no procedure can be audited ({counts}); give procedures of {FEWEST} to {MOST} steps.")


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


def _attack(one: Audited, prompts: Sequence[AuditPrompt], count: int, progress: Progress) -> AttackResult | None:
    if not count:
        return None
    began = time.perf_counter()
    attacked = attack_prompts(one, prompts, count, progress)
    return measure_attack(attacked, time.perf_counter() - began)


def _cautions(selection: Selection, prompts: Sequence[AuditPrompt]) -> list[str]:
    """What a reader must know of the procedures before any number."""
    found = []
    if counts := _counts(selection):
        found.append(f"Left out: {counts}.")
    missing = {name: sum(name not in prompt.variants for prompt in prompts) for name in (*CORRUPTIONS, ALTERNATIVE)}
    never = [name for name, count in missing.items() if count == len(prompts)]
    if never:
        found.append(f"Could not be made for any procedure, and are left out of the mean: {', '.join(never)}.")
    return found


def _counts(selection: Selection) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in selection.left_out.items() if count)
