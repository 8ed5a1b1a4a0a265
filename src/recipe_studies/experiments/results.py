"""The results of an experiment: plain frozen values that go to `report.json` and come back unchanged.

Every part is optional. A run on the embedded world fills them all; a run on real data has no exact validity
and leaves out what it cannot know. A number that is not known is None or absent, never 0.

The plans of every run of a study are in `rows/RUN.jsonl` in the same folder, each plan a flat row with its prompt and
its measures.
"""

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from recipe.artifacts import JsonObject, installed, read_json, write_jsonl
from recipe.errors import ComputeError
from recipe.evaluation.metrics import METRICS, Difference
from recipe.evaluation.validity.measure import PlanLengths, RegimeScores, Reranking
from recipe.evaluation.validity.readings import PlanLine
from recipe.rows import from_json
from recipe.stats import Interval
from recipe.types import Example

SPLITS = {"test_cuts": "held-out cut points", "test_goals": "held-out goals"}
"""Names in words of the embedded world's test splits; other splits are shown by their own names."""

PACKAGES = ("recipe-planner", "torch", "transformers", "trl", "peft", "sentence-transformers", "numpy", "numba")
ROWS = "rows"
"""Folder of the rows of plans, in a run folder or the folder of a scale."""
MAIN = {
    "score": "Exact validity",
    "matched_ordered_f1": "Matched step F1 in order",
    "ordered_f1": "Step F1 in order",
    "reward": "Reward",
}
"""Metrics of how good plans are, the best first."""
NAMES = METRICS | {"validity": "validity", "proxy": "proxy judge, share of the total"}
"""Measures that validation chooses by, in words."""
KEPT = "kept the base"
"""Stands for a difference to the base where validation kept the base: a 0 would look measured."""


@dataclass(frozen=True, slots=True)
class StageTime:
    """A stage of the pipeline, or several of one kind, and the wall time in seconds."""

    name: str
    seconds: float
    detail: str = ""
    """What it handled, for example `1500 narrations, 28500 segments`."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """What it takes to run this again."""

    created: str = ""
    """Date and time, ISO 8601."""
    command: str = ""
    seeds: tuple[int, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    """Package name to version."""
    device: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    """Settings worth seeing, in words: name to value."""
    data: dict[str, str] = field(default_factory=dict)
    """What was trained and measured on: name to description."""

    @classmethod
    def now(cls, device: str, **more: Any) -> "Provenance":
        """That of results that are made now, on a device, with the packages that are installed."""
        return cls(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            versions={"python": platform.python_version(), **installed(PACKAGES)},
            device=f"{device}, {os.cpu_count()} cores",
            **more,
        )


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Time of a training step, and what of it went to the reward: means over the steps of all runs, in seconds."""

    regime: str
    reward_seconds: float
    step_seconds: float
    share: float
    """Mean of each step's share."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A finding of the watchdog in a training run."""

    regime: str
    since: int
    """Step from which on it was so."""
    sentence: str
    seed: int | None = None

    @property
    def words(self) -> str:
        """The finding with the run that it is of."""
        return f"{self.regime}{'' if self.seed is None else f', seed {self.seed}'}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class Curve:
    """What was logged while a regime trained: one value a step and series, None where a step logged nothing.

    Known series: `reward`, `length` (steps in a completion), `validity` (exact, of the logged completions),
    `matched_f1` or `f1` (steps in common with the reference, matched or nearest), `kl`, `gated`, `clipped` (share cut
    at the token limit), `copied`, `repeated`.
    """

    regime: str
    steps: tuple[int, ...]
    series: dict[str, tuple[float | None, ...]]
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, values in self.series.items():
            if len(values) != len(self.steps):
                raise ComputeError(f"curve {name!r} holds {len(values)} values for {len(self.steps)} steps.")


@dataclass(frozen=True, slots=True)
class Validated:
    """A policy on the validation prompts: means over all plans."""

    step: int
    """Or round; 0 for the base."""
    kl: float
    """To the base, nats a plan."""
    reward: float
    measured: float
    """What validation chooses by."""
    length: float
    """Steps in a plan."""
    gain: Interval | None = None
    """Of `measured` over the base, paired by prompt."""


@dataclass(frozen=True, slots=True)
class ValidationCurve:
    """The validations of a training run, the base first."""

    regime: str
    measure: str
    """What `measured` is: `reward`, `validity`, `matched_f1` or `proxy`."""
    points: tuple[Validated, ...]
    prompts: int
    plans: int
    """Of each validation."""
    unit: Literal["step", "round"] = "step"
    seed: int | None = None

    @property
    def chosen(self) -> Validated:
        """The step that validation chooses: the highest measure, the earliest of equals."""
        return max(self.points, key=lambda point: point.measured)


@dataclass(frozen=True, slots=True)
class Quote:
    """What a narration says of a line of a plan."""

    text: str
    video_id: str
    time: str
    """When it is said, such as `1:02`; empty where the narration has no times."""
    narrations: int
    """That say so, of those about the task."""
    about: int
    """Narrations about the task that were looked at."""


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """A plan as the report shows it."""

    regime: str
    """`reference` for the gold continuation."""
    lines: tuple[PlanLine, ...]
    validity: float | None = None
    reward: float | None = None
    accuracy: float | None = None
    """In percent, where a judge or the tables of the paper give it."""
    quotes: tuple[Quote | None, ...] = ()
    """Of each line, None where no narration says it; empty where nobody asked."""
    missing: tuple[str, ...] = ()
    """Required steps that are neither done nor planned, where that is known."""


@dataclass(frozen=True, slots=True)
class ShownPrompt:
    """One prompt with the plans of several regimes side by side."""

    split: str
    goal: str
    history: tuple[str, ...]
    plans: tuple[ShownPlan, ...]


@dataclass(frozen=True, slots=True)
class Results:
    """A whole report."""

    title: str
    summary: tuple[str, ...] = ()
    """The findings, one sentence each."""
    provenance: Provenance = Provenance()
    stages: tuple[StageTime, ...] = ()
    scores: tuple[RegimeScores, ...] = ()
    differences: tuple[Difference, ...] = ()
    by_seed: tuple[Difference, ...] = ()
    """The differences of every run alone."""
    controls: tuple[RegimeScores, ...] = ()
    """Rows of plans that are no planner's, in addition to `scores`; their regimes begin with `control: `."""
    control_differences: tuple[Difference, ...] = ()
    """Every regime minus every control in the main metric, on the prompts that have the control."""
    curves: tuple[Curve, ...] = ()
    validations: tuple[ValidationCurve, ...] = ()
    """Of the runs that validated while training."""
    rerankings: tuple[Reranking, ...] = ()
    lengths: tuple[PlanLengths, ...] = ()
    opening: ShownPrompt | None = None
    """The test prompt whose greedy plan changed most by training, with the plans before and after."""
    prompts: tuple[ShownPrompt, ...] = ()
    costs: tuple[StepTimes, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    caveats: tuple[str, ...] = ()

    def regimes(self) -> tuple[str, ...]:
        """Every regime that the report shows, in order of first appearance."""
        named = [part.regime for group in (self.scores, self.curves, self.lengths) for part in group]
        return tuple(dict.fromkeys(named))

    def main_metric(self) -> str:
        """The best metric of how good plans are that is known here."""
        return next(name for name in MAIN if name == "reward" or any(name in row.metrics for row in self.scores))

    def kept_base(self, regime: str, seed: int | None = None) -> bool:
        """Whether validation kept the base in all runs of a regime, or in that of a seed: its plans are the base's."""
        runs = [run for run in self.validations if run.regime == regime and seed in (None, run.seed)]
        return bool(runs) and all(run.chosen is run.points[0] for run in runs)

    def splits(self) -> tuple[str, ...]:
        """Every split of the table, in order of first appearance."""
        return tuple(dict.fromkeys(row.split for row in self.scores))


def load_results(path: Path) -> Results:
    """Read `report.json`; raises InputError naming the part that is missing or of the wrong kind."""
    return from_json(read_json(path), Results, str(path))


def write_plan_rows(
    path: Path,
    regime: str,
    seed: int | None,
    plans: Iterable[tuple[Example, int, Sequence[str], Mapping[str, float | bool | None]]],
) -> None:
    """Write the plans of a run, a line each: the regime and its seed, the prompt, the plan, and each measure by name.

    `plans` are examples, numbers of samples, steps, and measures; a measure that is not known is null or absent.
    """
    rows: list[JsonObject] = []
    for example, sample, steps, measures in plans:
        row: JsonObject = {
            "regime": regime,
            "seed": seed,
            "example_id": example.example_id,
            "sample": sample,
            "source": example.source,
            "split": example.split,
            "goal": example.goal,
            "history": example.history,
            # As Phi read the history, where a study has that.
            "told_history": example.told_history,
            "continuation": example.continuation,
            "plan": steps,
        }
        rows.append({**row, **measures})
    write_jsonl(path, rows)
