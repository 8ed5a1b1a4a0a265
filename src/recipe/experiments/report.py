"""From what an experiment's stages left behind to its results, and from those to the report."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from recipe.artifacts import read_jsonl
from recipe.config import RewardConfig
from recipe.corpus.store import Corpus
from recipe.data.examples import read_examples
from recipe.evaluation.validity.measure import (
    PromptMeans,
    ScoredPlan,
    best_of,
    differences,
    line_statuses,
    plan_lengths,
    prompt_means,
    reranking,
    score_predictions,
    summarise,
)
from recipe.experiments import results
from recipe.experiments.alarms import alarms_of
from recipe.experiments.findings import caveats, summary
from recipe.experiments.hand_made import read_hand_made
from recipe.experiments.page import write_html
from recipe.experiments.provenance import provenance
from recipe.experiments.schedule import stage_seconds
from recipe.experiments.settings import ExperimentConfig, WorldSource
from recipe.experiments.stages import BASE, CORPUS, REGIMES, TEST, predictions_path
from recipe.planning.predictions import Prediction, read_predictions
from recipe.progress import Progress
from recipe.reward.scorer import PromptGroup, score_or_raise
from recipe.reward.verifier import Verifier
from recipe.types import Example, Reward
from recipe.world.graph import World
from recipe.world.load import load_world
from recipe.world.validity import score_plan

Value = TypeVar("Value")

TRAINED = "RL"
STAGES = {
    "data": "draw the data",
    "corpus": "build the corpus",
    "base": "train the base planner",
    "sft": "SFT",
    "grpo": "GRPO",
    "plans-base": "plans of the base",
    "plans-sft": "plans after SFT",
    "plans-grpo": "plans after RL",
    "hand-made": "hand-made plans",
}


@dataclass(frozen=True, slots=True)
class ReportSettings:
    """What the report is about."""

    config: ExperimentConfig
    reward: RewardConfig


@dataclass(frozen=True, slots=True)
class Measured:
    """Test prompts and the scored plans of every regime, by split."""

    examples: Mapping[str, Sequence[Example]]
    plans: Mapping[str, Mapping[str, Sequence[ScoredPlan]]]
    """Split to regime to plans."""
    world: World | None


def write_report(run_dir: Path, settings: ReportSettings, progress: Progress) -> None:
    """Write `report.json` and `report.html`."""
    with progress.task("writing the report", 3) as advance:
        measured = measure(run_dir, settings)
        advance(1)
        found = collect(run_dir, settings, measured)
        results.save_results(run_dir / "report.json", found)
        advance(1)
        write_html(found, run_dir / "report.html")
        advance(1)


def measure(run_dir: Path, settings: ReportSettings) -> Measured:
    """Every sampled plan with its reward and, on the world, its exact validity."""
    config = settings.config
    world = load_world() if isinstance(config.source, WorldSource) else None
    examples = read_examples(run_dir / TEST)
    splits = {split: [e for e in examples if e.split == split] for split in dict.fromkeys(e.split for e in examples)}
    split_of = {example.example_id: example.split for example in examples}
    plans: dict[str, dict[str, Sequence[ScoredPlan]]] = {split: {} for split in splits}
    for regime in REGIMES:
        scored = score_predictions(world, examples, read_predictions(predictions_path(run_dir, regime)))
        for split, own in plans.items():
            own[regime] = [plan for plan in scored if split_of[plan.example_id] == split]
    for own in plans.values():
        own[best_name(config.best_of)] = best_of(own[BASE], config.best_of)
    return Measured(splits, plans, world)


def best_name(count: int) -> str:
    """The regime of taking the verifier's choice among the base's first samples."""
    return f"best of {count}"


def collect(run_dir: Path, settings: ReportSettings, measured: Measured) -> results.Results:
    """All parts of the report."""
    config, seed = settings.config, settings.config.seed
    means = {
        split: {regime: prompt_means(plans) for regime, plans in own.items()} for split, own in measured.plans.items()
    }
    corpus = Corpus.open(run_dir / CORPUS)
    seconds = stage_seconds(run_dir)
    found = results.Results(
        title=config.title,
        provenance=provenance(run_dir, config, corpus, (seed,), {"SFT": config.sft}),
        stages=tuple(results.Stage(STAGES[name], seconds[name]) for name in STAGES if name in seconds),
        scores=tuple(
            _row(split, regime, means[split][regime], plans, seed) for split, regime, plans in _flat(measured.plans)
        ),
        differences=tuple(
            difference
            for split, regime, mean in _flat(means)
            if regime != BASE
            for difference in differences(split, regime, mean, BASE, means[split][BASE], seed)
        ),
        curves=(curve(run_dir, measured.world, seed),),
        rerankings=tuple(_rerankings(measured, config)),
        lengths=tuple(_lengths(measured)),
        prompts=tuple(_shown(run_dir, config, measured, Verifier(corpus, settings.reward))),
        hand_made=read_hand_made(run_dir),
        alarms=tuple(alarms_of(run_dir / REGIMES[TRAINED], TRAINED, seed)),
    )
    return replace(found, summary=summary(found, training_rows(run_dir)), caveats=caveats(config))


def curve(run_dir: Path, world: World | None, seed: int) -> results.Curve:
    """The GRPO run step by step, with the exact validity of its own roll-outs where it is known."""
    rows = training_rows(run_dir)
    fields = {"reward": "reward", "length": "steps", "kl": "kl", "gated": "gated", "clipped": "clipped_ratio"}
    series = {name: tuple(row.get(field) for row in rows) for name, field in fields.items()}
    if world is not None:
        series["validity"] = tuple(_rollout_validity(run_dir, row["step"], world) for row in rows)
    return results.Curve(TRAINED, tuple(row["step"] for row in rows), series, seed)


def training_rows(run_dir: Path) -> list[dict[str, Any]]:
    """Metrics of the GRPO run, one row a step."""
    return [row for _, row in read_jsonl(run_dir / "grpo" / "metrics.jsonl")]


def _row(split: str, regime: str, means: PromptMeans, plans: Sequence[ScoredPlan], seed: int) -> results.Scores:
    """A regime's means; that of the KL is over the plans it was estimated from."""
    row = summarise(split, regime, means, seed)
    weighed = [plan for plan in plans if plan.kl is not None]
    if weighed:
        row.metrics["kl"] = summarise(split, regime, prompt_means(weighed), seed).metrics["kl"]
    return row


def _rerankings(measured: Measured, config: ExperimentConfig) -> Iterator[results.Reranking]:
    """What the verifier's choice is worth; where the truth is not known, it would be measured by itself."""
    if measured.world is not None:
        for split, plans in measured.plans.items():
            yield reranking(split, BASE, plans[BASE], config.best_of, seed=config.seed)


def _lengths(measured: Measured) -> Iterator[results.Lengths]:
    """Plan lengths of the true continuations and of every regime."""
    for split, examples in measured.examples.items():
        counts = Counter(len(example.continuation) for example in examples)
        yield results.Lengths(split, "reference", tuple(counts[steps] for steps in range(max(counts) + 1)))
        for regime, plans in measured.plans[split].items():
            yield plan_lengths(split, regime, plans)


def _flat(table: Mapping[str, Mapping[str, Value]]) -> list[tuple[str, str, Value]]:
    return [(split, regime, value) for split, own in table.items() for regime, value in own.items()]


def _rollout_validity(run_dir: Path, step: int, world: World) -> float:
    rows = [row for _, row in read_jsonl(run_dir / "grpo" / "completions" / f"step-{step:05d}.jsonl")]
    said = [Prediction.of(row["example_id"], 0, row["completion"]).steps for row in rows]
    scored = (score_plan(world, row["goal"], row["history"], plan) for row, plan in zip(rows, said, strict=True))
    return fmean(validity.score for validity in scored)


def _shown(
    run_dir: Path, config: ExperimentConfig, measured: Measured, verifier: Verifier
) -> Iterator[results.ShownPrompt]:
    """Evenly spaced prompts of each split: the reference, each regime's first sample, the verifier's choice."""
    prompts: list[tuple[str, Example, dict[str, Sequence[str]]]] = []
    sampled = {
        (regime, prediction.example_id, prediction.sample): prediction.steps
        for regime in REGIMES
        for prediction in read_predictions(predictions_path(run_dir, regime))
    }
    best = best_name(config.best_of)
    for split, examples in measured.examples.items():
        chosen = {plan.example_id: plan.sample for plan in measured.plans[split][best]}
        for example in examples[:: max(1, len(examples) // config.shown)][: config.shown]:
            plans: dict[str, Sequence[str]] = {"reference": example.continuation}
            plans |= {regime: sampled[regime, example.example_id, 0] for regime in REGIMES}
            plans[best] = sampled[BASE, example.example_id, chosen[example.example_id]]
            prompts.append((split, example, plans))
    groups = [PromptGroup.of(example.goal, example.history, list(plans.values())) for _, example, plans in prompts]
    for prompt, rewards in zip(prompts, score_or_raise(verifier, groups), strict=True):
        yield _shown_prompt(*prompt, rewards, measured.world)


def _shown_prompt(
    split: str, example: Example, plans: Mapping[str, Sequence[str]], rewards: Sequence[Reward], world: World | None
) -> results.ShownPrompt:
    shown = []
    for (regime, steps), reward in zip(plans.items(), rewards, strict=True):
        lines, validity = tuple(results.Line(step) for step in steps), None
        if world is not None:
            lines = line_statuses(world, example.goal, example.history, steps)
            validity = score_plan(world, example.goal, example.history, steps).score
        shown.append(results.ShownPlan(regime, lines, validity, reward.total))
    return results.ShownPrompt(split, example.goal, example.history, tuple(shown))
