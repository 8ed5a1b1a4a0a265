"""What is known of every plan of a comparison: exact validity on a world, agreement with the reference elsewhere."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from recipe.artifacts import JsonObject, read_jsonl
from recipe.corpus.store import Corpus
from recipe.data.examples import read_examples
from recipe.evaluation.matching import NearestStep, ordered_f1, step_f1
from recipe.evaluation.validity.measure import ScoredPlan, score_predictions
from recipe.experiments.comparison.settings import ComparisonConfig, RankerName, RewardName
from recipe.experiments.comparison.stages import rewarded_file, run_folder, run_name
from recipe.experiments.results import Curve
from recipe.experiments.settings import WorldSource
from recipe.experiments.stages import CORPUS, DOCUMENTS, TEST, TRAIN
from recipe.planning.predictions import Prediction, read_predictions
from recipe.reward.watchdog import copied_share
from recipe.types import Example
from recipe.world.graph import World
from recipe.world.load import load_world
from recipe.world.validity import score_plan

TRAINED = {"paper": "RL, paper", "grounded": "RL, grounded", "validity": "RL, exact validity"}
"""Regime of the runs that a reward trained."""
SERIES = {
    "reward": "reward",
    "length": "steps",
    "copied": "copied",
    "repeated": "repeated",
    "kl": "kl",
    "clipped": "clipped_ratio",
}
"""Series of a curve and the metric of training that it shows."""


def best_name(count: int, ranker: RankerName) -> str:
    """The regime of a ranker's choice among the base's first samples."""
    return f"best of {count}, {ranker}"


@dataclass(frozen=True, slots=True)
class Truth:
    """What plans are measured against: a world, or the annotated steps by name."""

    examples: Mapping[str, Example]
    world: World | None
    nearest: NearestStep | None

    def measures(self, example: Example, steps: Sequence[str]) -> dict[str, float]:
        """What is known of one plan beside its validity."""
        apart = float(len(steps) - len(example.continuation))
        known = {"length_error": apart, "length_apart": abs(apart)}
        if self.nearest is None:
            return known
        plan, reference = self.nearest(steps), self.nearest(example.continuation)
        known |= {"f1": step_f1(plan, reference), "ordered_f1": ordered_f1(plan, reference)}
        return known | {"copied": copied_share(example.history, steps)}


def open_truth(run_dir: Path, config: ComparisonConfig) -> Truth:
    """The truth of a run's training and test examples."""
    examples = [*read_examples(run_dir / TRAIN), *read_examples(run_dir / TEST)]
    known = {example.example_id: example for example in examples}
    if isinstance(config.source, WorldSource):
        return Truth(known, load_world(), None)
    annotated = (*examples, *read_examples(run_dir / DOCUMENTS))
    steps = {step for example in annotated for step in (*example.history, *example.continuation)}
    return Truth(known, None, NearestStep(Corpus.open(run_dir / CORPUS).encoder.encode, sorted(steps)))


def rewarded_plans(run_dir: Path, config: ComparisonConfig, truth: Truth, run: str) -> list[ScoredPlan]:
    """The plans of one run with all that is known of them, each ranker's reward under the ranker's name."""
    by_ranker = {ranker: read_predictions(run_dir / rewarded_file(ranker, run)) for ranker in config.rankers}
    predictions = by_ranker[config.rankers[0]]
    if truth.nearest is not None:
        truth.nearest.learn([step for prediction in predictions for step in prediction.steps])
    scored = score_predictions(truth.world, list(truth.examples.values()), predictions)
    return [
        replace(plan, reward=None, gated=None, more=_more(truth, plan, predictions[place], by_ranker, place))
        for place, plan in enumerate(scored)
    ]


def _more(
    truth: Truth,
    plan: ScoredPlan,
    prediction: Prediction,
    by_ranker: Mapping[RankerName, Sequence[Prediction]],
    place: int,
) -> dict[str, float]:
    known = truth.measures(truth.examples[plan.example_id], prediction.steps)
    if plan.validity is not None:
        known["copied"] = plan.validity.copied
    paid = {ranker: predictions[place].reward for ranker, predictions in by_ranker.items()}
    return known | {ranker: reward for ranker, reward in paid.items() if reward is not None}


def paid_by(plans: Sequence[ScoredPlan], ranker: RankerName) -> list[ScoredPlan]:
    """The plans with a ranker's reward as theirs, so that it can choose among them."""
    return [replace(plan, reward=plan.more[ranker]) for plan in plans]


def training_rows(run_dir: Path, run: str) -> list[JsonObject]:
    """Metrics of a GRPO run, one row a step."""
    return [row for _, row in read_jsonl(run_dir / run_folder(run) / "metrics.jsonl")]


def curves(run_dir: Path, config: ComparisonConfig, truth: Truth) -> Iterator[Curve]:
    """Every GRPO run step by step, with the truth about its own roll-outs."""
    for reward in config.rewards:
        for seed in config.seeds:
            yield _curve(run_dir, truth, reward, seed)


def _curve(run_dir: Path, truth: Truth, reward: RewardName, seed: int) -> Curve:
    run = run_name(reward, seed)
    rows = training_rows(run_dir, run)
    series = {name: tuple(row.get(field) for row in rows) for name, field in SERIES.items()}
    files = [run_dir / run_folder(run) / "completions" / f"step-{row['step']:05d}.jsonl" for row in rows]
    told = [[(row["example_id"], row["completion"]) for _, row in read_jsonl(file)] for file in files]
    written = [[Prediction.of(name, 0, text) for name, text in rollouts] for rollouts in told]
    if truth.nearest is not None:
        truth.nearest.learn([step for plans in written for plan in plans for step in plan.steps])
    name = "validity" if truth.world is not None else "f1"
    series[name] = tuple(sum(_true(truth, plan) for plan in plans) / len(plans) for plans in written)
    return Curve(TRAINED[reward], tuple(row["step"] for row in rows), series, seed)


def _true(truth: Truth, plan: Prediction) -> float:
    example = truth.examples[plan.example_id]
    if truth.world is not None:
        return score_plan(truth.world, example.goal, example.history, plan.steps).score
    return truth.measures(example, plan.steps)["f1"]
