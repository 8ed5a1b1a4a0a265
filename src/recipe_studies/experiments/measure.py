"""What is known of every plan of an experiment.

On a world that is its exact validity. Elsewhere the plan is compared with the reference continuation, and so are plans
that are no planner's, the controls (`recipe.evaluation.controls`): a line is taken for the reference's step that it
matches, or for none, and, as it was measured before, for the annotated step nearest to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from recipe.artifacts import JsonObject, read_jsonl
from recipe.config import BestOfNConfig
from recipe.corpus.store import Corpus
from recipe.data.examples import read_examples
from recipe.evaluation.controls import SAMPLE, control_plans, random_samples
from recipe.evaluation.judge.plans import cases_of
from recipe.evaluation.judge.proxy import ProxyJudge
from recipe.evaluation.judge.verdicts import accuracy_of
from recipe.evaluation.match import match_metrics
from recipe.evaluation.matching import NearestStep, StepMatcher, ordered_f1, step_f1
from recipe.evaluation.validity.measure import ScoredPlan, best_of, score_predictions
from recipe.planning.predictions import Prediction, read_predictions
from recipe.text import plan_steps
from recipe.types import Example, Verdict
from recipe.world.graph import World
from recipe.world.load import load_world
from recipe.world.validity import score_plan
from recipe_studies.experiments.design import BASE, CORPUS, DOCUMENTS, TEST, TRAIN, Design, PlanSet, TrainingRun
from recipe_studies.experiments.results import Curve

SERIES = {
    "reward": "reward",
    "length": "steps",
    "copied": "copied",
    "repeated": "repeated",
    "kl": "kl",
    "gated": "gated",
    "clipped": "clipped_ratio",
}
"""Series of a curve and the metric of training that it shows."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The test prompts of an experiment and the scored plans of every regime."""

    design: Design
    world: World | None
    nearest: NearestStep | None
    """Names the annotated step nearest to a text; None on a world, and where plans are not compared."""
    matcher: StepMatcher | None
    """Names the step of the reference that a line matches; None where `nearest` is."""
    examples: Mapping[str, Example]
    """Training and test examples by id."""
    prompts: Mapping[str, Sequence[Example]]
    """Test examples by split."""
    plans: dict[str, dict[int | None, Sequence[ScoredPlan]]]
    """Regime to seed to plans of all splits; the seed is None where a regime has one run only."""
    judge: ProxyJudge | None = None
    """Judges plans beside references, where the design asks for it."""
    controls: dict[str, Sequence[ScoredPlan]] = field(default_factory=dict)
    """Control to its plans of all splits, one for each prompt that has one; none on a world."""

    def of(self, split: str, regime: str) -> dict[int | None, list[ScoredPlan]]:
        """The plans of a split by seed."""
        asked = {example.example_id for example in self.prompts[split]}
        return {
            seed: [plan for plan in plans if plan.example_id in asked] for seed, plans in self.plans[regime].items()
        }

    def against_reference(self, example: Example, steps: Sequence[str]) -> dict[str, float]:
        """Metrics of a plan beside its reference continuation."""
        if self.nearest is None or self.matcher is None:
            apart = float(len(steps) - len(example.continuation))
            return {"length_error": apart, "length_apart": abs(apart)}
        plan, reference = self.nearest(steps), self.nearest(example.continuation)
        metrics = match_metrics(self.matcher, example, steps)
        return metrics | {"f1": step_f1(plan, reference), "ordered_f1": ordered_f1(plan, reference)}

    def learn(self, steps: Sequence[str]) -> None:
        """Embed the steps of many plans at once, where plans are compared by embeddings."""
        if self.nearest is not None and self.matcher is not None:
            self.nearest.learn(steps)
            self.matcher.learn(steps)


def measure(run_dir: Path, design: Design, *, world: bool, best_of_count: int) -> Measurement:
    """Score every plan of every run, and let every reward choose among the base's first `best_of_count` samples."""
    training, tested = read_examples(run_dir / TRAIN), read_examples(run_dir / TEST)
    nearest = matcher = judge = None
    annotated: Sequence[Example] = ()
    if design.compares_references and not world:
        documents = run_dir / DOCUMENTS  # none where a given model is the base
        annotated = (*training, *tested, *(read_examples(documents) if documents.is_file() else ()))
        steps = {step for example in annotated for step in (*example.history, *example.continuation)}
        embed = Corpus.open(run_dir / CORPUS).encoder.encode
        nearest, matcher = NearestStep(embed, sorted(steps)), StepMatcher(embed)
        judge = ProxyJudge(embed) if design.judged else None
        matcher.learn(text for one in tested for text in (*one.history, *one.continuation, one.goal))
    measured = Measurement(
        design=design,
        world=load_world() if world else None,
        nearest=nearest,
        matcher=matcher,
        examples={example.example_id: example for example in (*training, *tested)},
        prompts={split: [e for e in tested if e.split == split] for split in dict.fromkeys(e.split for e in tested)},
        plans={},
        judge=judge,
    )
    for plans in design.plan_sets:
        measured.plans.setdefault(plans.regime, {})[plans.seed] = _scored_plans(run_dir, measured, plans)
    for choice in design.choices:
        [base] = measured.plans[BASE].values()
        paid = rewarded_by(base, choice.metric)
        # Where several rewards choose, a plan's own reward is none of them.
        chosen = [
            replace(plan, reward=plan.reward if choice.metric == "reward" else None)
            for plan in best_of(paid, best_of_count)
        ]
        measured.plans[choice.regime] = {None: chosen}
    if matcher is not None:
        for control, made in control_plans(tested, annotated).items():
            measured.controls[control] = _compared(measured, list(made.values()))
        [base] = measured.plans[BASE].values()
        measured.controls[SAMPLE] = list(random_samples(base).values())
    return measured


def _scored_plans(run_dir: Path, measured: Measurement, plans: PlanSet) -> list[ScoredPlan]:
    """The plans of one set with all that is known of them, each ranker's reward under the ranker's name."""
    predictions = read_predictions(run_dir / plans.file)
    rewards = {
        ranker.name: [one.reward for one in read_predictions(run_dir / plans.rewarded(ranker.name))]
        for ranker in measured.design.rankers
        if plans.regime == BASE or not ranker.base_only
    }
    compared = _compared(measured, predictions)
    complete = []
    for place, plan in enumerate(compared):
        known = {ranker: totals[place] for ranker, totals in rewards.items()}
        paid = {ranker: reward for ranker, reward in known.items() if reward is not None}
        complete.append(replace(plan, more={**plan.more, **paid}))
    return complete


def _compared(measured: Measurement, predictions: Sequence[Prediction]) -> list[ScoredPlan]:
    """Plans with their validity on a world, and with their agreement with the reference where that is compared."""
    scored = score_predictions(measured.world, list(measured.examples.values()), predictions)
    if not measured.design.compares_references:
        return scored
    measured.learn([step for prediction in predictions for step in prediction.steps])
    proxies = _proxies(measured.judge, measured, predictions) if measured.judge is not None else {}
    compared = []
    for plan, prediction in zip(scored, predictions, strict=True):
        more = measured.against_reference(measured.examples[plan.example_id], plan.texts)
        if plan.validity is not None:
            more["copied"] = plan.validity.copied
        if (accuracy := proxies.get((prediction.example_id, prediction.sample))) is not None:
            more["proxy"] = accuracy / 100
        compared.append(replace(plan, more=more))
    return compared


def _proxies(
    judge: ProxyJudge, measured: Measurement, predictions: Sequence[Prediction]
) -> dict[tuple[str, int], float]:
    """The proxy judge's accuracy of each plan in percent, by example and sample."""
    examples = [measured.examples[name] for name in dict.fromkeys(one.example_id for one in predictions)]
    judged = judge.judge(cases_of(examples, predictions, samples="all").cases)
    return {
        (one.example_id, one.sample): accuracy_of(one.outcome) for one in judged if isinstance(one.outcome, Verdict)
    }


def rewarded_by(plans: Sequence[ScoredPlan], metric: str) -> list[ScoredPlan]:
    """The plans with one of their metrics as their reward, so that it can choose among them."""
    return [replace(plan, reward=plan.metrics().get(metric)) for plan in plans]


def training_rows(run_dir: Path, run: TrainingRun) -> list[JsonObject]:
    """Metrics of a training run, one row a step."""
    return [row for _, row in read_jsonl(run_dir / run.folder / "metrics.jsonl")]


def training_curve(run_dir: Path, measured: Measurement, run: TrainingRun) -> Curve:
    """A run on a reward, step by step or round by round; with `validity`, or `matched_f1`, of its own completions
    where that is known.
    """
    rows, record = training_rows(run_dir, run), "step-{step:05d}.jsonl"
    if isinstance(run.config, BestOfNConfig):
        rows, record = [row for row in rows if "reward" in row], "round-{round:02d}.jsonl"
    series = {name: tuple(row.get(metric) for row in rows) for name, metric in SERIES.items()}
    name = "validity" if measured.world is not None else "matched_f1" if measured.matcher is not None else None
    if name is not None:
        files = [run_dir / run.folder / "completions" / record.format_map(row) for row in rows]
        series[name] = tuple(_mean_quality(measured, [row for _, row in read_jsonl(file)]) for file in files)
    return Curve(run.regime, tuple(row["step"] for row in rows), series, run.config.seed)


def _mean_quality(measured: Measurement, completions: Sequence[JsonObject]) -> float:
    """Mean validity of recorded completions on a world, else their mean matched step F1."""
    plans = [plan_steps(row["completion"], cut=bool(row.get("clipped", False))) for row in completions]
    if measured.world is not None:
        world = measured.world
        return fmean(
            score_plan(world, row["goal"], row["history"], plan).score
            for row, plan in zip(completions, plans, strict=True)
        )
    assert measured.matcher is not None
    measured.matcher.learn([step for plan in plans for step in plan])
    return fmean(
        measured.matcher.agreement(measured.examples[row["example_id"]], plan).f1
        for row, plan in zip(completions, plans, strict=True)
    )
