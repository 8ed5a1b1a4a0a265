"""Commands of `recipe train`: a config in, a standalone model folder out."""

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from recipe.cli.console import Changes, CommandGroup, out, print_findings, print_json, print_lines, progress
from recipe.errors import RecipeError
from recipe.progress import LOADING

if TYPE_CHECKING:
    from recipe.config import BaseModelConfig, BestOfNConfig, GRPOConfig, SFTConfig, ValidationSettings
    from recipe.evaluation.plan_measures import PlanMeasure
    from recipe.reward.language_model import Likelihood
    from recipe.reward.verifier import Verifier
    from recipe.training.cost import AnyTraining
    from recipe.training.preflight import Stage

Config = TypeVar("Config", "BaseModelConfig", "SFTConfig", "GRPOConfig", "BestOfNConfig")

app = CommandGroup(help="Train a planner: from scratch, SFT, GRPO or best of N on the verifier.")

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="Settings of the run.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the resolved settings, what is missing and what the run takes; stop.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@app.command()
def base(config: ConfigFile, changes: Changes = None, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Train a small language model from scratch, so that nothing has to be downloaded.

    Example: recipe train base base.toml
    """
    from recipe.config import BaseModelConfig

    def prepare(settings: BaseModelConfig) -> Callable[[], Path]:
        from recipe.training.base import train_base

        return lambda: train_base(settings, progress())

    _run("base", config, BaseModelConfig, prepare, changes or (), dry_run, as_json)


@app.command()
def sft(config: ConfigFile, changes: Changes = None, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Fine-tune on the reference continuations, from text or from videos; run it again to resume.

    Example: recipe train sft configs/sft-qwen2.5-3b.toml
    """
    from recipe.config import SFTConfig

    def prepare(settings: SFTConfig) -> Callable[[], Path]:
        from recipe.training.sft import train_sft

        return lambda: train_sft(settings, progress())

    _run("sft", config, SFTConfig, prepare, changes or (), dry_run, as_json)


@app.command()
def grpo(config: ConfigFile, changes: Changes = None, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Train on the verifier's reward, from text or from videos; run it again to resume.

    Example: recipe train grpo configs/grpo-qwen2.5-3b.toml
    """
    from recipe.config import GRPOConfig

    def prepare(settings: GRPOConfig) -> Callable[[], Path]:
        from recipe.training.grpo import train_grpo

        verifier = _verifier(settings)
        use, measure = _likelihood_user(verifier), _measure(settings.validation)
        return lambda: train_grpo(settings, verifier, progress(), use_likelihood=use, measure=measure)

    _run("grpo", config, GRPOConfig, prepare, changes or (), dry_run, as_json)


@app.command(name="best-of-n")
def best_of_n(config: ConfigFile, changes: Changes = None, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Train in rounds on the best of N own plans by the verifier's reward; run it again to resume.

    Example: recipe train best-of-n configs/best-of-n-qwen2.5-3b.toml
    """
    from recipe.config import BestOfNConfig

    def prepare(settings: BestOfNConfig) -> Callable[[], Path]:
        from recipe.training.best_of_n import train_best_of_n

        verifier = _verifier(settings)
        use, measure = _likelihood_user(verifier), _measure(settings.validation)
        return lambda: train_best_of_n(settings, verifier, progress(), use, measure)

    _run("best-of-n", config, BestOfNConfig, prepare, changes or (), dry_run, as_json)


@app.command()
def check(
    config: ConfigFile,
    stage: Annotated[
        Literal["base", "sft", "grpo", "best-of-n"] | None,
        typer.Option(help="What trains.", show_default="the one that the settings fit"),
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Take two real steps, and print the hours of the run and its peak memory.")
    ] = False,
    changes: Changes = None,
    as_json: AsJson = False,
) -> None:
    """Look for data, corpus, model, packages, memory and disk of a run; with --measure also take two of its steps.

    Exit code 1 where something is missing. Nothing is written.

    Example: recipe train check configs/grpo-qwen2.5-3b.toml
    """
    from recipe.training.preflight import load_training

    stage, settings = load_training(config, stage, tuple(changes or ()))
    _check(stage, settings, as_json, measured=measure)


def _check(
    stage: "Stage", settings: "AnyTraining", as_json: bool, *, settings_too: bool = False, measured: bool = False
) -> None:
    """Print what a run needs and takes; ends the command with exit code 1 where something is missing."""
    from recipe.artifacts import to_json
    from recipe.training.preflight import check_run, estimate_lines, measurement_lines

    resolved = settings.model_dump(mode="json")
    with progress().task("checking the run"):
        checked = check_run(stage, settings)
    measurement = None
    if measured and checked.ready:
        from recipe.training.cost import measure

        with progress().task("two steps of the run"):
            measurement = measure(settings)
    if as_json:
        steps = {} if measurement is None else {"measurement": to_json(measurement)}
        print_json(({"config": resolved} if settings_too else {}) | to_json(checked) | steps)
    else:
        if settings_too:
            print_json(resolved)
        print_findings(checked.findings)
        lines = estimate_lines(checked.estimate) if measurement is None else measurement_lines(measurement)
        print_lines(*lines)
    if not checked.ready:
        raise SystemExit(RecipeError.exit_code)


def _measure(settings: "ValidationSettings | None") -> "PlanMeasure | None":
    """What validation chooses by, in the process that measures."""
    from recipe.training import ranks

    if settings is None or not ranks.main():
        return None
    from recipe.evaluation.plan_measures import plan_measure

    return plan_measure(settings)


def _verifier(settings: "GRPOConfig | BestOfNConfig") -> "Verifier | None":
    """The verifier on the corpus of a run; None where a service scores, and but for the first process."""
    from recipe.corpus.store import Corpus
    from recipe.reward.verifier import Verifier
    from recipe.training import ranks

    if not ranks.main() or settings.corpus is None:
        return None
    return Verifier(Corpus.open(settings.corpus, devices=settings.corpus_devices), settings.reward)


def _likelihood_user(verifier: "Verifier | None") -> "Callable[[Likelihood], None] | None":
    """What takes the likelihood of the reference policy, where the reward reads one."""
    from recipe.reward.language_model import POLICY

    reads = verifier is not None and verifier.config.grounded.language_model == POLICY
    return verifier.use_likelihood if verifier is not None and reads else None


def _run(
    stage: "Stage",
    path: Path,
    kind: type[Config],
    prepare: Callable[[Config], Callable[[], Path]],
    changes: Sequence[str],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Run what `prepare` gives, alone in its folder; print where model and card are, and the last metrics.

    Of several processes the first one locks the folder, reports and prints.
    """
    from recipe.artifacts import locked, read_json, read_jsonl
    from recipe.config import load_config
    from recipe.errors import require_packages

    # Before the processes know of each other, one of each machine speaks.
    speaks = os.environ.get("LOCAL_RANK", "0") == "0"
    try:
        settings = load_config(path, kind, changes)
    except RecipeError:
        if speaks:
            raise
        raise SystemExit(RecipeError.exit_code) from None
    if dry_run:
        if speaks:
            _check(stage, settings, as_json, settings_too=True)
        return
    require_packages({"train": f"recipe train {stage}"})
    if speaks:
        LOADING.info("loading %s ...", repr(settings.model) if hasattr(settings, "model") else "packages")
    from recipe.training import ranks

    try:
        with ranks.distributed_run():
            train = prepare(settings)
            with locked(settings.output) if ranks.main() else nullcontext():
                model = train()
    except Exception:
        if ranks.failure_reported_elsewhere():
            raise SystemExit(RecipeError.exit_code) from None
        raise
    if not ranks.main():
        return
    *_, (_, last) = read_jsonl(model.parent / "metrics.jsonl")
    card = str(model / "README.md")
    notes = read_json(model.parent / "run.json").get("notes", [])
    if as_json:
        values = {"config": settings.model_dump(mode="json"), "last_step": last, "notes": notes}
        print_json({"model": str(model), "card": card, **values})
        return
    out.print(f"model: {model}", highlight=False, soft_wrap=True)
    out.print(f"card: {card}", highlight=False, soft_wrap=True)
    numbers = (f"{name} {value:.4g}" for name, value in last.items() if isinstance(value, int | float))
    out.print("last step: " + ", ".join(numbers), highlight=False, soft_wrap=True)
    for sentence in notes:
        out.print(sentence, highlight=False, soft_wrap=True)
