"""From the settings of an experiment to its stages, and from its stages to a report."""

from pathlib import Path
from typing import Any

from recipe.artifacts import file_sha256, fingerprint
from recipe.config import BaseModelConfig, GRPOConfig, SFTConfig, parse_config
from recipe.data.benchmarks import require_benchmarks
from recipe.errors import ConfigError, InputError
from recipe.experiments import stages
from recipe.experiments.hand_made import HAND_MADE, HandMadePlans, reward_hand_made
from recipe.experiments.report import ReportSettings, write_report
from recipe.experiments.schedule import Stage, run_stages
from recipe.experiments.settings import Experiment, ExperimentConfig, FilesSource
from recipe.experiments.stages import Run
from recipe.progress import SILENT, Progress


def run_experiment(
    config: ExperimentConfig, run_dir: Path, data: Path | None = None, progress: Progress = SILENT
) -> Path:
    """Run what is missing of an experiment and write its report; returns the run folder.

    `data` is where the relative paths of a files source start. Raises what the stages raise.
    """
    run_stages(run_dir, plan_stages(config, data), config.workers, progress)
    return run_dir


def plan_stages(config: ExperimentConfig, data: Path | None = None) -> list[Stage]:
    """The stages of an experiment. Raises ConfigError or InputError before anything is run."""
    base, sft, grpo = _training(config)
    drawn, corpus = source_stages(config, data)
    sampling = config.sampling.model_copy(update={"seed": config.seed})
    plans = [
        Stage(
            f"plans-{run}",
            stages.sample,
            stages.Sampling(regime, grpo.reward, sampling, config.samples),
            (f"predictions/{run}.jsonl",),
            needs=(run, "corpus"),
        )
        for regime, run in stages.REGIMES.items()
    ]
    is_world = not isinstance(config.source, FilesSource)
    hand_made = HandMadePlans(grpo.reward, is_world, config.seed)
    plans.append(Stage("hand-made", reward_hand_made, hand_made, (HAND_MADE,), needs=("data", "corpus")))
    report = ReportSettings(config, grpo.reward)
    return [
        drawn,
        Stage("base", stages.base, base, ("base",), needs=("data",)),
        corpus,
        Stage("grpo", stages.grpo, grpo, ("grpo",), needs=("base", "corpus")),
        Stage("sft", stages.sft, sft, ("sft",), needs=("base",)),
        *plans,
        Stage("report", write_report, report, ("report.json", "report.html"), needs=tuple(plan.name for plan in plans)),
    ]


def _training(config: ExperimentConfig) -> tuple[BaseModelConfig, SFTConfig, GRPOConfig]:
    seed, adapted = config.seed, stages.ADAPTED
    return (
        base_settings(config),
        stage_settings(SFTConfig, "[sft]", config.sft, {**adapted, "output": "sft"}, seed),
        stage_settings(GRPOConfig, "[grpo]", config.grpo, {**adapted, "output": "grpo", "corpus": stages.CORPUS}, seed),
    )


def base_settings(config: Experiment) -> BaseModelConfig:
    """What the base planner of an experiment is trained with. Raises ConfigError."""
    paths = {"examples": stages.DOCUMENTS, "output": stages.BASE}
    return stage_settings(BaseModelConfig, "[base]", config.base, paths, config.seed)


def stage_settings(kind: type[Run], name: str, given: dict[str, Any], paths: dict[str, Any], seed: int) -> Run:
    """The settings of a stage from the keys `given` and the paths that the experiment sets. Raises ConfigError."""
    if owned := sorted(paths.keys() & given.keys()):
        raise ConfigError(f"{name}: an experiment sets {owned[0]!r} itself; remove the key.")
    return parse_config({"seed": seed, **given, **paths}, kind, name)


def source_stages(config: Experiment, data: Path | None) -> tuple[Stage, Stage]:
    """The stages that bring the data and the corpus. Raises InputError where the data is not there."""
    written = (stages.TRAIN, stages.TEST, stages.DOCUMENTS)
    if not isinstance(config.source, FilesSource):
        drawn = stages.WorldData(config.source, config.seed)
        return (
            Stage("data", stages.draw_world, drawn, (*written, stages.NARRATIONS)),
            Stage("corpus", stages.build, stages.CorpusBuild(config.corpus), (stages.CORPUS,), needs=("data",)),
        )
    root = (data or Path()).resolve()
    narrations = tuple(root / file for file in config.source.narrations)
    if missing := [file for file in narrations if not file.is_file()]:
        raise InputError.at(missing[0], "the narration file does not exist", "give its folder with --data")
    # What the files hold decides, not where they lie: a run goes on after its data has moved.
    build = stages.CorpusBuild(config.corpus, fingerprint([file_sha256(file) for file in narrations]), narrations)
    folders = require_benchmarks(root, config.source.benchmarks)
    sizes = [(str(f.relative_to(folder)), f.stat().st_size) for folder in folders.values() for f in _files(folder)]
    cut = stages.FilesData(config.source, config.seed, fingerprint(sizes), root)
    return (
        Stage("data", stages.cut_benchmarks, cut, written),
        Stage("corpus", stages.build, build, (stages.CORPUS,)),
    )


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())
