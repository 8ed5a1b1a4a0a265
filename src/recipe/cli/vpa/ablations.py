"""`recipe vpa plan --ablations`: the settings beside a setting on the same samples, and one table of them all."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.table import Table

from recipe.cli import console
from recipe.cli.vpa.models import Asked
from recipe.cli.vpa.planned import planned
from recipe.cli.vpa.samples import Source, read_samples
from recipe.cli.vpa.written import Files, write_plans
from recipe.errors import InputError

if TYPE_CHECKING:
    from recipe.evaluation.vpa.run import Task
    from recipe.planning.vidassist.settings import VidAssistConfig

_HORIZON = 4
_MEASURES = ("success_rate", "accuracy", "iou")


class _Group(NamedTuple):
    """Columns of one horizon."""

    title: str
    names: tuple[str, ...]
    keys: tuple[str, ...]


_GROUPS = (
    _Group("T=1", ("mAcc",), ("1.accuracy",)),
    *(
        _Group(f"T={horizon}", ("SR", "mAcc", "mIoU"), tuple(f"{horizon}.{key}" for key in _MEASURES))
        for horizon in (3, 4)
    ),
)
_COLUMNS = [key for group in _GROUPS for key in group.keys]


class _Variant(NamedTuple):
    """One row of the table."""

    name: str
    config: "VidAssistConfig"
    source: Source


def run_ablations(source: Source, config: "VidAssistConfig", asked: Asked, output: Path) -> list[dict[str, Any]]:
    """Plan by each setting, write each one's files beside `output`, and score them all.

    Answers are shared, so that what two settings ask is paid for once. Raises InputError without CrossTask, whose
    samples are scored.
    """
    if source.root is None or config.horizon < _HORIZON:
        raise InputError("--ablations scores plans of 4 actions on CrossTask; give --root and --horizon 4.")
    rows = []
    variants = _variants(source, config)
    samples = {one: read_samples(one, config) for one in dict.fromkeys(variant.source for variant in variants)}
    with asked.opened() as models:
        for variant in variants:
            read = samples[variant.source]
            plans = planned(read, variant.config, models)
            files = _files(output, variant.name)
            result = write_plans(plans, read, variant.config, variant.source, asked, files)
            rows.append({"name": variant.name, "predictions": str(files.output), "counts": result["counts"]})
    return _scored(rows, source)


def _variants(source: Source, config: "VidAssistConfig") -> list[_Variant]:
    from recipe.planning.vidassist.ablations import ablations

    found = [_Variant(name, changed, source) for name, changed in ablations(config).items()]
    if source.histories is not None:
        found.append(_Variant("oracle history", config, source._replace(histories=None)))
    return found


def _files(output: Path, name: str) -> Files:
    """`plans.jsonl` for the given setting, `plans.beam-2.jsonl` for another."""
    stem = output.stem if name == "as given" else f"{output.stem}.{name.replace(' ', '-')}"
    return Files(output.with_name(f"{stem}{output.suffix}"), output.with_name(f"{stem}.trace.jsonl"))


def _scored(rows: list[dict[str, Any]], source: Source) -> list[dict[str, Any]]:
    """The rows with their figures in percent, behind a row of what chance gives on the same samples."""
    from recipe.evaluation.vpa.beside import figures_of
    from recipe.evaluation.vpa.calibration import expected_figures
    from recipe.evaluation.vpa.run import run_predictions
    from recipe.planning.predictions import read_predictions

    predictions = {row["name"]: read_predictions(Path(row["predictions"])) for row in rows}
    task = _task(source, {one.example_id for one in predictions["as given"]})
    chance = expected_figures(task.samples, task.ids, _COLUMNS, with_goal=True)
    scored: list[dict[str, Any]] = [{"name": "random-goal, expected", "figures": chance}]
    for row in rows:
        scores = run_predictions(task, predictions[row["name"]], _no_encoder, row["name"]).scores
        scored.append(row | {"figures": figures_of(scores), "samples": len(task.samples)})
    return scored


def _no_encoder() -> Any:
    raise InputError("a planned step is no action of CrossTask; give --root without --actions.")


def _task(source: Source, planned_for: set[str]) -> "Task":
    """The samples that were planned for, as the protocol cuts them."""
    from dataclasses import replace

    from recipe.evaluation.vpa.run import open_task

    assert source.root is not None
    task = open_task(source.root, source.protocol, source.rule, source.order)
    return replace(task, samples=[one for one in task.samples if one.sample_id in planned_for])


def show_ablations(rows: list[dict[str, Any]]) -> None:
    """The table."""
    table = Table(title=f"{rows[-1]['samples']:,} samples of CrossTask, percent")
    table.add_column("setting", no_wrap=True)
    for group in _GROUPS:
        table.add_column(f"{group.title}\n{_cells(group.names)}", justify="right", no_wrap=True)
    table.add_column("short", justify="right")
    for row in rows:
        figures = row["figures"]
        groups = (_cells([f"{figures[key]:.1f}" for key in group.keys]) for group in _GROUPS)
        table.add_row(row["name"], *groups, f"{row['counts']['short']:,}" if "counts" in row else "")
    console.out.print(table)


def _cells(texts: Sequence[str]) -> str:
    return "".join(f"{text:>5}" for text in texts)
