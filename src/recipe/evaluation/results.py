"""What a report is made of: plain frozen values that go to `report.json` and come back unchanged.

Every part is optional. A run on the embedded world fills them all; a run on real data has no exact validity
and leaves out what it cannot know. A number that is not known is None or absent, never 0.
"""

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from recipe.artifacts import read_json, write_text
from recipe.errors import ComputeError, InputError

Status = Literal["valid", "repeat", "alien", "out-of-order", "unknown"]
"""What a line of a plan is: a new step of the goal whose prerequisites are met; a step already done; a step
that does not belong to the goal; a step of the goal that comes too early; not known."""

METRICS: dict[str, str] = {
    "score": "validity",
    "order": "order",
    "coverage": "coverage",
    "clean": "clean",
    "perfect": "perfect plans",
    "steps": "steps in a plan",
    "repeats": "repeated steps",
    "alien": "foreign steps",
    "distinct": "distinct of 10",
    "reward": "reward",
    "gated": "gated",
    "kl": "KL",
    "malformed": "without steps",
}
"""Keys of `Scores.metrics` in the order of the table, with their names in words; others are shown too."""

SPLITS = {"test_cuts": "held-out cut points", "test_goals": "held-out goals"}
"""Names in words of the embedded world's test splits; other splits are shown by their own names."""

SHARES = frozenset({"perfect", "repeats", "alien", "gated", "malformed"})
"""Metrics that are shares, shown in percent."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its 95% interval; `low` and `high` are None where no interval was computed."""

    mean: float
    low: float | None = None
    high: float | None = None
    observations: int = 0
    """Prompts (not samples) that the mean is over."""
    clusters: int = 0
    """Goals that the prompts come from: what the bootstrap draws."""

    def __post_init__(self) -> None:
        if not all(math.isfinite(value) for value in (self.mean, self.low, self.high) if value is not None):
            raise ComputeError("a mean or its interval is not finite; leave out what was not computed.")


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of the pipeline and the wall time it took, in seconds."""

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


@dataclass(frozen=True, slots=True)
class Scores:
    """One row of the table: a regime's means on a split, by metric (see METRICS)."""

    split: str
    regime: str
    metrics: dict[str, Interval]
    prompts: int = 0
    samples: int = 0
    """Samples of each prompt."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean of `regime` minus `baseline` over the same prompts, with the paired interval."""

    split: str
    regime: str
    baseline: str
    metric: str
    value: Interval


@dataclass(frozen=True, slots=True)
class Curve:
    """What was logged while a regime trained: one value a step and series, None where a step logged nothing.

    Known series: `reward`, `length` (steps in a completion), `validity` (exact, of the logged completions),
    `kl`, `gated`, `clipped` (share cut at the token limit).
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
class Reranking:
    """Best-of-N by the verifier, without training: validity of a mean, its pick, the best sample."""

    split: str
    regime: str
    """Whose samples were ranked."""
    count: int
    """N, samples of each prompt."""
    mean: Interval
    best: Interval
    oracle: Interval
    metric: str = "score"
    verifier: str = "paper"


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many plans have 0, 1, 2, ... steps; `counts[n]` is the number with n steps."""

    split: str
    regime: str
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """One step of a plan that is shown, and what it is."""

    text: str
    status: Status = "unknown"


@dataclass(frozen=True, slots=True)
class RewardParts:
    """A reward and its parts A(h), A(h + c), rho and the share below the gate: means over `plans` plans."""

    total: float
    aligned_history: float
    aligned_full: float
    rho: float
    gated: float
    plans: int = 1


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """A plan as the report shows it."""

    regime: str
    """`reference` for the gold continuation."""
    lines: tuple[Line, ...]
    validity: float | None = None
    reward: float | None = None


@dataclass(frozen=True, slots=True)
class ShownPrompt:
    """One prompt with the plans of several regimes side by side."""

    split: str
    goal: str
    history: tuple[str, ...]
    plans: tuple[ShownPlan, ...]


@dataclass(frozen=True, slots=True)
class HandMade:
    """The reward of plans written on purpose, such as the gold plan with every step said twice."""

    name: str
    parts: RewardParts
    validity: float | None = None


@dataclass(frozen=True, slots=True)
class Results:
    """A whole report."""

    title: str
    summary: tuple[str, ...] = ()
    """What was found, one sentence each."""
    provenance: Provenance = Provenance()
    stages: tuple[Stage, ...] = ()
    scores: tuple[Scores, ...] = ()
    differences: tuple[Difference, ...] = ()
    curves: tuple[Curve, ...] = ()
    rerankings: tuple[Reranking, ...] = ()
    lengths: tuple[Lengths, ...] = ()
    prompts: tuple[ShownPrompt, ...] = ()
    hand_made: tuple[HandMade, ...] = ()
    caveats: tuple[str, ...] = ()

    def regimes(self) -> tuple[str, ...]:
        """Every regime that the report shows, in order of first appearance."""
        named = [part.regime for group in (self.scores, self.curves, self.lengths) for part in group]
        return tuple(dict.fromkeys(named))

    def splits(self) -> tuple[str, ...]:
        """Every split of the table, in order of first appearance."""
        return tuple(dict.fromkeys(row.split for row in self.scores))


def save_results(target: Path, results: Results) -> None:
    """Write `report.json`, all or nothing; keys stay in order, because the report shows them so."""
    write_text(target, json.dumps(to_json(results), indent=2, ensure_ascii=False) + "\n")


def load_results(path: Path) -> Results:
    """Read `report.json`; raises InputError naming the part that is missing or of the wrong kind."""
    return from_json(read_json(path), Results, str(path))


Value = TypeVar("Value")


def to_json(value: object) -> Any:
    """A dataclass of this module as plain JSON values."""
    if dataclasses.is_dataclass(value):
        return {part.name: to_json(getattr(value, part.name)) for part in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(inner) for inner in value]
    return value


def from_json(raw: Any, kind: type[Value], origin: str) -> Value:
    """The value of `kind` that `to_json` wrote; `origin` names its place in errors. Raises InputError."""
    return typing.cast(Value, _decode(raw, kind, origin))


def _decode(raw: Any, kind: Any, origin: str) -> Any:
    base, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(raw, kind, origin)
    if base is tuple:
        items = enumerate(_of(raw, list, origin))
        return tuple(_decode(item, arguments[0], f"{origin}[{n}]") for n, item in items)
    if base is dict:
        pairs = _of(raw, dict, origin).items()
        return {key: _decode(item, arguments[1], f"{origin}.{key}") for key, item in pairs}
    if base is types.UnionType:
        inner = next(option for option in arguments if option is not type(None))
        return None if raw is None else _decode(raw, inner, origin)
    if base is Literal:
        return raw if raw in arguments else _reject(raw, " or ".join(map(repr, arguments)), origin)
    return float(raw) if kind is float and type(raw) is int else _of(raw, kind, origin)


def _decode_dataclass(raw: Any, kind: Any, origin: str) -> Any:
    known = {part.name for part in dataclasses.fields(kind)}
    unknown = _of(raw, dict, origin).keys() - known
    if unknown:
        raise InputError(f"{origin}: unknown key {min(unknown)!r}; recreate the report with this version.")
    hints = typing.get_type_hints(kind)
    values = {name: _decode(item, hints[name], f"{origin}.{name}") for name, item in raw.items()}
    try:
        return kind(**values)
    except TypeError as error:
        raise InputError(f"{origin}: {error}; recreate the report.") from None


def _of(raw: Any, kind: type, origin: str) -> Any:
    return raw if type(raw) is kind else _reject(raw, kind.__name__, origin)


def _reject(raw: Any, wanted: str, origin: str) -> Any:
    raise InputError(f"{origin}: expected {wanted}, found {raw!r}; recreate the report.")
