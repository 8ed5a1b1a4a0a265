"""The results of `recipe evaluate` for one system: plain frozen values in one JSON file, whose `kind` names their type.

The rows that the figures are means of stand beside it as JSON lines: `judge.json` has `judge.rows.jsonl`. Intervals
cluster by video unless stated otherwise. A number that is not known is None or absent, never 0.

Where verdicts are missing, `readings` hold a figure three ways by the names in `READINGS`: with each missing verdict as
0, without them, and with each as the best one. Whatever the judge would have said lies between the first and the last.
The figure itself leaves them out. Where nothing is missing `readings` are empty.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from recipe.artifacts import from_json, read_json, to_json, write_text
from recipe.errors import InputError
from recipe.models.sampling import Decoding
from recipe.stats import Interval

READINGS = ("missing_as_0", "missing_left_out", "missing_as_best")
"""Names of the readings of a figure where verdicts are missing."""


@dataclass(frozen=True, slots=True)
class JudgeIdentity:
    """Identity of a judge: verdicts of two that differ here are not comparable."""

    name: str
    """As tables show it: `Llama-3.3-70B-Instruct`, `proxy (minilm)`, `human: Ann`."""
    kind: Literal["llm", "proxy", "human"]
    """Only `llm` with the paper's model is the paper's judge."""
    model: str = ""
    prompt: str = ""
    """SHA-256 of the prompt's template and schema, or of what a proxy computes."""
    settings: dict[str, str] = field(default_factory=dict)
    """Temperature, repeats, limits, structured output: name to value."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many plans were judged, and how many others there are."""

    plans: int
    """Plans that the means are over, those that count as 0 by rule included."""
    videos: int = 0
    unscored: int = 0
    """Plans without a verdict."""
    missing: int = 0
    """Examples without a prediction, judged as empty plans by rule."""
    empty: int = 0
    """Plans without an actionable step: 0 on all six by rule, without a call."""
    shortened: int = 0
    """Plans too long to be shown whole."""


@dataclass(frozen=True, slots=True)
class DatasetScores:
    """Accuracy on one dataset, in percent, and the mean of each criterion, 0 to 5; None without a scored plan."""

    dataset: str
    split: str
    """`in-domain` or `zero-shot` for the paper's seven datasets, else empty."""
    accuracy: Interval | None
    criteria: dict[str, Interval]
    counts: Counts
    readings: dict[str, Interval] = field(default_factory=dict)
    """Of the accuracy."""


@dataclass(frozen=True, slots=True)
class MacroAccuracy:
    """Mean over the datasets of a split of their accuracies, in percent (paper, section on the evaluation protocol)."""

    split: str
    accuracy: Interval
    datasets: tuple[str, ...]
    readings: dict[str, Interval] = field(default_factory=dict)
    """Of the accuracy; over the datasets without a verdict, too, where missing ones count."""


@dataclass(frozen=True, slots=True)
class ControlScores:
    """The judge's scores of plans written on purpose, to read its figures against."""

    name: str
    accuracy: Interval | None
    criteria: dict[str, Interval]
    counts: Counts
    readings: dict[str, Interval] = field(default_factory=dict)
    """Of the accuracy."""


@dataclass(frozen=True, slots=True)
class JudgeScores:
    """A system's scores by a judge."""

    system: str
    judge: JudgeIdentity
    datasets: tuple[DatasetScores, ...]
    macro: tuple[MacroAccuracy, ...]
    controls: tuple[ControlScores, ...] = ()
    repeats: int = 1
    """Verdicts of each plan; means are over the repeats of a plan first."""
    repeat_deviation: float | None = None
    """Mean over plans of the standard deviation of their repeats, in percent; None with one repeat."""
    ledger: dict[str, float | None] = field(default_factory=dict)
    """Answers, cached ones, retries, tokens and cost."""
    findings: tuple[str, ...] = ()
    """Findings of the controls about the judge, a sentence each."""
    how: dict[str, int] = field(default_factory=dict)
    """Verdicts by how they were obtained: `json`, `regex`, `rule`, `proxy` or `human`."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Predictions that were not judged: `other splits`, `further samples`."""
    decoding: tuple[Decoding, ...] = ()
    """How the plans were sampled: one card, or several of a mixed file; empty where it is not known."""
    kind: Literal["judge"] = "judge"


@dataclass(frozen=True, slots=True)
class FailureScores:
    """Critical failures of one dataset, control or of all plans; None without a scored plan."""

    name: str
    """Of the dataset or control; empty for all plans."""
    without: Interval | None
    """Share of plans without a critical failure, in percent: How2Score."""
    failures: Interval | None
    """Mean number of critical failures in a plan."""
    counts: Counts
    readings: dict[str, Interval] = field(default_factory=dict)
    """Of `without`; a missing judgement as 0 is one with a failure."""


@dataclass(frozen=True, slots=True)
class CriticalScores:
    """A system's critical failures by a judge (How2Score, arXiv 2602.08808)."""

    system: str
    judge: JudgeIdentity
    overall: FailureScores
    datasets: tuple[FailureScores, ...]
    controls: tuple[FailureScores, ...] = ()
    repeats: int = 1
    """Judgements of each plan; means are over the repeats of a plan first."""
    ledger: dict[str, float | None] = field(default_factory=dict)
    """Answers, cached ones, retries, tokens and cost."""
    findings: tuple[str, ...] = ()
    """Findings of the controls about the judge, a sentence each."""
    how: dict[str, int] = field(default_factory=dict)
    """Judgements by how they were obtained: `json` or `rule`."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Predictions that were not judged: `other splits`, `further samples`."""
    decoding: tuple[Decoding, ...] = ()
    """How the plans were sampled: one card, or several of a mixed file; empty where it is not known."""
    kind: Literal["critical-failures"] = "critical-failures"


@dataclass(frozen=True, slots=True)
class DiversityScores:
    """Procedural diversity of a system: the mean over prompts of the mean over pairs (paper, appendix)."""

    system: str
    judge: JudgeIdentity
    diversity: Interval
    """0 to 1."""
    prompts: int
    samples: int
    """N, samples of each prompt."""
    pairs: int
    unscored: int
    levels: dict[str, int]
    """Pairs at each of the five levels, by level."""
    order_pairs: int = 0
    """Pairs that were also shown the other way round."""
    order_disagreements: int = 0
    """Those of them that then got another level."""
    ledger: dict[str, float | None] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    """Prompts, samples, share of questions in both orders, seed."""
    left_out: dict[str, int] = field(default_factory=dict)
    """`prompts with fewer samples`, which are in the mean all the same, and `prompts without two samples`."""
    readings: dict[str, Interval] = field(default_factory=dict)
    """Of the diversity; a missing answer as 0 is one that the plans are the same."""
    decoding: tuple[Decoding, ...] = ()
    """How the plans were sampled: one card, or several of a mixed file; empty where it is not known."""
    kind: Literal["diversity"] = "diversity"


@dataclass(frozen=True, slots=True)
class HorizonScores:
    """Visual planning for assistance at one horizon T, in percent."""

    horizon: int
    samples: int
    videos: int
    success_rate: Interval
    accuracy: Interval
    """mAcc, over positions."""
    iou: Interval
    """mIoU, `per_sample`."""
    more: dict[str, float] = field(default_factory=dict)
    """Other measures by name: `iou_batch_256`, `iou_cumulative_256`, `iou_bitwise`, `next_action`, `edit_distance`."""


@dataclass(frozen=True, slots=True)
class VpaScores:
    """A system on visual planning for assistance (VPA), CrossTask."""

    system: str
    protocol: Literal["shared", "separate"]
    taxonomy: str
    history: str
    """`oracle` or where else the histories are from; empty for a baseline that reads none."""
    horizons: tuple[HorizonScores, ...]
    settings: dict[str, str] = field(default_factory=dict)
    """Encoder of the remap, draws, seed, options of a planner: name to value."""
    remap: dict[str, float] = field(default_factory=dict)
    """Measures of the remap: mean margin, share of steps below a margin, steps, missing predictions."""
    supervised: bool = False
    decoding: tuple[Decoding, ...] = ()
    """How the plans were sampled: one card, or several of a mixed file; empty where it is not known."""
    kind: Literal["vpa"] = "vpa"


@dataclass(frozen=True, slots=True)
class JudgeAgreement:
    """Agreement of validity and a judge on the same plans."""

    judge: JudgeIdentity
    plans: int
    spearman: Interval | None
    kendall: float | None


@dataclass(frozen=True, slots=True)
class ValidityScores:
    """A system against task graphs: every valid order scores full."""

    system: str
    graphs: str
    """`world`, or the name of the graphs."""
    metrics: dict[str, Interval]
    """By the names of `metrics.METRICS`; clusters are goals."""
    counts: Counts
    settings: dict[str, str] = field(default_factory=dict)
    by_goal: dict[str, float] = field(default_factory=dict)
    """Mean validity of each goal."""
    samples: int = 1
    """Samples of each prompt: the smallest number where they differ."""
    agreement: tuple[JudgeAgreement, ...] = ()
    decoding: tuple[Decoding, ...] = ()
    """How the plans were sampled: one card, or several of a mixed file; empty where it is not known."""
    kind: Literal["validity"] = "validity"


@dataclass(frozen=True, slots=True)
class MatchControl:
    """A control on the same examples: plans that are no planner's."""

    name: str
    metrics: dict[str, Interval]
    difference: Interval
    """System minus control in the matched step F1 in order, on the examples that have the control."""
    prompts: int


@dataclass(frozen=True, slots=True)
class MatchScores:
    """A system against annotated continuations, step by step; clusters are goals."""

    system: str
    metrics: dict[str, Interval]
    """By the names of `metrics.METRICS`."""
    counts: Counts
    controls: tuple[MatchControl, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    """Encoder, ends of its scale, floor."""
    samples: int = 1
    """Samples of each prompt: the smallest number where they differ."""
    decoding: tuple[Decoding, ...] = ()
    """How the plans were sampled: one card, or several of a mixed file; empty where it is not known."""
    kind: Literal["match"] = "match"


SystemScores = JudgeScores | CriticalScores | DiversityScores | VpaScores | ValidityScores | MatchScores
KINDS: dict[str, type[SystemScores]] = {
    "judge": JudgeScores,
    "critical-failures": CriticalScores,
    "diversity": DiversityScores,
    "vpa": VpaScores,
    "validity": ValidityScores,
    "match": MatchScores,
}


def rows_path(scores: Path) -> Path:
    """Where the rows of a file of scores stand.

    >>> rows_path(Path("evaluations/judge.json")).name
    'judge.rows.jsonl'
    """
    return scores.with_name(f"{scores.stem}.rows.jsonl")


def write_scores(path: Path, scores: SystemScores) -> None:
    """Write one system's scores, all or nothing; keys stay in order."""
    write_text(path, json.dumps(to_json(scores), indent=2, ensure_ascii=False) + "\n")


def read_scores(path: Path) -> SystemScores:
    """The scores of a file; raises InputError naming the part that is missing, unknown or of the wrong kind."""
    raw = read_json(path)
    kind = KINDS.get(raw.get("kind", "")) if isinstance(raw, dict) and isinstance(raw.get("kind", ""), str) else None
    if kind is None:
        remedy = f"give a file that `recipe evaluate` wrote: {', '.join(KINDS)}"
        raise InputError.at(path, "no kind of scores", remedy, field="kind")
    return from_json(raw, kind, str(path))
