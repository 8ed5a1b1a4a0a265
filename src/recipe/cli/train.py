"""Commands of `recipe train`: a config in, a standalone model folder out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recipe.cli.console import out, print_json, progress

if TYPE_CHECKING:
    from recipe.config import Settings

app = typer.Typer(no_args_is_help=True, help="Train a planner: from scratch, SFT, or GRPO on the verifier.")

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="Settings of the run.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the resolved settings and stop.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@app.command()
def base(config: ConfigFile, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Train a small language model from scratch, so that nothing has to be downloaded.

    Example: recipe train base base.toml
    """
    from recipe.config import BaseModelConfig, load_config

    settings = load_config(config, BaseModelConfig)
    if dry_run:
        print_json(settings.model_dump(mode="json"))
        return
    with_packages("base")
    from recipe.artifacts import locked
    from recipe.training.base import train_base

    with locked(settings.output):
        show(settings, train_base(settings, progress()), as_json)


@app.command()
def sft(config: ConfigFile, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Fine-tune on the reference continuations, from text or from videos; run it again to resume.

    Example: recipe train sft configs/sft-qwen2.5-3b.toml
    """
    from recipe.config import SFTConfig, load_config

    settings = load_config(config, SFTConfig)
    if dry_run:
        print_json(settings.model_dump(mode="json"))
        return
    with_packages("sft")
    from recipe.artifacts import locked
    from recipe.training.sft import train_sft

    with locked(settings.output):
        show(settings, train_sft(settings, progress()), as_json)


@app.command()
def grpo(config: ConfigFile, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Train on the verifier's reward, from text or from videos; run it again to resume.

    Example: recipe train grpo configs/grpo-qwen2.5-3b.toml
    """
    from recipe.config import GRPOConfig, load_config

    settings = load_config(config, GRPOConfig)
    if dry_run:
        print_json(settings.model_dump(mode="json"))
        return
    with_packages("grpo")
    from recipe.artifacts import locked
    from recipe.corpus.store import Corpus
    from recipe.reward.verifier import Verifier
    from recipe.training.grpo import train_grpo

    verifier = Verifier(Corpus.open(settings.corpus, devices=settings.corpus_devices), settings.reward)
    with locked(settings.output):
        show(settings, train_grpo(settings, verifier, progress()), as_json)


def with_packages(stage: str) -> None:
    """Raises MissingExtra where the training packages are not installed."""
    from recipe.experiments.settings import require_packages

    require_packages(f"recipe train {stage}", "train")


def show(settings: "Settings", model: Path, as_json: bool) -> None:
    """Say where the model is and what the last step measured."""
    from recipe.artifacts import read_jsonl

    *_, (_, last) = read_jsonl(model.parent / "metrics.jsonl")
    if as_json:
        print_json({"model": str(model), "config": settings.model_dump(mode="json"), "last_step": last})
        return
    out.print(f"model: {model}", highlight=False, soft_wrap=True)
    numbers = (f"{name} {value:.4g}" for name, value in last.items() if isinstance(value, int | float))
    out.print("last step: " + ", ".join(numbers), highlight=False, soft_wrap=True)
