"""From what an experiment's stages left in the run folder to its results, and from those to the report."""

import os
import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

import torch

from recipe.artifacts import installed, read_json, read_jsonl
from recipe.config import GRPOConfig, RewardTrainingSettings
from recipe.corpus.store import Corpus
from recipe.evaluation.controls import SAMPLE, control_differences
from recipe.evaluation.match import MAIN as AGREEMENT
from recipe.evaluation.metrics import CONTROL
from recipe.evaluation.validity.measure import (
    Difference,
    PlanLengths,
    PromptMeans,
    RegimeScores,
    Reranking,
    ScoredPlan,
    differences,
    mean_over_runs,
    plan_lengths,
    prompt_means,
    reranking,
    score_predictions,
    summarise,
)
from recipe.evaluation.validity.readings import PlanLine
from recipe.planning.predictions import Prediction
from recipe.progress import Progress
from recipe.reward.scorer import PromptGroup, score_or_raise
from recipe.reward.verifier import Verifier
from recipe.reward.watchdog import read_records, replay
from recipe.rows import from_json
from recipe.types import Example
from recipe_studies.experiments.design import (
    ATTRIBUTES,
    BASE,
    CORPUS,
    DOCUMENTS,
    TEST,
    TRAIN,
    WORDS,
    Design,
    design_of,
)
from recipe_studies.experiments.findings import caveats, summary
from recipe_studies.experiments.measure import Measurement, measure, rewarded_by, training_curve, training_rows
from recipe_studies.experiments.over_optimisation import read_validations
from recipe_studies.experiments.page import rerender
from recipe_studies.experiments.probes import PROBES
from recipe_studies.experiments.results import (
    Alarm,
    Cost,
    LawPoint,
    ProbePlan,
    Provenance,
    Results,
    ShownPlan,
    ShownPrompt,
    StageTime,
    ValidationCurve,
    save_results,
)
from recipe_studies.experiments.schedule import stage_times
from recipe_studies.experiments.settings import AnyExperiment, VideoConfig
from recipe_studies.experiments.video import ACCURACY, draw_clips

PACKAGES = ("recipe-planner", "torch", "transformers", "trl", "peft", "sentence-transformers", "numpy", "numba")
_JUDGED = ("proxy",)
"""What a design that asks for a judge compares with controls beside the main metric."""
STAGES = {
    "data": "draw the data",
    "validation": "draw the data",
    "corpus": "build the corpus",
    "base": "train the base planner",
    "attributes": "vision pre-training 1, attributes",
    "words": "vision pre-training 2, words",
    "align": "vision pre-training 3, alignment",
    "sft": "SFT",
    "grpo": "GRPO",
    "teach": "training of the arms",
    "best-of-n": "best-of-N rounds",
    "plans-base": "plans of the base",
    "plans-sft": "plans after SFT",
    "plans-grpo": "plans after GRPO",
    "plans-best-of-n": "plans after best-of-N rounds",
    "plans": "plans after GRPO",
    "rewards": "rewards of all plans",
    "hand-made": "probe plans",
}
"""Stages, or beginnings of their names, and what the report calls them; times of one title are added."""


@dataclass(frozen=True, slots=True)
class ReportSettings:
    """The experiment that the report is about."""

    config: AnyExperiment


def write_report(run_dir: Path, settings: ReportSettings, progress: Progress) -> None:
    """Write `report.json`, `report.html` and, for video, `clips.png`, a picture of what the planner is shown."""
    config = settings.config
    with progress.task("writing the report", 3) as advance:
        measured = measure(run_dir, design_of(config), world=config.has_world, best_of_count=config.best_of)
        if isinstance(config, VideoConfig) and measured.world is not None:
            draw_clips(measured.world, [examples[0] for examples in measured.prompts.values()], run_dir / "clips.png")
        advance(1)
        results = collect(run_dir, config, measured)
        save_results(run_dir / "report.json", results)
        advance(1)
        rerender(run_dir)
        advance(1)


def collect(run_dir: Path, config: AnyExperiment, measured: Measurement) -> Results:
    """All parts of the report; a part that this experiment does not have is empty."""
    design, seed = measured.design, config.seed
    means = {
        (split, regime): mean_over_runs([prompt_means(plans) for plans in measured.of(split, regime).values()])
        for split in measured.prompts
        for regime in measured.plans
    }
    controls = {(split, name): row for split in measured.prompts for name, row in _controls(measured, split)}
    results = Results(
        title=config.title,
        provenance=_provenance(run_dir, config, measured),
        stages=tuple(_stages(run_dir)),
        scores=tuple(_scores(measured, split, regime, mean, seed) for (split, regime), mean in means.items()),
        differences=tuple(
            difference
            for split in measured.prompts
            for contrast in design.contrasts
            for difference in differences(
                split,
                contrast.name or contrast.regime,
                means[split, contrast.regime],
                contrast.baseline,
                means[split, contrast.baseline],
                seed,
            )
        ),
        by_seed=tuple(_by_seed(measured, seed)),
        controls=tuple(summarise(split, name, row, seed) for (split, name), row in controls.items()),
        control_differences=(
            *(
                difference
                for (split, name), row in controls.items()
                for regime in measured.plans
                if not (regime == BASE and name == f"{CONTROL}{SAMPLE}") and not regime.startswith(CONTROL)
                for metric in (AGREEMENT, *_JUDGED[: design.judged])
                for difference in control_differences(split, {regime: means[split, regime]}, {name: row}, metric, seed)
            ),
            *_trained_controls(measured, means, seed),
        ),
        curves=tuple(training_curve(run_dir, measured, run) for run in design.reward_runs),
        validations=tuple(_validations(run_dir, design)),
        rerankings=tuple(_rerankings(measured, config)),
        lengths=tuple(_lengths(measured)),
        prompts=tuple(_shown_prompts(run_dir, config, measured)),
        hand_made=_probes(run_dir) if design.reward is not None else (),
        costs=tuple(_costs(run_dir, measured)),
        alarms=tuple(
            Alarm(run.regime, finding.since, finding.sentence, run.config.seed)
            for run in design.reward_runs
            for finding in replay(read_records(run_dir / run.folder)).findings
        ),
    )
    results = replace(results, law=tuple(_law(results, design)))
    stages = (ATTRIBUTES, WORDS) if isinstance(config, VideoConfig) else ()
    recognised = {name: read_json(run_dir / name / ACCURACY)["unseen"] for name in stages}
    return replace(results, summary=summary(results, tuple(recognised.values())), caveats=caveats(config, design))


def _provenance(run_dir: Path, config: AnyExperiment, measured: Measurement) -> Provenance:
    """What it takes to run the experiment again."""
    files = {"base planner": DOCUMENTS, "training": TRAIN, "test": TEST}
    there = {name: run_dir / path for name, path in files.items() if (run_dir / path).is_file()}
    data = {name: f"{sum(1 for _ in read_jsonl(path))} examples" for name, path in there.items()}
    manifest = Corpus.open(run_dir / CORPUS).manifest
    narrated = f"{manifest['narrations']} narrations, {manifest['segments']} segments"
    sampling = config.sampling.model_dump(include={"temperature", "max_tokens"})
    settings = {
        "base planner": {"model": config.model} if config.model else config.base,
        **measured.design.settings,
        **(
            {"GRPO": config.grpo} if any(isinstance(run.config, GRPOConfig) for run in measured.design.training) else {}
        ),
        "sampling": {**sampling, "samples": config.samples},
    }
    return Provenance(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        seeds=measured.design.seeds,
        versions={"python": platform.python_version(), **installed(PACKAGES)},
        device=f"{'CUDA' if torch.cuda.is_available() else 'CPU'}, {os.cpu_count()} cores",
        settings={
            name: ", ".join(f"{key} {value}" for key, value in values.items()) for name, values in settings.items()
        },
        data=data | {"verification corpus": f"{narrated}, encoder {manifest['encoder']['name']}"},
    )


def _stages(run_dir: Path) -> Iterator[StageTime]:
    """Times of the finished stages, those of one title added."""
    groups: dict[str, list[tuple[float, float]]] = {title: [] for title in STAGES.values()}
    for name, both in stage_times(run_dir).items():
        title = next((title for kind, title in STAGES.items() if f"{name}-".startswith(f"{kind}-")), None)
        if title is not None:
            groups[title].append(both)
    for title, times in groups.items():
        if times:
            several = f"{len(times)} stages, " if len(times) > 1 else ""
            cpu_seconds = sum(cpu for _, cpu in times)
            yield StageTime(title, sum(wall for wall, _ in times), f"{several}{cpu_seconds:.0f} CPU s")


def _scores(measured: Measurement, split: str, regime: str, means: PromptMeans, seed: int) -> RegimeScores:
    """A regime's means; that of the KL is over the plans it was estimated from."""
    row = summarise(split, regime, means, seed)
    for ranker in measured.design.rankers:
        if ranker.base_only:
            row.metrics.pop(ranker.name, None)
    estimated = [[plan for plan in plans if plan.kl is not None] for plans in measured.of(split, regime).values()]
    if all(estimated):
        mean = mean_over_runs([prompt_means(plans) for plans in estimated])
        row.metrics["kl"] = summarise(split, regime, mean, seed).metrics["kl"]
    return row


def _controls(measured: Measurement, split: str) -> Iterator[tuple[str, PromptMeans]]:
    """The controls of a split by the names of their rows, which count the prompts where not all have one."""
    asked = {example.example_id for example in measured.prompts[split]}
    for control, plans in measured.controls.items():
        own = [plan for plan in plans if plan.example_id in asked]
        few = f", {len(own)} prompts" if len(own) < len(asked) else ""
        if own:
            yield f"{CONTROL}{control}{few}", prompt_means(own)


def _trained_controls(
    measured: Measurement, means: Mapping[tuple[str, str], PromptMeans], seed: int
) -> Iterator[Difference]:
    """Each regime minus the trained controls that it has to beat."""
    main = "score" if measured.world is not None else AGREEMENT
    for split in measured.prompts:
        for one in measured.design.controls:
            regime, control = ({name: means[split, name]} for name in (one.regime, one.baseline))
            for metric in (main, *_JUDGED[: measured.design.judged]):
                yield from control_differences(split, regime, control, metric, seed)


def _law(results: Results, design: Design) -> Iterator[LawPoint]:
    """The learning law from the differences to the base."""
    metric = results.main_metric()
    gain = {
        (one.split, one.regime): one.value
        for one in results.differences
        if (one.baseline, one.metric) == (BASE, metric)
    }
    for split in results.splits():
        for level in sorted(design.law, key=lambda level: level.narrations):
            yield LawPoint(split, level.narrations, gain[split, level.trained], gain[split, level.chosen])


def _by_seed(measured: Measurement, seed: int) -> Iterator[Difference]:
    """The difference of each run alone to the baseline, or to the baseline's run of the same seed."""
    for split in measured.prompts:
        for contrast in measured.design.seed_contrasts:
            baseline = measured.of(split, contrast.baseline)
            for own, plans in measured.of(split, contrast.regime).items():
                base = prompt_means(baseline[own] if own in baseline else baseline[None])
                means = prompt_means(plans)
                for difference in differences(split, contrast.regime, means, contrast.baseline, base, seed):
                    yield replace(difference, seed=own)


def _rerankings(measured: Measurement, config: AnyExperiment) -> Iterator[Reranking]:
    """What each choice among the base's samples gains; none where only the reward that chooses could tell."""
    if measured.world is None and measured.matcher is None:
        return
    main, reward = "score" if measured.world is not None else AGREEMENT, measured.design.reward
    for split in measured.prompts:
        for choice in measured.design.choices:
            [base] = measured.of(split, BASE).values()
            name = reward.verifier if reward is not None and choice.metric == "reward" else choice.metric
            paid = rewarded_by(base, choice.metric)
            yield reranking(split, BASE, paid, config.best_of, main, config.seed, name)


def _validations(run_dir: Path, design: Design) -> Iterator[ValidationCurve]:
    """Of the runs that the design lets validate."""
    for run in design.reward_runs:
        if isinstance(run.config, RewardTrainingSettings) and run.config.validation is not None:
            yield read_validations(run_dir / run.folder, run.regime, run.config.seed)


def _lengths(measured: Measurement) -> Iterator[PlanLengths]:
    """Plan lengths of the reference continuations and of every regime, all seeds together."""
    for split, examples in measured.prompts.items():
        counts = Counter(len(example.continuation) for example in examples)
        yield PlanLengths(split, "reference", tuple(counts[steps] for steps in range(max(counts) + 1)))
        for regime in measured.plans:
            runs = measured.of(split, regime).values()
            yield plan_lengths(split, regime, [plan for plans in runs for plan in plans])


def _costs(run_dir: Path, measured: Measurement) -> Iterator[Cost]:
    """What the reward takes of a GRPO step, by regime."""
    spent: dict[str, list[tuple[float, float]]] = {}
    for run in measured.design.reward_runs:
        rows = [row for row in training_rows(run_dir, run) if "reward_seconds" in row]
        spent.setdefault(run.regime, []).extend((row["reward_seconds"], row["step_seconds"]) for row in rows)
    for regime, steps in spent.items():
        if steps:
            reward, step = (fmean(part) for part in zip(*steps, strict=True))
            yield Cost(regime, reward, step, fmean(own / whole for own, whole in steps))


def _probes(run_dir: Path) -> tuple[ProbePlan, ...]:
    path = run_dir / PROBES
    return from_json(read_json(path), tuple[ProbePlan, ...], str(path))


def _shown_prompts(run_dir: Path, config: AnyExperiment, measured: Measurement) -> Iterator[ShownPrompt]:
    """Evenly spaced prompts of each split: the reference, and the first plan of each regime's first seed."""
    prompts: list[tuple[Example, dict[str, ScoredPlan]]] = []
    for split, examples in measured.prompts.items():
        first: dict[str, dict[str, ScoredPlan]] = {}
        for regime in measured.design.shown or measured.plans:
            sampled = next(iter(measured.of(split, regime).values()))
            first[regime] = {plan.example_id: plan for plan in reversed(sampled)}
        for example in examples[:: max(1, len(examples) // config.shown)][: config.shown]:
            reference = Prediction(example.example_id, example.continuation)
            [scored] = score_predictions(measured.world, [example], [reference])
            own = {regime: plan[example.example_id] for regime, plan in first.items()}
            prompts.append((example, {"reference": scored} | own))
    totals: list[list[float | None]] = [[None] * len(plans) for _, plans in prompts]
    if measured.design.reward is not None:
        verifier = Verifier(Corpus.open(run_dir / CORPUS), measured.design.reward)
        groups = [
            PromptGroup.of(example.goal, example.history, [plan.texts for plan in plans.values()])
            for example, plans in prompts
        ]
        totals = [[reward.total for reward in rewards] for rewards in score_or_raise(verifier, groups)]
    for (example, plans), rewards in zip(prompts, totals, strict=True):
        shown = tuple(
            ShownPlan(
                regime,
                tuple(map(PlanLine, plan.texts)) if plan.reading is None else plan.reading.statuses(),
                None if plan.validity is None else plan.validity.score,
                reward,
            )
            for (regime, plan), reward in zip(plans.items(), rewards, strict=True)
        )
        yield ShownPrompt(example.split, example.goal, example.history, shown)
