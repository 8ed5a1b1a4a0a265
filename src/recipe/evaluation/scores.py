"""Scores of one system by one measure, and the rows that they are means of.

Scores are plain frozen values in one JSON file. The rows are JSON lines next to it: `match.json` has
`match.rows.jsonl`. A number that is not known is None or absent, never 0.

Where verdicts are missing, `readings` hold a figure three ways by the names in `READINGS`: with each missing verdict as
0, without them, and with each as the best one. Whatever the judge would have said lies between the first and the last.
The figure itself leaves them out. Where nothing is missing `readings` are empty.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from recipe.artifacts import read_json, to_json, write_jsonl, write_text
from recipe.errors import InputError
from recipe.models.sampling import Decoding
from recipe.rows import Count, Text, from_json
from recipe.stats import Interval
from recipe.tables import read_rows as rows_of

READINGS = ("missing_as_0", "missing_left_out", "missing_as_best")
"""Names of the readings of a figure where verdicts are missing."""
GroupKind = Literal["dataset", "split", "all", "control"]


@dataclass(frozen=True, slots=True)
class JudgeIdentity:
    """Identity of a judge: verdicts of two that differ here are not comparable."""

    name: str
    """As tables show it: `Llama-3.3-70B-Instruct`, `proxy (minilm)`, `human: Ann`."""
    kind: Literal["llm", "proxy", "function", "human"]
    """Only `llm` with the paper's model is the paper's judge."""
    model: str = ""
    prompt: str = ""
    """SHA-256 of the prompt's template and schema, or of what a proxy computes."""
    settings: dict[str, str] = field(default_factory=dict)
    """Temperature, repeats, limits, structured output: name to value."""

    def is_model(self, model: str) -> bool:
        """Whether it is this model itself, by the paper's rubric: no quantised or sped-up variant, nobody else."""
        # By its whole name: a quantised variant has another.
        named = (self.model or self.name).rsplit("/", 1)[-1].lower() == model.lower()
        return self.kind == "llm" and named and "rubric" not in self.settings


class PlanId(NamedTuple):
    """Which plan was measured: those of one system differ in this."""

    example_id: str
    sample: int
    control: str = ""
    """Name of the control that the plan is, empty for the system's own."""


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured of one plan; several verdicts on a plan are several rows."""

    example_id: Text
    metrics: dict[str, float] = field(default_factory=dict)
    """Empty where there is no value."""
    sample: Count = 0
    control: str = ""
    """Name of the control that the plan is, empty for the system's own."""
    cluster: str = ""
    """The goal or video that an interval draws whole; empty where the row does not tell."""
    unscored: str = ""
    """Why there is no value."""
    details: dict[str, Any] = field(default_factory=dict)
    """What pages show: `steps`, `flags`, and what the measure knows besides."""

    @property
    def plan(self) -> PlanId:
        """The plan that was measured."""
        return PlanId(self.example_id, self.sample, self.control)


@dataclass(frozen=True, slots=True)
class Counts:
    """How many plans have a value, and how many others there are."""

    plans: int
    """Plans that the means are over, those that count as 0 by rule included."""
    videos: int = 0
    unscored: int = 0
    """Plans without a value."""
    missing: int = 0
    """Examples without a prediction, measured as empty plans by rule."""
    empty: int = 0
    """Plans without a step that says anything."""
    shortened: int = 0
    """Plans too long to be read whole."""


@dataclass(frozen=True, slots=True)
class Group:
    """Figures of some plans: of a dataset, of a split (the mean over its datasets), of all, or of a control."""

    name: str
    """Of the dataset, split or control; empty for all plans."""
    kind: GroupKind
    values: dict[str, Interval]
    """By metric; empty without a plan that has a value."""
    counts: Counts
    readings: dict[str, Interval] = field(default_factory=dict)
    """Of the main metric."""
    datasets: tuple[str, ...] = ()
    """Of a split: the datasets that its mean is over."""
    difference: Interval | None = None
    """Of a control that a system should beat: system minus control in the main metric, on the examples of both."""


@dataclass(frozen=True, slots=True)
class Scores:
    """A system's scores by a measure."""

    measure: str
    """Name of the measure (see `evaluation.measures`)."""
    system: str
    identity: dict[str, Any]
    """Judge, graphs, protocol, encoder: what must agree for a comparison."""
    groups: tuple[Group, ...]
    settings: dict[str, str] = field(default_factory=dict)
    """What else describes the evaluation: name to value."""
    ledger: dict[str, float | None] = field(default_factory=dict)
    """Answers, cached ones, retries, tokens and cost of a judge."""
    findings: tuple[str, ...] = ()
    """A sentence each, such as what the controls say of the judge."""
    extras: dict[str, Any] = field(default_factory=dict)
    """What one measure alone has, as JSON; of all measures `samples`, the smallest number of samples of an example, and
    `left_out`, counts of what was not measured."""
    decoding: tuple[Decoding, ...] = ()
    """How the plans were sampled: one card, or several of a mixed file; empty where it is not known."""
    format: Literal[3] = 3

    def of(self, kind: GroupKind) -> tuple[Group, ...]:
        """The groups of a kind, in order."""
        return tuple(group for group in self.groups if group.kind == kind)

    @property
    def distinct(self) -> list[Group]:
        """The groups that say something of their own: not those of all plans again, where there is one dataset."""
        one_dataset = len(self.of("dataset")) < 2
        return [group for group in self.groups if group.kind in ("all", "control") or not one_dataset]

    @property
    def overall(self) -> Group:
        """All plans of the system."""
        return self.of("all")[0]

    @property
    def judge(self) -> JudgeIdentity | None:
        """The judge; None of a measure without one."""
        return JudgeIdentity(**self.identity["judge"]) if "judge" in self.identity else None


def rows_path(scores: Path) -> Path:
    """Where the rows of a file of scores stand.

    >>> rows_path(Path("evaluations/judge.json")).name
    'judge.rows.jsonl'
    """
    return scores.with_name(f"{scores.stem}.rows.jsonl")


def write_scores(path: Path | str, scores: Scores) -> None:
    """Write one system's scores, all or nothing; keys stay in order."""
    write_text(path, json.dumps(to_json(scores), indent=2, ensure_ascii=False) + "\n")


def read_scores(path: Path | str) -> Scores:
    """The scores of a file; raises InputError naming the part that is missing, unknown or of the wrong kind."""
    raw = read_json(path)
    if not isinstance(raw, dict) or "measure" not in raw:
        # The field `measure` was called so before.
        if isinstance(raw, dict) and "kind" in raw:
            raise InputError.at(path, "a version before 0.3 wrote these scores", "evaluate the system again")
        raise InputError.at(path, "no scores", "give a file that `recipe evaluate` wrote", field="measure")
    scores = from_json(raw, Scores, str(path))
    if not scores.of("all"):
        raise InputError.at(path, "no group of all plans", "evaluate the system again", field="groups")
    if "judge" in scores.identity:
        # Read here once, so that a damaged identity is an error of this file, and not of a table that shows it.
        from_json(scores.identity["judge"], JudgeIdentity, f"{path}.identity.judge")
    return scores


def write_rows(path: Path | str, rows: Iterable[Row]) -> int:
    """Write rows as JSON lines, all or nothing; fields that are empty are left out. Returns their number."""
    kept = ("example_id", "sample", "metrics")
    return write_jsonl(
        path, ({name: value for name, value in to_json(row).items() if value or name in kept} for row in rows)
    )


def read_rows(path: Path | str) -> list[Row]:
    """The rows of a file, in file order. Raises InputError with file, line, field and remedy for what is no row."""
    rows = []
    for line, row in rows_of(path, Row):
        if not row.metrics and not row.unscored:
            problem, remedy = "neither metrics nor the reason that there are none", "evaluate the system again"
            raise InputError.at(path, problem, remedy, line=line, field="metrics")
        rows.append(row)
    return rows
