"""Metrics of a run: one row an optimiser step in `metrics.jsonl`, and the same numbers to TensorBoard or W&B.

Rows come from the trainer's own history, which a checkpoint holds: a resumed run first writes the rows up
to its checkpoint and goes on from there, so that no step is missing or stands twice.
"""

import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from recipe.artifacts import write_jsonl
from recipe.config import Metrics
from recipe.errors import MissingExtra

Row = dict[str, Any]


class Sink(Protocol):
    """A place that metrics are sent to while a run goes on."""

    def write(self, row: Row) -> None:
        """Send one step's numbers."""

    def close(self) -> None:
        """Flush and end."""


class JsonLines:
    """`metrics.jsonl`: rewritten up to the resumed step, then appended to."""

    def __init__(self, path: Path, earlier: Sequence[Row]) -> None:
        write_jsonl(path, earlier)
        self._stream = path.open("a", encoding="utf-8")

    def write(self, row: Row) -> None:
        self._stream.write(json.dumps(row) + "\n")
        self._stream.flush()

    def close(self) -> None:
        self._stream.close()


class TensorBoard:
    """Scalars in `logs/`; on resuming, what came after the checkpoint is hidden from view."""

    def __init__(self, folder: Path, first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - a second of import, and optional

        self._writer = SummaryWriter(str(folder), purge_step=first_step)

    def write(self, row: Row) -> None:
        for name, value in row.items():
            if name != "step" and value is not None:
                self._writer.add_scalar(name, value, row["step"])

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of the project `recipe`, named for its folder."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        import wandb  # noqa: PLC0415 - optional

        self._run = wandb.init(project="recipe", name=folder.name, dir=str(folder), config=dict(config))

    def write(self, row: Row) -> None:
        self._run.log(row, step=row["step"])

    def close(self) -> None:
        self._run.finish()


class MetricsLog:
    """All sinks of a run, fed with rows made by `shape` from the trainer's records."""

    def __init__(
        self,
        folder: Path,
        kinds: Sequence[Metrics],
        config: Mapping[str, Any],
        shape: Callable[[Row], Row | None],
    ) -> None:
        if "wandb" in kinds and importlib.util.find_spec("wandb") is None:
            raise MissingExtra("metrics = ['wandb']", "wandb")
        self._folder, self._kinds, self._config, self._shape = folder, kinds, config, shape
        self._sinks: list[Sink] = []

    def open(self, history: Sequence[Row]) -> None:
        """Begin, with the trainer's records up to the step that is resumed from."""
        earlier = [row for record in history if (row := self._shape(record)) is not None]
        first = earlier[-1]["step"] + 1 if earlier else 1
        self._sinks = [JsonLines(self._folder / "metrics.jsonl", earlier)]
        if "tensorboard" in self._kinds:
            self._sinks.append(TensorBoard(self._folder / "logs", first))
        if "wandb" in self._kinds:
            self._sinks.append(WeightsAndBiases(self._folder, self._config))

    def write(self, record: Row) -> None:
        """Send one of the trainer's records, unless it is not about a step."""
        row = self._shape(record)
        if row is not None:
            for sink in self._sinks:
                sink.write(row)

    def close(self) -> None:
        """End all sinks."""
        for sink in self._sinks:
            sink.close()
        self._sinks = []
