"""From what a comparison's stages left behind to its results, and from those to the report."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean

from recipe.corpus.store import Corpus
from recipe.data.examples import read_examples
from recipe.evaluation.validity.measure import (
    PromptMeans,
    ScoredPlan,
    best_of,
    differences,
    line_statuses,
    mean_over_runs,
    plan_lengths,
    prompt_means,
    reranking,
    summarise,
)
from recipe.experiments import results
from recipe.experiments.alarms import alarms_of
from recipe.experiments.comparison.findings import caveats, summary
from recipe.experiments.comparison.measure import (
    TRAINED,
    Truth,
    best_name,
    curves,
    open_truth,
    paid_by,
    rewarded_plans,
    training_rows,
)
from recipe.experiments.comparison.settings import ComparisonConfig
from recipe.experiments.comparison.stages import plans_file, run_folder, run_name
from recipe.experiments.page import write_html
from recipe.experiments.provenance import provenance
from recipe.experiments.schedule import stage_seconds
from recipe.experiments.stages import BASE, CORPUS, TEST
from recipe.planning.predictions import read_predictions
from recipe.progress import Progress
from recipe.types import Example
from recipe.world.validity import score_plan

NO_SEED = -1
"""Stands for a regime that was not trained."""
STAGES = {"data": "draw the data", "corpus": "build the corpus", "base": "train the base planner"}
KINDS = {"grpo": "GRPO, all runs", "plans": "plans, all runs", "rewards": "rewards of all plans"}
"""Stages of one kind are shown as one, with their times added."""


@dataclass(frozen=True, slots=True)
class ComparisonReport:
    """What the report is about."""

    config: ComparisonConfig


@dataclass(frozen=True)
class Measured:
    """Everything that is known of every plan."""

    config: ComparisonConfig
    truth: Truth
    examples: Mapping[str, Sequence[Example]]
    """Test prompts by split."""
    plans: Mapping[str, Mapping[int, Sequence[ScoredPlan]]]
    """Regime to seed to plans of all splits; a regime that was not trained has NO_SEED."""

    @cached_property
    def main(self) -> str:
        """The metric that says how good a plan is."""
        return "score" if self.truth.world is not None else "ordered_f1"

    def of(self, split: str, regime: str) -> list[list[ScoredPlan]]:
        """The plans of a split, one list a seed."""
        asked = {example.example_id for example in self.examples[split]}
        return [[plan for plan in plans if plan.example_id in asked] for plans in self.plans[regime].values()]


def write_comparison(run_dir: Path, settings: ComparisonReport, progress: Progress) -> None:
    """Write `report.json` and `report.html`."""
    with progress.task("writing the report", 3) as advance:
        measured = measure(run_dir, settings.config)
        advance(1)
        found = collect(run_dir, measured)
        results.save_results(run_dir / "report.json", found)
        advance(1)
        write_html(found, run_dir / "report.html")
        advance(1)


def measure(run_dir: Path, config: ComparisonConfig) -> Measured:
    """Every plan of every run, and the choices of every ranker among the base's."""
    truth = open_truth(run_dir, config)
    tested = read_examples(run_dir / TEST)
    splits = {split: [e for e in tested if e.split == split] for split in dict.fromkeys(e.split for e in tested)}
    base = rewarded_plans(run_dir, config, truth, BASE)
    plans: dict[str, dict[int, Sequence[ScoredPlan]]] = {BASE: {NO_SEED: base}}
    for reward in config.rewards:
        plans[TRAINED[reward]] = {
            seed: rewarded_plans(run_dir, config, truth, run_name(reward, seed)) for seed in config.seeds
        }
    for ranker in config.rankers:
        chosen = best_of(paid_by(base, ranker), config.best_of)
        plans[best_name(config.best_of, ranker)] = {NO_SEED: [replace(plan, reward=None) for plan in chosen]}
    return Measured(config, truth, splits, plans)


def collect(run_dir: Path, measured: Measured) -> results.Results:
    """All parts of the report."""
    config, seed = measured.config, measured.config.seed
    means = {
        (split, regime): mean_over_runs([prompt_means(plans) for plans in measured.of(split, regime)])
        for split in measured.examples
        for regime in measured.plans
    }
    found = results.Results(
        title=config.title,
        provenance=provenance(
            run_dir,
            config,
            Corpus.open(run_dir / CORPUS),
            config.seeds,
            {f"verifier {name}": given for name, given in config.verifiers.items()},
        ),
        stages=tuple(_stages(run_dir)),
        scores=tuple(_row(measured, split, regime, mean) for (split, regime), mean in means.items()),
        differences=tuple(
            difference
            for (split, regime), mean in means.items()
            if regime != BASE
            for difference in differences(split, regime, mean, BASE, means[split, BASE], seed)
        ),
        by_seed=tuple(_by_seed(measured, {split: means[split, BASE] for split in measured.examples})),
        curves=tuple(curves(run_dir, config, measured.truth)),
        rerankings=tuple(_rerankings(measured)),
        lengths=tuple(_lengths(measured)),
        prompts=tuple(_shown(run_dir, measured)),
        costs=tuple(_costs(run_dir, config)),
        alarms=tuple(_alarms(run_dir, config)),
    )
    return replace(found, summary=summary(found, measured.main), caveats=caveats(config))


def _row(measured: Measured, split: str, regime: str, means: PromptMeans) -> results.Scores:
    """A regime's means; that of the KL is over the plans it was estimated from."""
    seed = measured.config.seed
    row = summarise(split, regime, means, seed)
    weighed = [[plan for plan in plans if plan.kl is not None] for plans in measured.of(split, regime)]
    if all(weighed):
        estimated = mean_over_runs([prompt_means(plans) for plans in weighed])
        row.metrics["kl"] = summarise(split, regime, estimated, seed).metrics["kl"]
    return row


def _by_seed(measured: Measured, base: Mapping[str, PromptMeans]) -> Iterator[results.Difference]:
    """What each run alone changed."""
    config = measured.config
    for split in measured.examples:
        for reward in config.rewards:
            for seed, plans in zip(config.seeds, measured.of(split, TRAINED[reward]), strict=True):
                own = differences(split, TRAINED[reward], prompt_means(plans), BASE, base[split], config.seed)
                yield from (replace(difference, seed=seed) for difference in own)


def _rerankings(measured: Measured) -> Iterator[results.Reranking]:
    config = measured.config
    for split in measured.examples:
        [base] = measured.of(split, BASE)
        for ranker in config.rankers:
            paid = paid_by(base, ranker)
            yield reranking(split, BASE, paid, config.best_of, measured.main, config.seed, ranker)


def _lengths(measured: Measured) -> Iterator[results.Lengths]:
    """Plan lengths of the true continuations and of every regime, all seeds together."""
    for split, examples in measured.examples.items():
        counts = Counter(len(example.continuation) for example in examples)
        yield results.Lengths(split, "reference", tuple(counts[steps] for steps in range(max(counts) + 1)))
        for regime in measured.plans:
            yield plan_lengths(split, regime, [plan for plans in measured.of(split, regime) for plan in plans])


def _costs(run_dir: Path, config: ComparisonConfig) -> Iterator[results.Cost]:
    for reward in config.rewards:
        rows = [row for seed in config.seeds for row in training_rows(run_dir, run_name(reward, seed))]
        spent = [(row["reward_seconds"], row["step_seconds"]) for row in rows if "reward_seconds" in row]
        if spent:
            share = fmean(own / whole for own, whole in spent)
            yield results.Cost(TRAINED[reward], fmean(own for own, _ in spent), fmean(w for _, w in spent), share)


def _alarms(run_dir: Path, config: ComparisonConfig) -> Iterator[results.Alarm]:
    for reward in config.rewards:
        for seed in config.seeds:
            yield from alarms_of(run_dir / run_folder(run_name(reward, seed)), TRAINED[reward], seed)


def _stages(run_dir: Path) -> Iterator[results.Stage]:
    seconds = stage_seconds(run_dir)
    yield from (results.Stage(title, seconds[name]) for name, title in STAGES.items() if name in seconds)
    for kind, title in KINDS.items():
        own = [taken for name, taken in seconds.items() if name.startswith(f"{kind}-")]
        if own:
            yield results.Stage(title, sum(own), f"{len(own)} stages, {sum(own) / len(own):.0f} s each")


def _shown(run_dir: Path, measured: Measured) -> Iterator[results.ShownPrompt]:
    """Evenly spaced prompts of each split: the reference, the first sample of each run's first seed, the choices."""
    config = measured.config
    first = {BASE: BASE} | {TRAINED[reward]: run_name(reward, config.seeds[0]) for reward in config.rewards}
    sampled = {
        (run, prediction.example_id, prediction.sample): prediction.steps
        for run in first.values()
        for prediction in read_predictions(run_dir / plans_file(run))
    }
    for split, examples in measured.examples.items():
        chosen = {
            (regime, plan.example_id): plan.sample
            for regime in measured.plans
            if regime not in first
            for plan in measured.of(split, regime)[0]
        }
        for example in examples[:: max(1, len(examples) // config.shown)][: config.shown]:
            plans = {"reference": example.continuation}
            plans |= {regime: sampled[run, example.example_id, 0] for regime, run in first.items()}
            picked = [regime for regime in measured.plans if regime not in first]
            plans |= {one: sampled[BASE, example.example_id, chosen[one, example.example_id]] for one in picked}
            shown = tuple(_shown_plan(measured.truth, example, regime, steps) for regime, steps in plans.items())
            yield results.ShownPrompt(split, example.goal, example.history, shown)


def _shown_plan(truth: Truth, example: Example, regime: str, steps: Sequence[str]) -> results.ShownPlan:
    if truth.world is None:
        return results.ShownPlan(regime, tuple(results.Line(step) for step in steps))
    lines = line_statuses(truth.world, example.goal, example.history, steps)
    return results.ShownPlan(regime, lines, score_plan(truth.world, example.goal, example.history, steps).score)
