"""Commands of `recipe train`: a config in, a standalone model folder out."""

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from recipe.artifacts import locked, read_json, read_jsonl, to_json
from recipe.cli.console import (
    Changes,
    CommandGroup,
    CommandOutput,
    PlainGroup,
    finding_lines,
    json_text,
    progress,
    shows,
)
from recipe.cli.flags import require_file_of, settable, setting_keys
from recipe.errors import RecipeError, require_packages
from recipe.progress import LOADING

if TYPE_CHECKING:
    from recipe.config.training import Stage


class _TrainGroup(PlainGroup):
    """The commands; a file in place of one is trained with, as its key `stage` says."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        named = args[0] not in self.list_commands(ctx) and args[0].endswith(".toml")
        return super().resolve_command(ctx, ["config", *args] if named else args)


app = CommandGroup(kind=_TrainGroup, help="Train a planner: from scratch, SFT, GRPO or best of N on the verifier.")

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="Settings of the run.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the resolved settings, what is missing and what the run takes; stop.")
]

Control = Annotated[
    Literal["reference"] | None,
    typer.Option(
        help="Reward plans by the annotated continuation instead, into OUTPUT-reference: the first run to make."
    ),
]


def _keys(*stages: "Stage") -> dict[str, str]:
    from recipe.config.training import STAGES

    return setting_keys(*(STAGES[stage] for stage in stages or STAGES))


@app.command()
@shows
@settable(_keys)
def config(config: ConfigFile, changes: Changes = None, dry_run: DryRun = False) -> CommandOutput:
    """Train what the key `stage` of the file names: base, sft, grpo or best-of-n; `recipe train CONFIG.toml` for short.

    Example: recipe train config configs/grpo-qwen2.5-3b.toml
    """
    return _run(None, config, changes or (), dry_run)


@app.command()
@shows
@settable(lambda: _keys("base"))
def base(config: ConfigFile, changes: Changes = None, dry_run: DryRun = False) -> CommandOutput:
    """Train a small language model from scratch, so that nothing has to be downloaded.

    Example: recipe train base base.toml
    """
    return _run("base", config, changes or (), dry_run)


@app.command()
@shows
@settable(lambda: _keys("sft"))
def sft(config: ConfigFile, changes: Changes = None, dry_run: DryRun = False) -> CommandOutput:
    """Fine-tune on the reference continuations, from text or from videos; run it again to resume.

    Example: recipe train sft configs/sft-qwen2.5-3b.toml
    """
    return _run("sft", config, changes or (), dry_run)


@app.command()
@shows
@settable(lambda: _keys("grpo"))
def grpo(
    config: ConfigFile, control: Control = None, changes: Changes = None, dry_run: DryRun = False
) -> CommandOutput:
    """Train on the verifier's reward, from text or from videos; run it again to resume.

    Example: recipe train grpo configs/grpo-qwen2.5-3b.toml --control reference
    """
    return _run("grpo", config, changes or (), dry_run, control)


@app.command(name="best-of-n")
@shows
@settable(lambda: _keys("best-of-n"))
def best_of_n(
    config: ConfigFile, control: Control = None, changes: Changes = None, dry_run: DryRun = False
) -> CommandOutput:
    """Train in rounds on the best of N own plans by the verifier's reward; run it again to resume.

    Example: recipe train best-of-n configs/best-of-n-qwen2.5-3b.toml
    """
    return _run("best-of-n", config, changes or (), dry_run, control)


@app.command()
@shows
@settable(_keys)
def check(
    config: ConfigFile,
    stage: Annotated[
        Literal["base", "sft", "grpo", "best-of-n"] | None,
        typer.Option(help="What trains.", show_default="the file's key `stage`, or the one that the settings fit"),
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Take two real steps, and print the hours of the run and its peak memory.")
    ] = False,
    changes: Changes = None,
) -> CommandOutput:
    """Look for data, corpus, model, packages, memory and disk of a run; with --measure also take two of its steps.

    Exit code 1 where something is missing. Nothing is written.

    Example: recipe train check configs/grpo-qwen2.5-3b.toml
    """
    from recipe.config.training import read_training

    require_file_of("recipe train", config)
    return _checked(*read_training(config, changes or (), stage), measured=measure)


def _checked(
    stage: "Stage", settings: Any, shown: dict[str, Any] | None = None, *, measured: bool = False
) -> CommandOutput:
    """What a run needs and takes, below the settings in `shown`; exit code 1 where something is missing."""
    from recipe.training.preflight import check_run

    with progress().task("checking the run"):
        checked = check_run(stage, settings)
    lines = [*([] if shown is None else [json_text(shown)]), *finding_lines(checked.findings)]
    value = ({} if shown is None else {"config": shown}) | to_json(checked) | {"ready": checked.ready}
    if measured and checked.ready:
        from recipe.training.cost import measure

        with progress().task("two steps of the run"):
            measurement = measure(settings)
        lines += measurement.lines()
        value["measurement"] = to_json(measurement)
    elif checked.estimate is None:
        lines.append("no estimate: the model's size is not known")
    else:
        lines += checked.estimate.lines()
    return CommandOutput(value, lines, 0 if checked.ready else RecipeError.exit_code)


def _trainer(stage: "Stage", settings: Any) -> Callable[[], Path]:
    """What trains, with the corpus opened and the measure of validation ready in the process that needs them."""
    from recipe.training import ranks

    if stage == "base":
        from recipe.training.base import train_base

        return lambda: train_base(settings, progress())
    if stage == "sft":
        from recipe.training.sft import train_sft

        return lambda: train_sft(settings, progress())
    verifier: Any = None
    measure = None
    if ranks.main() and (settings.validation is not None or settings.control is not None):
        from recipe.config import ValidationSettings
        from recipe.evaluation.plan_measures import plan_measure

        validation = settings.validation or ValidationSettings(examples=settings.examples)
        measure = plan_measure(validation)
    if ranks.main() and settings.control is not None:
        from recipe.data.examples import read_training_examples
        from recipe.training.rewards import ReferenceScorer

        examples = read_training_examples(settings.examples, settings.split)
        if settings.validation is not None:
            examples += read_training_examples(validation.examples, validation.split)
        compared = measure or plan_measure(validation.model_copy(update={"measure": "matched_f1"}))
        assert compared is not None
        verifier = ReferenceScorer(examples, compared)
    elif ranks.main() and settings.corpus is not None:  # otherwise a service scores
        from recipe.corpus.store import Corpus
        from recipe.reward.verifier import Verifier

        verifier = Verifier(Corpus.open(settings.corpus, devices=settings.corpus_devices), settings.reward)
    if stage == "grpo":
        from recipe.training.grpo import train_grpo

        return lambda: train_grpo(settings, verifier, progress(), measure=measure)
    from recipe.training.best_of_n import train_best_of_n

    return lambda: train_best_of_n(settings, verifier, progress(), measure)


def _run(
    stage: "Stage | None", path: Path, changes: Sequence[str], dry_run: bool, control: str | None = None
) -> CommandOutput:
    """Train alone in the run's folder; shows where model and card are, and the last metrics.

    Of several processes the first one locks the folder, reports and prints.
    """
    from recipe.config.training import read_training

    # Before the processes know of each other, one of each machine speaks.
    speaks = os.environ.get("LOCAL_RANK", "0") == "0"
    try:
        require_file_of("recipe train", path)
        stage, settings = read_training(path, changes, stage)
        if control is not None:
            further = [f"control={control}", f"output={settings.output}-{control}"]
            stage, settings = read_training(path, [*changes, *further], stage)
    except RecipeError:
        if speaks:
            raise
        raise SystemExit(RecipeError.exit_code) from None
    resolved = settings.model_dump(mode="json")
    if dry_run:
        if not speaks:
            raise SystemExit(0)
        return _checked(stage, settings, resolved)
    require_packages({"train": f"recipe train {stage}"})
    if speaks:
        LOADING.info("loading %s ...", repr(settings.model) if hasattr(settings, "model") else "packages")
    from recipe.training import ranks

    try:
        with ranks.distributed_run():
            train = _trainer(stage, settings)
            with locked(settings.output) if ranks.main() else nullcontext():
                model = train()
    except Exception:
        if ranks.failure_reported_elsewhere():
            raise SystemExit(RecipeError.exit_code) from None
        raise
    if not ranks.main():
        raise SystemExit(0)
    rows = [row for _, row in read_jsonl(model.parent / "metrics.jsonl")]
    last = rows[-1]
    card = str(model / "README.md")
    notes = read_json(model.parent / "run.json").get("notes", [])
    rewards = [row["reward"] for row in rows if getattr(settings, "control", None) and row.get("reward") is not None]
    if rewards:
        tenth = -(-len(rewards) // 10)
        figures = f"{fmean(rewards[:tenth]):.3f} at first, {fmean(rewards[-tenth:]):.3f} at the end"
        notes = [*notes, f"control: reward {figures}; if this does not rise, no reward can"]
    # The last row of rounds is of the plans after the last round, and would name one more.
    shown = {name: value for name, value in last.items() if isinstance(value, int | float) and name != "round"}
    numbers = (f"{name} {value:.4g}" for name, value in shown.items())
    lines = [f"model: {model}", f"card: {card}", "last step: " + ", ".join(numbers), *notes]
    return CommandOutput(
        {"model": str(model), "card": card, "config": resolved, "last_step": last, "notes": notes}, lines
    )
