"""From the settings of a comparison to its stages."""

from pathlib import Path

from recipe.config import GRPOConfig, RewardConfig
from recipe.errors import ConfigError
from recipe.experiments import stages
from recipe.experiments.comparison.report import ComparisonReport, write_comparison
from recipe.experiments.comparison.settings import ComparisonConfig, RewardName
from recipe.experiments.comparison.stages import (
    Plans,
    Ranking,
    RewardedRun,
    plan,
    plans_file,
    rank,
    rewarded_file,
    run_folder,
    run_name,
    train,
)
from recipe.experiments.pipeline import base_settings, source_stages, stage_settings
from recipe.experiments.schedule import Stage, run_stages
from recipe.progress import SILENT, Progress


def run_comparison(
    config: ComparisonConfig, run_dir: Path, data: Path | None = None, progress: Progress = SILENT
) -> Path:
    """Run what is missing of a comparison and write its report; returns the run folder. Raises as the stages do."""
    run_stages(run_dir, plan_comparison(config, data), config.workers, progress)
    return run_dir


def plan_comparison(config: ComparisonConfig, data: Path | None = None) -> list[Stage]:
    """The stages of a comparison. Raises ConfigError or InputError before anything is run."""
    base = Stage("base", stages.base, base_settings(config), (stages.BASE,), needs=("data",))
    trained = [_training(config, reward, seed) for seed in config.seeds for reward in config.rewards]
    drawn, corpus = source_stages(config, data)
    runs = (stages.BASE, *(run_name(reward, seed) for seed in config.seeds for reward in config.rewards))
    sampling = config.sampling.model_copy(update={"seed": config.seed})
    plans = [
        Stage(f"plans-{run}", plan, Plans(run, sampling, config.samples), (plans_file(run),), needs=(_stage_of(run),))
        for run in runs
    ]
    rankings = [
        Stage(
            f"rewards-{ranker}",
            rank,
            Ranking(ranker, None if ranker == "relevance" else config.verifier(ranker), runs),
            tuple(rewarded_file(ranker, run) for run in runs),
            needs=("corpus", *(stage.name for stage in plans)),
        )
        for ranker in config.rankers
    ]
    outputs = ("report.json", "report.html")
    needs = tuple(stage.name for stage in rankings)
    report = Stage("report", write_comparison, ComparisonReport(config), outputs, needs=needs)
    return [drawn, base, corpus, *trained, *plans, *rankings, report]


def _stage_of(run: str) -> str:
    return run if run == stages.BASE else f"grpo-{run}"


def _training(config: ComparisonConfig, reward: RewardName, seed: int) -> Stage:
    if owned := sorted({"reward", "seed"} & config.grpo.keys()):
        key = {"reward": "[verifiers]", "seed": "seeds"}[owned[0]]
        raise ConfigError(f"[grpo]: a comparison sets {owned[0]!r} by {key}; remove the key.")
    run = run_name(reward, seed)
    paths = {**stages.ADAPTED, "output": run_folder(run), "corpus": stages.CORPUS}
    settings = stage_settings(GRPOConfig, "[grpo]", config.grpo, paths, seed)
    verifier = RewardConfig() if reward == "validity" else config.verifier(reward)
    run_settings = RewardedRun(reward, settings.model_copy(update={"reward": verifier}))
    return Stage(_stage_of(run), train, run_settings, (run_folder(run),), needs=("base", "corpus"))
