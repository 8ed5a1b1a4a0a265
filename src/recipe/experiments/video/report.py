"""From what the video demo's stages left behind to its results, and from those to the report."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from recipe.artifacts import read_json, read_jsonl
from recipe.corpus.store import Corpus
from recipe.data.examples import read_examples
from recipe.evaluation.validity.measure import (
    PromptMeans,
    differences,
    line_statuses,
    mean_over_runs,
    prompt_means,
    score_predictions,
    summarise,
)
from recipe.experiments import results
from recipe.experiments.alarms import alarms_of
from recipe.experiments.page import write_html
from recipe.experiments.provenance import provenance
from recipe.experiments.schedule import stage_seconds
from recipe.experiments.stages import CORPUS, TEST
from recipe.experiments.video.findings import caveats, summary
from recipe.experiments.video.picture import draw_clips
from recipe.experiments.video.settings import VideoExperiment
from recipe.experiments.video.stages import (
    ATTRIBUTES,
    WORDS,
    View,
    cpu_seconds,
    plans_file,
    run_folder,
)
from recipe.planning.predictions import read_predictions
from recipe.progress import Progress
from recipe.text import plan_steps
from recipe.types import Example
from recipe.world.graph import World
from recipe.world.load import load_world
from recipe.world.validity import score_plan

NAMES: Mapping[View, str] = {
    "video": "video",
    "other": "other frames",
    "blank": "blank frames",
    "goal": "goal only",
    "text": "history as text",
}
"""What the report calls the views of the SFT models."""
VIDEO, OTHER = NAMES["video"], NAMES["other"]
AFTER = "video after GRPO"
OTHER_AFTER = "other frames after GRPO"
GAIN = "GRPO minus SFT, video"
RUNS = {("sft", view): name for view, name in NAMES.items()} | {
    ("grpo", "video"): AFTER,
    ("grpo", "other"): OTHER_AFTER,
}
"""Kind of run and view to the regime's name."""
SHOWN = (VIDEO, OTHER, "history as text", AFTER)
STAGES = {
    "data": "draw the data",
    "base": "train the base planner",
    "attributes": "eye, first lesson: symbols",
    "words": "eye, second lesson: words",
    "align": "eye, third lesson: clips",
    "corpus": "build the corpus",
}
KINDS = {"sft": "SFT", "plans-sft": "plans after SFT, five views", "grpo": "GRPO", "plans-grpo": "plans after GRPO"}
"""Stages of one kind are shown as one, with their times added."""


@dataclass(frozen=True, slots=True)
class VideoReport:
    """What the report is about."""

    config: VideoExperiment


@dataclass(frozen=True, slots=True)
class Measured:
    """Prompt means of every regime and seed: split to regime to seed."""

    world: World
    examples: Mapping[str, Sequence[Example]]
    by_seed: Mapping[str, Mapping[str, Mapping[int, PromptMeans]]]

    def pooled(self, split: str, regime: str) -> PromptMeans:
        """Each prompt's mean over the seeds."""
        return mean_over_runs(list(self.by_seed[split][regime].values()))


def write_report(run_dir: Path, settings: VideoReport, progress: Progress) -> None:
    """Write `report.json`, `report.html`, and a picture of what the planner sees."""
    with progress.task("writing the report", 3) as advance:
        measured = measure(run_dir, settings.config)
        draw_clips(measured.world, [own[0] for own in measured.examples.values()], run_dir / "clips.png")
        advance(1)
        found = collect(run_dir, settings.config, measured)
        results.save_results(run_dir / "report.json", found)
        advance(1)
        write_html(found, run_dir / "report.html")
        advance(1)


def measure(run_dir: Path, config: VideoExperiment) -> Measured:
    """The exact validity of every plan."""
    world, tested = load_world(), read_examples(run_dir / TEST)
    splits = {split: [e for e in tested if e.split == split] for split in dict.fromkeys(e.split for e in tested)}
    found: dict[str, dict[str, dict[int, PromptMeans]]] = {split: {} for split in splits}
    for (kind, view), regime in RUNS.items():
        for seed in config.seeds:
            scored = score_predictions(world, tested, read_predictions(run_dir / plans_file(kind, seed, view)))
            for split, examples in splits.items():
                asked = {example.example_id for example in examples}
                own = [plan for plan in scored if plan.example_id in asked]
                found[split].setdefault(regime, {})[seed] = prompt_means(own)
    return Measured(world, splits, found)


def collect(run_dir: Path, config: VideoExperiment, measured: Measured) -> results.Results:
    """All parts of the report."""
    further = {"eye": config.eye.model_dump(), "SFT": config.sft}
    found = results.Results(
        title=config.title,
        provenance=provenance(run_dir, config, Corpus.open(run_dir / CORPUS), config.seeds, further),
        stages=tuple(_stages(run_dir)),
        scores=tuple(
            summarise(split, regime, measured.pooled(split, regime), config.seed)
            for split in measured.examples
            for regime in RUNS.values()
        ),
        differences=tuple(_differences(config, measured)),
        by_seed=tuple(_by_seed(config, measured)),
        curves=tuple(_curve(run_dir, seed, measured.world) for seed in config.seeds),
        prompts=tuple(_shown(run_dir, config, measured)),
        alarms=tuple(
            alarm for seed in config.seeds for alarm in alarms_of(run_dir / run_folder("grpo", seed), "GRPO", seed)
        ),
    )
    return replace(found, summary=summary(found, _seen(run_dir)), caveats=caveats(config))


def _differences(config: VideoExperiment, measured: Measured) -> Iterator[results.Difference]:
    """Every regime against other frames, and what GRPO adds, over the mean of the seeds."""
    for split in measured.examples:
        other = measured.pooled(split, OTHER)
        for regime in (VIDEO, "history as text", "goal only", "blank frames", AFTER):
            yield from differences(split, regime, measured.pooled(split, regime), OTHER, other, config.seed)
        after, before = (measured.pooled(split, regime) for regime in (AFTER, VIDEO))
        yield from differences(split, GAIN, after, VIDEO, before, config.seed)


def _by_seed(config: VideoExperiment, measured: Measured) -> Iterator[results.Difference]:
    """What each run alone reads: its video against its own other frames."""
    for split, runs in measured.by_seed.items():
        for regime, baseline in ((VIDEO, OTHER), (AFTER, OTHER_AFTER)):
            for seed in config.seeds:
                own = differences(split, regime, runs[regime][seed], OTHER, runs[baseline][seed], config.seed)
                yield from (replace(difference, seed=seed) for difference in own)


def _curve(run_dir: Path, seed: int, world: World) -> results.Curve:
    """A GRPO run step by step, with the exact validity of its own roll-outs."""
    folder = run_dir / run_folder("grpo", seed)
    rows = [row for _, row in read_jsonl(folder / "metrics.jsonl")]
    fields = {"reward": "reward", "length": "steps", "kl": "kl", "clipped": "clipped_ratio"}
    series = {name: tuple(row.get(field) for row in rows) for name, field in fields.items()}
    series["validity"] = tuple(_rollout_validity(folder, row["step"], world) for row in rows)
    return results.Curve("GRPO", tuple(row["step"] for row in rows), series, seed)


def _stages(run_dir: Path) -> Iterator[results.Stage]:
    seconds, spent = stage_seconds(run_dir), cpu_seconds(run_dir)
    for name, title in STAGES.items():
        if name in seconds:
            yield results.Stage(title, seconds[name], f"{spent[name]:.0f} CPU s" if name in spent else "")
    for kind, title in KINDS.items():
        own = [name for name in seconds if name.rpartition("-")[0] == kind]
        if own:
            used = sum(spent.get(name, 0.0) for name in own)
            yield results.Stage(
                title, sum(seconds[name] for name in own), f"{len(own)} stages, {used:.0f} CPU s in all"
            )


def _seen(run_dir: Path) -> dict[str, dict[str, float]]:
    """Shares that the eye told right after its lessons, by style."""
    return {name: read_json(run_dir / name / "seen.json") for name in (ATTRIBUTES, WORDS)}


def _rollout_validity(folder: Path, step: int, world: World) -> float:
    rows = [row for _, row in read_jsonl(folder / "completions" / f"step-{step:05d}.jsonl")]
    plans = (plan_steps(row["completion"]) for row in rows)
    return fmean(
        score_plan(world, row["goal"], row["history"], plan).score for row, plan in zip(rows, plans, strict=True)
    )


def _shown(run_dir: Path, config: VideoExperiment, measured: Measured) -> Iterator[results.ShownPrompt]:
    """Evenly spaced prompts of each split: the reference, and the first sample of the first seed for some views."""
    first = config.seeds[0]
    sampled = {
        (regime, prediction.example_id): prediction.steps
        for (kind, view), regime in RUNS.items()
        if regime in SHOWN
        for prediction in read_predictions(run_dir / plans_file(kind, first, view))
        if prediction.sample == 0
    }
    for split, examples in measured.examples.items():
        for example in examples[:: max(1, len(examples) // config.shown)][: config.shown]:
            plans = {"reference": example.continuation}
            plans |= {regime: sampled[regime, example.example_id] for regime in SHOWN}
            shown = tuple(_shown_plan(measured.world, example, regime, steps) for regime, steps in plans.items())
            yield results.ShownPrompt(split, example.goal, example.history, shown)


def _shown_plan(world: World, example: Example, regime: str, steps: Sequence[str]) -> results.ShownPlan:
    lines = line_statuses(world, example.goal, example.history, steps)
    return results.ShownPlan(regime, lines, score_plan(world, example.goal, example.history, steps).score)
