"""What is known of every plan of a study.

On a world that is its exact validity. Elsewhere the plan is compared with the reference continuation, and so are plans
that are no planner's, the controls (`recipe.evaluation.controls`): a line is taken for the reference's step that it
matches, or for none, and, as it was measured before, for the annotated step nearest to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from recipe.artifacts import read_jsonl
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
from recipe.plan_text import plan_steps
from recipe.planning.prediction_files import read_predictions
from recipe.planning.predictions import Prediction
from recipe.reward.embeddings import StepEmbeddings
from recipe.types import Example, Verdict
from recipe.world.graph import World
from recipe.world.load import load_world
from recipe.world.validity import score_plan
from recipe_studies.experiments.results import Curve
from recipe_studies.experiments.study import BASE, CORPUS, DOCUMENTS, TEST, TRAIN, Arm, Study

STEPS_KEPT = 1 << 17
"""Vectors of steps that are held, 200 MB of MiniLM's."""
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
    """The test prompts of a study and the scored plans of every regime."""

    study: Study
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
    """Judges plans against references, if the study asks for it."""
    controls: dict[str, Sequence[ScoredPlan]] = field(default_factory=dict)
    """Control to its plans of all splits, one for each prompt that has one; none on a world."""

    def of(self, split: str, regime: str) -> dict[int | None, list[ScoredPlan]]:
        """The plans of a split by seed."""
        ids = {example.example_id for example in self.prompts[split]}
        return {seed: [plan for plan in plans if plan.example_id in ids] for seed, plans in self.plans[regime].items()}

    def score(self, predictions: Sequence[Prediction]) -> list[ScoredPlan]:
        """Plans with their validity on a world, and with their agreement with the reference where that is compared."""
        scored = score_predictions(self.world, list(self.examples.values()), predictions)
        if not self.study.compares_references:
            return scored
        if self.nearest is not None and self.matcher is not None:
            # All texts at once: the encoder works in batches.
            steps = [step for prediction in predictions for step in prediction.steps]
            self.nearest.learn(steps)
            self.matcher.learn(steps)
        accuracies: dict[tuple[str, int], float] = {}
        if self.judge is not None:
            judged_examples = [self.examples[name] for name in dict.fromkeys(row.example_id for row in predictions)]
            for case in self.judge.judge(cases_of(judged_examples, predictions, samples="all").cases):
                if isinstance(case.outcome, Verdict):
                    accuracies[case.example_id, case.sample] = accuracy_of(case.outcome)
        compared = []
        for plan, prediction in zip(scored, predictions, strict=True):
            example = self.examples[plan.example_id]
            if self.nearest is None or self.matcher is None:
                apart = float(len(plan.texts) - len(example.continuation))
                more = {"length_error": apart, "length_apart": abs(apart)}
            else:
                own, reference = self.nearest(plan.texts), self.nearest(example.continuation)
                more = match_metrics(self.matcher, example, plan.texts)
                more |= {"f1": step_f1(own, reference), "ordered_f1": ordered_f1(own, reference)}
            if plan.validity is not None:
                more["copied"] = plan.validity.copied
            if (accuracy := accuracies.get((prediction.example_id, prediction.sample))) is not None:
                more["proxy"] = accuracy / 100
            compared.append(replace(plan, more=more))
        return compared


def measure(run_dir: Path, study: Study) -> Measurement:
    """Score every plan of every run, and let every reward choose among the base's first samples."""
    training, tested = read_examples(run_dir / TRAIN), read_examples(run_dir / TEST)
    has_world = study.config.has_world
    nearest = matcher = judge = None
    annotated: Sequence[Example] = ()
    if study.compares_references and not has_world:
        documents = run_dir / DOCUMENTS  # none where a given model is the base
        annotated = (*training, *tested, *(read_examples(documents) if documents.is_file() else ()))
        steps = {step for example in annotated for step in (*example.history, *example.continuation)}
        # Matcher and judge read the same steps, and plans that a reward chose or composed consist of those of others.
        embed = StepEmbeddings(Corpus.open(run_dir / CORPUS).encoder, STEPS_KEPT).stacked
        nearest, matcher = NearestStep(embed, sorted(steps)), StepMatcher(embed)
        judge = ProxyJudge(embed) if study.judged else None
        matcher.learn(text for row in tested for text in (*row.history, *row.continuation, row.goal))
    measured = Measurement(
        study=study,
        world=load_world() if has_world else None,
        nearest=nearest,
        matcher=matcher,
        examples={example.example_id: example for example in (*training, *tested)},
        prompts={split: [e for e in tested if e.split == split] for split in dict.fromkeys(e.split for e in tested)},
        plans={},
        judge=judge,
    )
    for plans in (*study.plan_sets, *study.composed):
        rewards = {
            ranker.name: [row.reward for row in read_predictions(run_dir / plans.rewarded(ranker.name))]
            for ranker in study.rankers
            if plans not in study.composed and (plans.regime == BASE or not ranker.base_only)
        }
        scored = []
        for index, plan in enumerate(measured.score(read_predictions(run_dir / plans.file))):
            known = {name: reward for name, own in rewards.items() if (reward := own[index]) is not None}
            scored.append(replace(plan, more={**plan.more, **known}))
        measured.plans.setdefault(plans.regime, {})[plans.seed] = scored
    for choice in study.choices:
        [samples] = measured.plans[choice.chosen_from].values()
        paid = [replace(plan, reward=plan.metrics().get(choice.metric)) for plan in samples]
        # Where several rewards choose, a plan's own reward is none of them.
        chosen = [
            replace(plan, reward=plan.reward if choice.metric == "reward" else None)
            for plan in best_of(paid, study.config.best_of)
        ]
        measured.plans[choice.regime] = {None: chosen}
    if matcher is not None:
        for control, made in control_plans(tested, annotated).items():
            measured.controls[control] = measured.score(list(made.values()))
        [base] = measured.plans[BASE].values()
        measured.controls[SAMPLE] = list(random_samples(base).values())
    return measured


def training_curve(run_dir: Path, measured: Measurement, arm: Arm) -> Curve:
    """A run on a reward, step by step or round by round; with `validity`, or `matched_f1`, of its own completions
    where that is known.
    """
    rows = [row for _, row in read_jsonl(run_dir / arm.folder / "metrics.jsonl")]
    record = "step-{step:05d}.jsonl"
    if isinstance(arm.config, BestOfNConfig):
        rows, record = [row for row in rows if "reward" in row], "round-{round:02d}.jsonl"
    series = {name: tuple(row.get(metric) for row in rows) for name, metric in SERIES.items()}
    world, matcher = measured.world, measured.matcher
    qualities = []
    for row in rows if world is not None or matcher is not None else ():
        file = run_dir / arm.folder / "completions" / record.format_map(row)
        completions = [completion for _, completion in read_jsonl(file)]
        plans = [plan_steps(c["completion"], cut=bool(c.get("clipped", False))) for c in completions]
        if world is not None:
            values = [
                score_plan(world, completion["goal"], completion["history"], plan).score
                for completion, plan in zip(completions, plans, strict=True)
            ]
        else:
            assert matcher is not None
            matcher.learn([step for plan in plans for step in plan])
            values = [
                matcher.agreement(measured.examples[completion["example_id"]], plan).f1
                for completion, plan in zip(completions, plans, strict=True)
            ]
        qualities.append(fmean(values))
    if world is not None or matcher is not None:
        series["validity" if world is not None else "matched_f1"] = tuple(qualities)
    return Curve(arm.regime, tuple(row["step"] for row in rows), series, arm.config.seed)
