"""Scorers: the measures of `recipe evaluate` on a submission, and the identity that tells one scorer from another.

A scorer gives each example one number, the mean over its plans. The figure of a submission is the mean over datasets of
their means, so that every dataset weighs the same; its interval draws whole videos, or whole goals.

A verdict that is missing because of the plan counts 0, and is counted: a plan may be written to make the judge refuse.
What the judge could not do for other reasons is no 0. An endpoint that is away raises. Where some plans have no
verdict, they are asked about again together with the references of their questions: a question whose reference gets
none either has no value for that plan, and a judge that gives no reference a verdict is away.

The identity covers the measure, its settings, the judge with its prompt, the version of this program and the
references. Figures of two identities are never in one table.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from recipe import __version__
from recipe.artifacts import JsonObject
from recipe.config import EncoderConfig
from recipe.corpus.encoders import open_encoder
from recipe.errors import ComputeError, InputError, listed
from recipe.evaluation.judge.llm import Judge, LlmJudge
from recipe.evaluation.judge.plans import Case, cases_of, control_cases
from recipe.evaluation.judge.proxy import ProxyJudge
from recipe.evaluation.judge.rubric import prompt_hash
from recipe.evaluation.judge.verdicts import CRITERIA, NOTHING, PlanId, example_means
from recipe.evaluation.match import MAIN, score_matches
from recipe.evaluation.matching import Embed, StepMatcher
from recipe.evaluation.paired import vpa_measures
from recipe.evaluation.plan_measures import open_reader
from recipe.evaluation.validity.measure import ScoredPlan, prompt_means, score_plans
from recipe.evaluation.validity.readings import Reader
from recipe.evaluation.vpa.protocol import HORIZONS
from recipe.evaluation.vpa.run import open_task, run_predictions
from recipe.planning.predictions import Prediction
from recipe.stats import Interval, macro_interval, video_of
from recipe.types import Example, Unscored, Verdict
from recipe_apps.board.settings import BoardMeasure, ScorerSettings
from recipe_apps.board.store import References

if TYPE_CHECKING:
    from recipe.models.model import Model

Array = NDArray[np.float64]
LEAST = 20
"""Examples below which no figure of them is shown: fewer would tell too much of each."""

MOST_UNSCORED = 0.05
"""Share of verdicts that a system with a place may lack. So much of a scale is open between missing as 0 and missing as
the best: 5 of 100 points, about what a board of some hundred questions can tell apart."""
_UNSCORED = "unscored"
"""Beside the metrics of an example: the share of its verdicts that are missing."""


class MeasureKind(NamedTuple):
    """How the figures of a measure are shown and drawn."""

    title: str
    main: str
    """Metric that a board ranks by."""
    unit: Literal["%", ""]
    digits: int
    cluster: Literal["video", "goal"]
    """What an interval draws."""


MEASURES: dict[BoardMeasure, MeasureKind] = {
    "judge": MeasureKind("judge", "accuracy", "%", 1, "video"),
    "proxy": MeasureKind("proxy judge", "accuracy", "%", 1, "video"),
    "validity": MeasureKind("validity", "score", "", 3, "goal"),
    "match": MeasureKind("matched step F1 in order", MAIN, "", 3, "goal"),
    "vpa": MeasureKind("VPA, accuracy of the next 3 actions", "3.accuracy", "%", 1, "video"),
}
"""Every measure, with the metric that it ranks by."""
_REMEMBERED = 200_000
"""Texts whose embeddings a scorer keeps."""
_VPA = tuple(f"{horizon}.{name}" for horizon in HORIZONS for name in ("success_rate", "accuracy", "iou"))
_VALIDITY = ("order", "coverage", "clean", "perfect", "steps")
_MATCH = ("matched_f1", "length_apart", "steps")


@dataclass(frozen=True, slots=True)
class Figures:
    """What is known of one submission on one board."""

    value: Interval | None
    """In the unit of the measure; None where nothing could be scored."""
    datasets: dict[str, Interval | None]
    """None for a dataset of fewer than `LEAST` examples."""
    metrics: dict[str, Interval]
    """Further metrics, the mean over datasets each."""
    unscored: int
    """Examples that lack a verdict or a value."""
    unscored_share: float = 0.0
    """Share of the verdicts that are missing because of the plans, which count 0."""


@dataclass(frozen=True, slots=True)
class Scored:
    """The outcome of a job."""

    figures: Figures
    values: Array
    """The main metric of each example [examples], NaN where there is none."""


class PlanScorer(Protocol):
    """Scores predictions against the references that it was opened with."""

    def means(self, predictions: Sequence[Prediction]) -> Mapping[str, Mapping[str, float]]:
        """The metrics of each example, by its id, of a judge also the share of missing verdicts as `unscored`.

        An example without a value is left out. Raises ComputeError where that cannot be told now.
        """
        ...


class Scorer:
    """One scorer, opened on its references."""

    def __init__(self, settings: ScorerSettings, given: References, inner: PlanScorer, told: JsonObject) -> None:
        self.settings, self.references, self.kind = settings, given, MEASURES[settings.measure]
        self.identity: JsonObject = {
            "measure": settings.measure, "references": given.sha, "program": __version__, "scorer": told
        }  # fmt: skip
        self._inner = inner

    def score(self, predictions: Sequence[Prediction]) -> Scored:
        """Score a submission. Raises ComputeError where that cannot be done now."""
        means = self._inner.means(predictions)
        examples = self.references.examples
        table = [means.get(one.example_id, {}) for one in examples]
        names = list(dict.fromkeys(name for row in table for name in row))
        columns = {name: np.array([row.get(name, np.nan) for row in table]) for name in names}
        values = columns.get(self.kind.main, np.full(len(examples), np.nan))
        missing = columns.pop(_UNSCORED, np.where(np.isfinite(values), 0.0, np.nan))
        clusters = clusters_of(self.kind, examples)
        datasets = [one.source for one in examples]
        by_dataset = {name: [place for place, own in enumerate(datasets) if own == name] for name in datasets}

        def over(column: Array, places: Sequence[int]) -> Interval | None:
            known = [place for place in places if np.isfinite(column[place])]
            if not known:
                return None
            return macro_interval(
                column[known], [datasets[place] for place in known], [clusters[place] for place in known]
            )

        everywhere = range(len(examples))
        further = {name: over(column, everywhere) for name, column in columns.items() if name != self.kind.main}
        figures = Figures(
            value=over(values, everywhere),
            datasets={
                name: over(values, places) if len(places) >= LEAST else None for name, places in by_dataset.items()
            },
            metrics={name: value for name, value in further.items() if value is not None},
            unscored=int((missing != 0).sum()),
            unscored_share=float(np.nanmean(missing)) if np.isfinite(missing).any() else 0.0,
        )
        return Scored(figures, values)


def clusters_of(kind: MeasureKind, examples: Sequence[Example]) -> list[str]:
    """What the intervals of a measure draw, of each example."""
    return [f"{one.source} {one.goal}" if kind.cluster == "goal" else video_of(one) for one in examples]


def control_predictions(given: References, plans: int) -> dict[str, list[Prediction]]:
    """Control rows by name: plans of `recipe evaluate judge`'s controls for every example, `plans` times each.

    An example that a control has no plan for, such as a shuffled single step, gets an empty plan there.
    """
    examples = given.examples
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for case in control_cases(examples, len(examples)):
        found.setdefault(case.control, {})[case.example.example_id] = case.steps
    return {
        control: [
            Prediction(one.example_id, steps.get(one.example_id, ()), sample)
            for one in examples
            for sample in range(plans)
        ]
        for control, steps in found.items()
    }


def label_of(settings: ScorerSettings) -> str:
    """What pages call a scorer."""
    if settings.label:
        return settings.label
    title = MEASURES[settings.measure].title
    if settings.measure == "judge":
        return settings.model.rsplit("/", 1)[-1]
    by_encoder = settings.measure != "validity" or settings.graphs is not None
    return f"{title} ({settings.encoder})" if by_encoder else title


def require_usable(settings: ScorerSettings, given: References) -> None:
    """Check settings that no other field can tell. Raises InputError."""
    if settings.measure == "judge" and not settings.model:
        raise InputError("a scorer with measure = 'judge' needs 'model', the judge's name at its endpoint.")
    if settings.measure == "vpa" and settings.root is None:
        raise InputError("a scorer with measure = 'vpa' needs 'root', the folder with CrossTask.")
    if settings.graphs is not None and settings.measure != "validity":
        raise InputError("'graphs' goes with measure = 'validity'; remove the key.")
    if len(given.examples) < LEAST:
        raise InputError(f"a track needs {LEAST} examples or more, so that no figure tells of single ones.")


@contextmanager
def open_scorer(settings: ScorerSettings, given: References, model: "Model | None" = None) -> Iterator[Scorer]:
    """The scorer of these settings on a set of references; a judge asks `model`, and is not asked without it.

    Raises InputError for settings, encoders or graphs that cannot be used.
    """
    require_usable(settings, given)
    if settings.measure == "judge":
        told = {
            "model": settings.model,
            "weights": settings.weights,
            "prompt": prompt_hash(),
            "missing verdicts": "0",
            "settings": settings.judge.model_dump(exclude={"batch_size"}),
        }
        asked = None if model is None else LlmJudge(model, settings.model, settings.judge)
        yield Scorer(settings, given, _Judged(asked, given), told)
    elif settings.measure == "proxy":
        judge = ProxyJudge(_encoder(settings), settings.encoder)
        yield Scorer(settings, given, _Judged(judge, given), asdict(judge.identity))
    elif settings.measure == "match":
        matcher = StepMatcher(_encoder(settings))
        scale = {"chance": f"{matcher.scale.chance:.6f}", "same": f"{matcher.scale.same:.6f}"}
        told = {"encoder": settings.encoder, **scale, "floor": f"{matcher.floor:g}"}
        yield Scorer(settings, given, _Matched(matcher, given), told)
    elif settings.measure == "validity":
        with _graphs(given) as graphs:
            reader, name, described = open_reader(graphs, settings.encoder, settings.threshold)
        if lost := [one.goal for one in given.examples if not reader.knows(one.goal)]:
            raise InputError(f"goals without a task graph: {listed(sorted(set(lost)))}; leave their examples out.")
        yield Scorer(settings, given, _Checked(reader, given), {"graphs": name, **described})
    else:
        yield _vpa_scorer(settings, given)


def _encoder(settings: ScorerSettings) -> Embed:
    """The encoder, which embeds a text once: questions and references come again with every submission."""
    embed = open_encoder(EncoderConfig(name=settings.encoder)).encode
    known: dict[str, NDArray[np.float32]] = {}

    def remembered(texts: Sequence[str]) -> NDArray[np.float32]:
        if new := [text for text in dict.fromkeys(texts) if text not in known]:
            if len(known) > _REMEMBERED:
                known.clear()
                new = list(dict.fromkeys(texts))
            known.update(zip(new, embed(new), strict=True))
        return np.stack([known[text] for text in texts]) if texts else embed(texts)

    return remembered


@contextmanager
def _graphs(given: References) -> Iterator[Path | None]:
    """A folder with the task graphs; None for those of the embedded world."""
    if given.graphs is None:
        yield None
        return
    with TemporaryDirectory(prefix="recipe-board-") as parent:
        folder = Path(parent) / "graphs"
        folder.mkdir()
        for name, content in given.graphs.items():
            (folder / Path(name).name).write_text(content, encoding="utf-8")
        yield folder


class _Judged:
    """Plans by a judge: accuracy in percent, and the six criteria."""

    def __init__(self, judge: Judge | None, given: References) -> None:
        self._judge, self._examples = judge, given.examples

    def means(self, predictions: Sequence[Prediction]) -> Mapping[str, Mapping[str, float]]:
        if self._judge is None:
            raise ComputeError("no judge is asked here; give the worker its --endpoint.")
        cases = cases_of(self._examples, predictions, samples="all").cases
        judged = self._judge.judge(cases)
        if lost := {row.plan_id: row.outcome.reason for row in judged if isinstance(row.outcome, Unscored)}:
            names = {plan.example_id for plan in lost}
            # First, so that an answer to one tells the endpoint's engine that refusals concern single chats.
            asked = [
                Case(one, one.continuation, control="reference") for one in self._examples if one.example_id in names
            ]
            asked += [case for case in cases if PlanId(case.example.example_id, case.sample) in lost]
            again = self._judge.judge(asked)
            able = {
                row.example_id
                for row in again
                if row.control and row.how != "rule" and isinstance(row.outcome, Verdict)
            }
            if not able:
                raise ComputeError(f"the judge gives references no verdict, either: {next(iter(lost.values()))}.")
            judged = [row for row in judged if row.plan_id not in lost]
            judged += [row for row in again if not row.control and row.example_id in able]
        missing: dict[str, list[bool]] = {}
        for row in judged:
            missing.setdefault(row.example_id, []).append(isinstance(row.outcome, Unscored))
        return {
            name: {one: means[one] for one in ("accuracy", *CRITERIA)} | {_UNSCORED: fmean(missing[name])}
            for name, means in example_means(judged, missing=NOTHING).items()
        }


class _Checked:
    """Plans against task graphs."""

    def __init__(self, reader: Reader, given: References) -> None:
        self._reader, self._examples = reader, given.examples

    def means(self, predictions: Sequence[Prediction]) -> Mapping[str, Mapping[str, float]]:
        return _of_plans(score_plans(self._reader, self._examples, predictions), ("score", *_VALIDITY))


class _Matched:
    """Plans against the reference, step by step."""

    def __init__(self, matcher: StepMatcher, given: References) -> None:
        self._matcher, self._examples = matcher, given.examples

    def means(self, predictions: Sequence[Prediction]) -> Mapping[str, Mapping[str, float]]:
        return _of_plans(score_matches(self._matcher, self._examples, predictions), (MAIN, *_MATCH))


def _of_plans(scored: Sequence[ScoredPlan], names: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
    means = prompt_means(scored)
    return {
        example: {name: float(means.values[name][place]) for name in names if name in means.values}
        for place, example in enumerate(means.example_ids)
    }


def _vpa_scorer(settings: ScorerSettings, given: References) -> Scorer:
    assert settings.root is not None
    task = open_task(settings.root, settings.protocol)
    if [one.sample_id for one in task.samples] != [one.example_id for one in given.examples]:
        problem = f"the track's examples are not the samples of VPA's protocol {settings.protocol!r}"
        raise InputError(f"{problem}; make them by `recipe vpa examples` from the same CrossTask.")
    embed = _encoder(settings)

    class Actions:
        """CrossTask's next actions."""

        def means(self, predictions: Sequence[Prediction]) -> Mapping[str, Mapping[str, float]]:
            rows = run_predictions(task, predictions, lambda: embed, "submission").rows
            measured = {row["sample_id"]: vpa_measures(row, HORIZONS) for row in rows}
            return {
                sample: {name: values[name] for name in _VPA if name in values} for sample, values in measured.items()
            }

    told = {"protocol": settings.protocol, "taxonomy": task.ids.taxonomy.name, "encoder": settings.encoder}
    return Scorer(settings, given, Actions(), told | {"rule": task.settings["rule"]})
