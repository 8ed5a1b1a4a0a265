"""From the settings of the video demo to its stages, and from its stages to a report."""

from pathlib import Path
from typing import Any

from recipe.config import GRPOConfig, SFTConfig
from recipe.experiments.pipeline import base_settings, source_stages, stage_settings
from recipe.experiments.schedule import Stage, run_stages
from recipe.experiments.stages import BASE, CORPUS, TRAIN
from recipe.experiments.video import stages
from recipe.experiments.video.report import VideoReport, write_report
from recipe.experiments.video.settings import VideoExperiment
from recipe.progress import SILENT, Progress
from recipe.world.examples import Carelessness


def run_video_demo(config: VideoExperiment, run_dir: Path, progress: Progress = SILENT) -> Path:
    """Run what is missing of the demo and write its report; returns the run folder. Raises what the stages raise."""
    run_stages(run_dir, plan_stages(config), config.workers, progress)
    return run_dir


def plan_stages(config: VideoExperiment) -> list[Stage]:
    """The stages of the demo, those that others wait for first. Raises ConfigError before anything is run."""
    data, corpus = source_stages(config, None)
    base = base_settings(config)
    lesson = stages.Lesson(config.eye, base.hidden_size, config.seed)
    runs = [stage for seed in config.seeds for stage in _runs(config, seed)]
    # Longest first within a kind: SFT of all seeds, then the plans that are made meanwhile.
    order = {"sft": 0, "grpo": 1, "plans": 2}
    runs.sort(key=lambda stage: order[stage.name.partition("-")[0]])
    plans = tuple(stage.name for stage in runs if stage.name.startswith("plans"))
    drawn = stages.Drawn(data.settings, Carelessness(**config.carelessness))
    return [
        Stage(data.name, stages.draw, drawn, data.outputs),
        Stage("base", stages.base, base, (BASE,), needs=("data",)),
        Stage("attributes", stages.attributes, lesson, (stages.ATTRIBUTES,)),
        Stage("words", stages.words, lesson, (stages.WORDS,), needs=("base", "attributes")),
        Stage(corpus.name, stages.build, corpus.settings, corpus.outputs, corpus.needs),
        Stage("align", stages.align, lesson, (stages.ALIGNED,), needs=("words", "data")),
        *runs,
        Stage("report", write_report, VideoReport(config), ("report.json", "report.html", "clips.png"), needs=plans),
    ]


def _runs(config: VideoExperiment, seed: int) -> list[Stage]:
    """SFT of a seed, GRPO from it, and the plans of both."""
    shared: dict[str, Any] = {"examples": TRAIN, "split": "", "input": "video", "seed": seed}
    sft_folder, grpo_folder = (stages.run_folder(kind, seed) for kind in ("sft", "grpo"))
    sft = stage_settings(
        SFTConfig, "[sft]", config.sft, {**shared, "model": f"{stages.ALIGNED}/model", "output": sft_folder}, seed
    )
    grpo = stage_settings(
        GRPOConfig,
        "[grpo]",
        config.grpo,
        {**shared, "model": f"{sft_folder}/model", "output": grpo_folder, "corpus": CORPUS},
        seed,
    )
    return [
        Stage(f"sft-{seed}", stages.sft, sft, (sft_folder,), needs=("align",)),
        Stage(f"grpo-{seed}", stages.grpo, grpo, (grpo_folder,), needs=(f"sft-{seed}", "corpus")),
        _plans(config, "sft", seed, stages.VIEWS),
        _plans(config, "grpo", seed, ("video", "other")),
    ]


def _plans(config: VideoExperiment, kind: str, seed: int, views: tuple[stages.View, ...]) -> Stage:
    sampling = config.sampling.model_copy(update={"seed": config.seed})
    return Stage(
        f"plans-{kind}-{seed}",
        stages.plan,
        stages.Views(stages.run_folder(kind, seed), views, sampling, config.samples),
        tuple(stages.plans_file(kind, seed, view) for view in views),
        needs=(f"{kind}-{seed}",),
    )
