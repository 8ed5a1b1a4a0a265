"""From what a study's stages left in the run folder to its results, and from those to the report."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePath
from statistics import fmean

import torch

from recipe.artifacts import read_json, read_jsonl, to_json, write_json
from recipe.config import GRPOConfig
from recipe.corpus.store import Corpus
from recipe.evaluation.controls import SAMPLE, control_differences
from recipe.evaluation.match import MAIN as AGREEMENT
from recipe.evaluation.metrics import CONTROL, Difference
from recipe.evaluation.validity.measure import (
    PlanLengths,
    PromptMeans,
    RegimeScores,
    Reranking,
    ScoredPlan,
    differences,
    score_predictions,
)
from recipe.evaluation.validity.readings import PlanLine
from recipe.explain.explain import explain, when, whole_sentence
from recipe.planning.predictions import Prediction
from recipe.progress import Progress
from recipe.reward.scorer import PromptGroup, score_or_raise
from recipe.reward.self_trained import CARD
from recipe.reward.verifier import Verifier
from recipe.reward.watchdog import Watchdog, read_records
from recipe.stats import Interval
from recipe.training.validation_page import read_validations
from recipe.types import Example
from recipe_studies.experiments.findings import caveats, summary
from recipe_studies.experiments.measure import Measurement, measure, training_curve
from recipe_studies.experiments.page import rerender
from recipe_studies.experiments.results import (
    ROWS,
    Alarm,
    Provenance,
    Quote,
    Results,
    ShownPlan,
    ShownPrompt,
    StageTime,
    StepTimes,
    Validated,
    ValidationCurve,
    write_plan_rows,
)
from recipe_studies.experiments.schedule import stage_times
from recipe_studies.experiments.settings import SELF_TRAINED, AnyExperiment, VideoConfig
from recipe_studies.experiments.study import (
    ATTRIBUTES,
    BASE,
    CORPUS,
    DOCUMENTS,
    GREEDY,
    TEST,
    TRAIN,
    WORDS,
    Study,
    study_of,
)
from recipe_studies.experiments.video import ACCURACY, draw_clips

SHOWN = 3
"""Prompts of each split whose plans the report shows; all plans are in `rows/`."""
STAGES = {
    "data": "draw the data",
    "validation": "draw the data",
    "corpus": "build the corpus",
    "self-train": "train the reward on the corpus",
    "base": "train the base planner",
    "attributes": "vision pre-training 1, attributes",
    "words": "vision pre-training 2, words",
    "align": "vision pre-training 3, alignment",
    "sft-known": "train the base planner",
    "sft": "SFT",
    "grpo": "GRPO",
    "teach": "training of the arms",
    "best-of-n": "best-of-N rounds",
    "plans-base": "plans of the base",
    "plans-sft-known": "plans of the base",
    "plans-sft": "plans after SFT",
    "plans-grpo": "plans after GRPO",
    "plans-best-of-n": "plans after best-of-N rounds",
    "plans-corpus": "labels of the corpus",
    "plans": "plans of the arms",
    "rewards": "rewards of all plans",
}
"""Stages, or beginnings of their names, and what the report calls them; times of one title are added."""


def write_report(run_dir: Path, config: AnyExperiment, progress: Progress) -> None:
    """Write the rows of all plans, `report.json`, `report.html` and, for video, `clips.png`, a picture of what the
    planner is shown.
    """
    with progress.task("writing the report", 3) as advance:
        measured = measure(run_dir, study_of(config))
        if isinstance(config, VideoConfig) and measured.world is not None:
            draw_clips(measured.world, [examples[0] for examples in measured.prompts.values()], run_dir / "clips.png")
        advance(1)
        for plans in (*measured.study.plan_sets, *measured.study.composed):
            scored = measured.plans[plans.regime][plans.seed]
            rows = ((measured.examples[plan.example_id], plan.sample, plan.texts, plan.metrics()) for plan in scored)
            write_plan_rows(run_dir / ROWS / PurePath(plans.file).name, plans.regime, plans.seed, rows)
        results = collect(run_dir, measured)
        # Keys stay in order, because the page shows them so.
        write_json(run_dir / "report.json", to_json(results), sort_keys=False)
        advance(1)
        rerender(run_dir)
        advance(1)


def collect(run_dir: Path, measured: Measurement) -> Results:
    """All parts of the report; a part that this study does not have is empty."""
    study, config = measured.study, measured.study.config
    seed = config.seed
    means = {
        (split, regime): PromptMeans.over_runs([PromptMeans.of(plans) for plans in measured.of(split, regime).values()])
        for split in measured.prompts
        for regime in measured.plans
    }
    results = Results(
        title=config.title,
        provenance=_provenance(run_dir, measured),
        stages=tuple(_stages(run_dir, study)),
        scores=tuple(_scores(measured, split, regime, mean, seed) for (split, regime), mean in means.items()),
        differences=tuple(
            difference
            for split in measured.prompts
            for contrast in study.contrasts
            for difference in differences(
                split,
                contrast.title,
                means[split, contrast.regime],
                contrast.baseline,
                means[split, contrast.baseline],
                seed,
            )
        ),
        by_seed=tuple(_by_seed(measured, seed)),
        curves=tuple(training_curve(run_dir, measured, arm) for arm in study.reward_arms),
        validations=tuple(
            _validations(run_dir / arm.folder, arm.regime, arm.config.seed)
            for arm in study.reward_arms
            if arm.config.validation is not None
        ),
        rerankings=tuple(_rerankings(measured)),
        lengths=tuple(_lengths(measured)),
        opening=_opening(run_dir, measured),
        prompts=tuple(_shown_prompts(run_dir, measured)),
        alarms=tuple(
            Alarm(arm.regime, finding.since, finding.sentence, arm.config.seed)
            for arm in study.reward_arms
            for finding in Watchdog.after(read_records(run_dir / arm.folder)).findings
        ),
    )
    controls, gaps = _controls(measured, means, seed)
    results = replace(results, controls=controls, control_differences=gaps)
    spent: dict[str, list[tuple[float, float]]] = {}
    for arm in study.reward_arms:
        metrics = (row for _, row in read_jsonl(run_dir / arm.folder / "metrics.jsonl"))
        rows = [row for row in metrics if "reward_seconds" in row]
        spent.setdefault(arm.regime, []).extend((row["reward_seconds"], row["step_seconds"]) for row in rows)
    costs = []
    for regime, steps in spent.items():
        if steps:
            reward, step = (fmean(part) for part in zip(*steps, strict=True))
            costs.append(StepTimes(regime, reward, step, fmean(own / whole for own, whole in steps)))
    results = replace(results, costs=tuple(costs))
    towers = (ATTRIBUTES, WORDS) if isinstance(config, VideoConfig) else ()
    recognised = [read_json(run_dir / name / ACCURACY)["unseen"] for name in towers]
    card = read_json(run_dir / SELF_TRAINED / CARD) if study.self_trained is not None else None
    return replace(results, summary=summary(results, recognised, card), caveats=caveats(study))


def _provenance(run_dir: Path, measured: Measurement) -> Provenance:
    """What it takes to run the experiment again."""
    study, config = measured.study, measured.study.config
    files = {"base planner": DOCUMENTS, "training": TRAIN, "test": TEST}
    there = {name: run_dir / path for name, path in files.items() if (run_dir / path).is_file()}
    data = {name: f"{sum(1 for _ in read_jsonl(path))} examples" for name, path in there.items()}
    manifest = Corpus.open(run_dir / CORPUS).manifest
    narrated = f"{manifest['narrations']} narrations, {manifest['segments']} segments"
    settings = {
        "base planner": {"model": config.model} if config.model else config.base,
        **study.settings,
        **({"GRPO": config.grpo} if any(isinstance(arm.config, GRPOConfig) for arm in study.arms) else {}),
        "sampling": {**config.sampling.model_dump(include={"temperature", "max_tokens"}), "samples": config.samples},
    }
    return Provenance.now(
        "CUDA" if torch.cuda.is_available() else "CPU",
        seeds=study.seeds,
        settings={
            name: ", ".join(f"{key} {value}" for key, value in values.items()) for name, values in settings.items()
        },
        data=data | {"verification corpus": f"{narrated}, encoder {manifest['encoder']['name']}"},
    )


def _stages(run_dir: Path, study: Study) -> Iterator[StageTime]:
    """Times of the finished stages of a study; stages of one title are added up."""
    of_arms = {name for arm in study.arms for name in (arm.stage, f"plans-{arm.name}")}
    of_arms |= {"plans-corpus", *(f"rewards-{ranker.name}" for ranker in study.rankers)}
    groups: dict[str, list[tuple[float, float]]] = {title: [] for title in STAGES.values()}
    for name, both in stage_times(run_dir).items():
        # The folder keeps the record of an arm or ranker that an earlier call had and this one has not.
        if name.startswith(("sft", "grpo", "best-of-n", "teach", "plans", "rewards")) and name not in of_arms:
            continue
        title = next((title for kind, title in STAGES.items() if f"{name}-".startswith(f"{kind}-")), None)
        if title is not None:
            groups[title].append(both)
    for title, times in groups.items():
        if times:
            several = f"{len(times)} stages, " if len(times) > 1 else ""
            cpu_seconds = sum(cpu for _, cpu in times)
            yield StageTime(title, sum(wall for wall, _ in times), f"{several}{cpu_seconds:.0f} CPU s")


def _scores(measured: Measurement, split: str, regime: str, means: PromptMeans, seed: int) -> RegimeScores:
    """A regime's means, without the rewards of rankers that see the base's plans alone."""
    row = RegimeScores.of(split, regime, means, seed)
    for ranker in measured.study.rankers:
        if ranker.base_only:
            row.metrics.pop(ranker.name, None)
    return row


def _controls(
    measured: Measurement, means: dict[tuple[str, str], PromptMeans], seed: int
) -> tuple[tuple[RegimeScores, ...], tuple[Difference, ...]]:
    """Rows of the controls, and each regime minus each control that it has to beat."""
    study = measured.study
    judge_metrics = ("proxy",) if study.judged else ()
    rows: dict[tuple[str, str], PromptMeans] = {}
    for split, examples in measured.prompts.items():
        ids = {example.example_id for example in examples}
        for control, plans in measured.controls.items():
            own = [plan for plan in plans if plan.example_id in ids]
            few = f", {len(own)} prompts" if len(own) < len(ids) else ""
            if own:
                rows[split, f"{CONTROL}{control}{few}"] = PromptMeans.of(own)
    gaps: list[Difference] = []
    for (split, name), row in rows.items():
        for regime in measured.plans:
            # A random sample of the base is no control of the base itself, and controls are not compared.
            if (regime == BASE and name == f"{CONTROL}{SAMPLE}") or regime.startswith(CONTROL):
                continue
            for metric in (AGREEMENT, *judge_metrics):
                gaps += control_differences(split, {regime: means[split, regime]}, {name: row}, metric, seed)
    main = "score" if measured.world is not None else AGREEMENT
    for split in measured.prompts:
        for contrast in study.controls:
            regime_means, control_means = ({name: means[split, name]} for name in (contrast.regime, contrast.baseline))
            for metric in (main, *judge_metrics):
                gaps += control_differences(split, regime_means, control_means, metric, seed)
    return tuple(RegimeScores.of(split, name, row, seed) for (split, name), row in rows.items()), tuple(gaps)


def _by_seed(measured: Measurement, seed: int) -> Iterator[Difference]:
    """The difference of each run alone to the baseline, or to the baseline's run of the same seed."""
    for split in measured.prompts:
        for contrast in measured.study.seed_contrasts:
            baseline = measured.of(split, contrast.baseline)
            for own, plans in measured.of(split, contrast.regime).items():
                base = PromptMeans.of(baseline[own] if own in baseline else baseline[None])
                means = PromptMeans.of(plans)
                for difference in differences(split, contrast.regime, means, contrast.baseline, base, seed):
                    yield replace(difference, seed=own)


def _validations(run: Path, regime: str, seed: int) -> ValidationCurve:
    """The validations of a training run."""
    rows, _, unit = read_validations(run)
    points = (
        Validated(
            row["step"],
            row["kl_plan"],
            row["reward"],
            row[row["measure"]],
            row["steps"],
            None if row["gain"] is None else Interval(*row["gain"]),
        )
        for row in rows
    )
    return ValidationCurve(
        regime, rows[0]["measure"], tuple(points), len(rows[0]["prompts"]), rows[0]["plans"], unit, seed
    )


def _rerankings(measured: Measurement) -> Iterator[Reranking]:
    """What each choice among the base's samples gains; none where only the reward that chooses could tell."""
    if measured.world is None and measured.matcher is None:
        return
    study, main = measured.study, "score" if measured.world is not None else AGREEMENT
    for split in measured.prompts:
        for metric in (choice.metric for choice in study.choices if choice.chosen_from == BASE):
            [base] = measured.of(split, BASE).values()
            name = study.reward.verifier if study.reward is not None and metric == "reward" else metric
            paid = [replace(plan, reward=plan.metrics().get(metric)) for plan in base]
            yield Reranking.of(split, BASE, paid, study.config.best_of, main, study.config.seed, name)


def _lengths(measured: Measurement) -> Iterator[PlanLengths]:
    """Plan lengths of the reference continuations and of every regime, all seeds together."""
    for split, examples in measured.prompts.items():
        counts = Counter(len(example.continuation) for example in examples)
        yield PlanLengths(split, "reference", tuple(counts[steps] for steps in range(max(counts) + 1)))
        for regime in measured.plans:
            runs = measured.of(split, regime).values()
            yield PlanLengths.of(split, regime, [plan for plans in runs for plan in plans])


def _opening(run_dir: Path, measured: Measurement) -> ShownPrompt | None:
    """The prompt of the first split whose greedy plan gained most by training on the main reward, and under each line
    of that plan the narration that says it best; None without greedy plans, a reward or exact validity.
    """
    study = measured.study
    main = next((arm.regime for arm in study.reward_arms), "")
    before, after = f"{BASE}{GREEDY}", f"{main}{GREEDY}"
    if measured.world is None or study.reward is None or not {before, after} <= measured.plans.keys():
        return None
    split, examples = next(iter(measured.prompts.items()))
    plans = {
        regime: {plan.example_id: plan for plan in next(iter(measured.of(split, regime).values()))}
        for regime in (before, after)
    }

    def gain(example: Example) -> float:
        earlier, later = (plans[regime][example.example_id].metrics()["score"] for regime in (before, after))
        return later - earlier

    example = max(examples, key=gain)
    shown = [_shown_plan(regime, own[example.example_id], None) for regime, own in plans.items()]
    explained = explain(
        Verifier(Corpus.open(run_dir / CORPUS), study.reward),
        goal=example.goal,
        history=example.history,
        continuation=plans[after][example.example_id].texts,
    )
    said = {aligned.index: aligned.narration for aligned in explained.narrations}
    quotes = list[Quote | None]()
    for step in explained.plan_evidence:
        grounds = [ground for ground in step.grounds if not ground.opposite]
        quotes.append(None)
        if grounds:
            narration = said[grounds[0].narration]
            segment = whole_sentence(narration.segments, grounds[0].segment)
            quotes[-1] = Quote(segment.text, narration.video_id, when(segment), len(grounds), len(explained.about))
    shown[1] = replace(shown[1], quotes=tuple(quotes))
    return ShownPrompt(split, example.goal, example.history, tuple(shown))


def _shown_plan(regime: str, plan: ScoredPlan, reward: float | None) -> ShownPlan:
    """A plan line by line, with what is known of it."""
    if plan.reading is None or plan.validity is None:
        return ShownPlan(regime, tuple(map(PlanLine, plan.texts)), reward=reward)
    validity, missing = plan.validity.score, plan.reading.missing()
    return ShownPlan(regime, plan.reading.statuses(), missing=missing, validity=validity, reward=reward)


def _shown_prompts(run_dir: Path, measured: Measurement) -> Iterator[ShownPrompt]:
    """Evenly spaced prompts of each split: the reference, and the first plan of each regime's first seed."""
    study, count = measured.study, SHOWN
    prompts: list[tuple[Example, dict[str, ScoredPlan]]] = []
    for split, examples in measured.prompts.items():
        first: dict[str, dict[str, ScoredPlan]] = {}
        for regime in study.shown or measured.plans:
            sampled = next(iter(measured.of(split, regime).values()))
            # Reversed: of several samples the first one stays.
            first[regime] = {plan.example_id: plan for plan in reversed(sampled)}
        for example in examples[:: max(1, len(examples) // count)][:count]:
            reference = Prediction(example.example_id, example.continuation)
            [scored] = score_predictions(measured.world, [example], [reference])
            own = {regime: plan[example.example_id] for regime, plan in first.items()}
            prompts.append((example, {"reference": scored} | own))
    totals: list[list[float | None]] = [[None] * len(plans) for _, plans in prompts]
    if study.reward is not None:
        verifier = Verifier(Corpus.open(run_dir / CORPUS), study.reward)
        groups = [
            PromptGroup.of(example.goal, example.history, [plan.texts for plan in plans.values()])
            for example, plans in prompts
        ]
        totals = [[reward.total for reward in rewards] for rewards in score_or_raise(verifier, groups)]
    for (example, plans), rewards in zip(prompts, totals, strict=True):
        shown = tuple(
            _shown_plan(regime, plan, reward) for (regime, plan), reward in zip(plans.items(), rewards, strict=True)
        )
        yield ShownPrompt(example.split, example.goal, example.history, shown)
