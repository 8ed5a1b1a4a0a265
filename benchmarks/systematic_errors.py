"""Do planners err systematically? How often the samples of a prompt make the same errors, against independent ones.

    python benchmarks/systematic_errors.py --data DATA [--models smollm2] [--base runs/shares/share-65 ...]

DATA holds `youcook2/procedures.jsonl`. One prompt of each recipe of its validation split is cut so that 3 to 6 steps
remain. A model writes 20 plans of each at temperature 0.7, and one greedily. `--base` names folders of the demo's
study, such as those that `benchmarks/comparison.py` makes by `noise.systematic`: their bases, one of which errs
independently, calibrate the figures on the first of their test prompts.

A line is taken for a step by `StepMatcher` with MiniLM, of the remaining and the done steps; on the world by its
recogniser. Of prompt i, item j errs in k_ij of the n_ij samples that can err; p_i = sum_j k_ij / sum_j n_ij. Items:

    missing   a remaining step, in all samples: it is in no line. On the world only steps that no valid plan leaves out
    turned    two remaining steps a before b, in the samples that hold both, if there are 5: b stands first. Annotated
              order is one of several that may be right; on the world b waits for a
    copied    a done step, in all samples: a line says it again

Two figures, of prompts with two items or more:

    ICC(1)    sum_i B_i / sum_i (B_i + c_i W_i), the share of the variance of errors that lies between items, where
              W_i = sum_j k_ij (n_ij - k_ij) / n_ij / (N_i - J_i)            within items
              B_i = sum_j n_ij (k_ij / n_ij - p_i)^2 - (J_i - 1) W_i         between them, beyond binomial chance
              c_i = N_i - sum_j n_ij^2 / N_i,  N_i = sum_j n_ij,  J_i = number of items
              B_i and W_i are unbiased: independent errors of one rate have 0 whatever it is. Errors of the same items
              in every sample have 1
    repeated  the share of errors on items that err in at least 80% of their samples. Independent errors of the rate p_i
              give sum_ij n_ij p_i P(Binomial(n_ij - 1, p_i) >= ceil(0.8 n_ij) - 1) / sum_ij k_ij. Where p_i is near 0.8
              or above, they repeat, too, and the figure tells nothing

Items differ in difficulty: an ICC above 0 says that a model knows some steps and not others. That is what "systematic"
means here, no more; a wording that the matcher cannot tell counts, too. Figures of one way of reading lines are alike.

    foreign   lines that match no step. Those of a prompt are one where all their cosines are at least 0.85 (complete
              linkage), or by step on the world. Shown is the share of samples with the most frequent one, against lines
              drawn from the plans of other goals, as many a sample

*Greedy*: of the errors that most samples make, the share that the greedy plan makes; and of those that most do not.

All intervals resample goals. Answers are kept in `--folder`: what it has is not asked again. A sample without a plan is
left out and counted. One thread. Needs the extras `encoder` and `report`, and the weights of smollm2.
"""

import argparse
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from common import add_json, table, write_result
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.stats import binom

from recipe.config import EncoderConfig, ModelConfig, SamplingConfig
from recipe.corpus.encoders import open_encoder
from recipe.data.examples import read_examples
from recipe.data.procedures import read_procedures
from recipe.data.supervision import cut_procedures
from recipe.evaluation.matching import Embed, StepMatcher
from recipe.models.model import open_model
from recipe.planning.planner import Planner
from recipe.planning.predictions import Prediction
from recipe.prompting import open_prompt
from recipe.stats import Interval, bootstrap_interval, mean_interval, resampled_totals
from recipe.text import same_goal
from recipe.types import Example
from recipe.world.load import load_world
from recipe.world.validity import plan_key

SAMPLES, TEMPERATURE, LONGEST = 20, 0.7, 128
REMAINING = range(3, 7)
"""Steps that a cut leaves; more do not fit into the limit of tokens."""
TOGETHER = 5
"""Samples that must hold both steps of a pair."""
LENIENT = 0.5
"""Likeness of the second reading, below that of `recipe.evaluation.matching`."""
SAME_LINE = 0.85
"""Least cosine of foreign lines that count as one."""
DRAWS = 20
"""Of foreign lines from other goals, for each prompt."""
WORLD = load_world()
Array = NDArray[np.float64]


ABOUT = (
    "ICC: the share of the variance of errors that lies between the steps of a prompt; 0 where errors are "
    "independent of the step, 1 where all samples make the same. Repeated: the share of errors on steps (or pairs) "
    f"that err in at least 80% of the samples. {SAMPLES} samples a prompt at temperature {TEMPERATURE}, {LONGEST} "
    "tokens at most; intervals over goals. Models write for one cut of each recipe of YouCook2's validation split, "
    "with one example in the prompt; lines are matched to annotated steps by MiniLM from likeness 2/3 on. Rows of "
    "the world calibrate the figures: bases that read independent errors (share 0), or the same ones in a share of "
    "the texts, read by the world's recogniser, or by MiniLM against one valid continuation, as the models are. Only "
    "rows of one way of reading compare: MiniLM adds systematic errors of its own. Where the rate is near 80% or "
    "above, independent errors repeat, too."
)


class ReadPlan(NamedTuple):
    """A plan as steps, in the order of their first lines."""

    steps: tuple[str, ...]
    """The remaining ones."""
    copied: tuple[str, ...] = ()
    """The done ones."""
    foreign: tuple[str, ...] = ()
    """Lines that match none."""


class SampledPrompt(NamedTuple):
    """A prompt with its plans."""

    goal: str
    remaining: tuple[str, ...]
    done: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    """Two remaining steps in their right order."""
    samples: list[ReadPlan]
    greedy: ReadPlan | None
    """None where the completion holds no plan."""


class ItemErrors(NamedTuple):
    """How often the items of a prompt err."""

    goal: str
    errors: Array
    """Samples in which each item errs [items]."""
    trials: Array
    """Samples in which it can [items]."""
    greedy: list[bool | None]
    """Whether the greedy plan errs [items]; None where it cannot."""


Predictions = dict[str, list[Prediction]]
"""By the id of their example."""
Reader = Callable[[Sequence[str]], ReadPlan]
Reading = Callable[[Example], tuple[tuple[str, ...], tuple[str, ...], tuple[tuple[str, str], ...], Reader]]
"""The remaining and done steps of an example, the pairs of the remaining ones, and what reads its plans."""
Group = Callable[[Sequence[str]], list[Any]]
"""A name of the foreign step that each line says; equal names are one step."""


def main() -> None:
    """Sample, measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="without it the world's bases alone are measured")
    parser.add_argument("--models", nargs="+", default=["smollm2"], help="on DATA: names or folders")
    parser.add_argument("--prompt", default="one-example", help="of the models on DATA: a name or a file")
    parser.add_argument("--base", type=Path, action="append", default=[], help="folder of `recipe demo`")
    parser.add_argument("--prompts", type=int, default=40, help="of each planner")
    parser.add_argument("--folder", type=Path, default=Path("runs/systematic-errors"))
    parser.add_argument("--quick", action="store_true", help="four prompts of four plans, to see that it runs")
    add_json(parser, "studies-systematic_errors")
    options = parser.parse_args()
    torch.set_num_threads(1)
    count, prompts = (4, 4) if options.quick else (SAMPLES, options.prompts)
    embed = open_encoder(EncoderConfig(name="minilm")).encode
    matcher = StepMatcher(embed)
    rows: dict[str, dict[str, Any]] = {}
    measured: list[tuple[str, list[Example], str, str]] = []
    if options.data:
        examples = cut_recipes(options.data / "youcook2" / "procedures.jsonl", prompts)
        measured += [(Path(name).name, examples, name, options.prompt) for name in options.models]
    for base in options.base:
        drawn = read_examples(base / "data" / "test.jsonl")[:prompts]
        measured.append((f"world, {base.name}", drawn, str(base / "base" / "model"), "plain"))
    similar = by_cosine(embed)
    for title, examples, model, prompt in measured:
        sampled, greedy = write_plans(model, prompt, examples, count, options.folder)
        lenient = f"{title}, from likeness {LENIENT} on"
        readings: dict[str, tuple[Reading, Group]] = {
            title: (partial(by_matcher, matcher), similar),
            lenient: (partial(by_matcher, StepMatcher(embed, matcher.scale, LENIENT)), similar),
        }
        if model not in options.models:
            readings = {title: (by_recogniser, list), f"{title}, by MiniLM": readings[title]}
        for row, (reading, group) in readings.items():
            own = read_prompts(reading, examples, sampled, greedy)
            rows[row] = {"sampled": counted(sampled), **figures(own, group)}
            print(row, rows[row], flush=True)
    write_result(
        options.json,
        {"samples": count, "temperature": TEMPERATURE, "prompt": options.prompt, "rows": rows},
        title="Whether planners make the same errors again and again",
        guide="studies.md",
        body=[ABOUT, *report(rows)],
        partial=options.quick or not options.data or not options.base,
    )


def cut_recipes(file: Path, count: int) -> list[Example]:
    """A prompt of each of `count` recipes of the validation split, chosen by hash."""
    read = read_procedures(file, on_bad="skip")
    print(f"{file.name}: {len(read.skipped)} rows cannot be used and are left out")
    cut = cut_procedures((row for row in read.procedures if row.split == "val"), test="all").examples
    own: dict[str, Example] = {}
    for example in sorted(cut, key=lambda example: _digest(example.example_id)):
        if len(set(example.continuation)) in REMAINING:
            own.setdefault(same_goal(example.goal), example)
    return sorted(own.values(), key=lambda example: _digest(example.goal))[:count]


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def write_plans(
    model: str, prompt: str, examples: Sequence[Example], count: int, folder: Path
) -> tuple[Predictions, Predictions]:
    """`count` sampled plans and a greedy one of each example, by its id."""
    written: list[Predictions] = []
    with open_model(ModelConfig(model=model, cache=folder / "answers")) as engine:
        for temperature, wanted in ((TEMPERATURE, count), (0.0, 1)):
            sampling = SamplingConfig(temperature=temperature, max_tokens=LONGEST, batch_size=40)
            plans: Predictions = {}
            for one in Planner(engine, sampling, open_prompt(prompt)).predict(examples, wanted):
                plans.setdefault(one.example_id, []).append(one)
            written.append(plans)
    return written[0], written[1]


def counted(sampled: Predictions) -> dict[str, Any]:
    """What the samples are, and what is left out."""
    plans = [plan for own in sampled.values() for plan in own]
    return {
        "prompts": len(sampled),
        "samples": len(plans),
        "left out, without a plan": sum(plan.malformed is not None for plan in plans),
        "cut at the limit of tokens": fmean(bool(plan.cut) for plan in plans),
        "lines of a plan": fmean(len(plan.steps) for plan in plans),
    }


def by_matcher(matcher: StepMatcher, example: Example) -> tuple[Any, Any, Any, Reader]:
    """A `Reading` by the annotated steps that lines match."""
    whole = replace(example, history=(), continuation=(*example.continuation, *example.history))
    # As the reference is read, too: steps that the encoder cannot tell apart are one.
    wanted = _distinct(matcher.names(whole, example.continuation), {*whole.continuation})
    done = _distinct(matcher.names(whole, example.history), {*whole.continuation} - {*wanted})

    def read(lines: Sequence[str]) -> ReadPlan:
        names = matcher.names(whole, lines)
        foreign = tuple(line for line, name in zip(lines, names, strict=True) if name is None)
        return ReadPlan(_distinct(names, {*wanted}), _distinct(names, {*done}), foreign)

    return wanted, done, tuple((a, b) for place, b in enumerate(wanted) for a in wanted[:place]), read


def by_recogniser(example: Example) -> tuple[Any, Any, Any, Reader]:
    """A `Reading` by the steps of the world that lines say; a line that says none is no foreign step."""
    graph = WORLD.graph(example.goal)
    done = _distinct(plan_key(WORLD, example.goal, example.history), {*graph.steps})
    needed = graph.required - {*done}
    wanted = _distinct(graph.steps, needed)

    def read(lines: Sequence[str]) -> ReadPlan:
        names = plan_key(WORLD, example.goal, lines)
        foreign = tuple(name for name in names if name is not None and name not in graph.after)
        return ReadPlan(_distinct(names, needed), _distinct(names, {*done}), foreign)

    return wanted, done, tuple((a, b) for b in wanted for a in sorted(graph.before(b, frozenset()) & needed)), read


def _distinct(names: Sequence[str | None], among: AbstractSet[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name is not None and name in among))


def read_prompts(
    reading: Reading, examples: Sequence[Example], sampled: Predictions, greedy: Predictions
) -> list[SampledPrompt]:
    """The prompts with their plans as steps; samples without a plan are left out."""
    prompts = []
    for example in examples:
        remaining, done, pairs, read = reading(example)
        samples = [read(plan.steps) for plan in sampled[example.example_id] if plan.malformed is None]
        [likeliest] = greedy[example.example_id]
        own = read(likeliest.steps) if likeliest.malformed is None else None
        prompts.append(SampledPrompt(same_goal(example.goal), remaining, done, pairs, samples, own))
    return prompts


def missing(prompt: SampledPrompt) -> ItemErrors:
    """Remaining steps that are in no line."""
    return _held(prompt, prompt.remaining, lambda step, plan: step not in plan.steps)


def copied(prompt: SampledPrompt) -> ItemErrors:
    """Done steps that a line says again."""
    return _held(prompt, prompt.done, lambda step, plan: step in plan.copied)


def _held(prompt: SampledPrompt, steps: Sequence[str], errs: Callable[[str, ReadPlan], bool]) -> ItemErrors:
    errors = [sum(errs(step, plan) for plan in prompt.samples) for step in steps]
    greedy = [None if prompt.greedy is None else errs(step, prompt.greedy) for step in steps]
    trials = np.full(len(errors), len(prompt.samples), np.float64)
    return ItemErrors(prompt.goal, np.array(errors, np.float64), trials, greedy)


def turned(prompt: SampledPrompt) -> ItemErrors:
    """Pairs that stand in the other order, of those that enough samples hold."""

    def turns(pair: tuple[str, str], plan: ReadPlan | None) -> bool | None:
        if plan is None or not {*pair} <= {*plan.steps}:
            return None
        return plan.steps.index(pair[1]) < plan.steps.index(pair[0])

    rows = [[turns(pair, plan) for plan in (*prompt.samples, prompt.greedy)] for pair in prompt.pairs]
    rows = [row for row in rows if sum(turn is not None for turn in row[:-1]) >= TOGETHER]
    counts = np.array([[row[:-1].count(True), len(row) - 1 - row[:-1].count(None)] for row in rows], np.float64)
    errors, trials = counts.reshape(-1, 2).T
    return ItemErrors(prompt.goal, errors, trials, [row[-1] for row in rows])


def variances(own: ItemErrors) -> tuple[float, float]:
    """A prompt's B and c W: its variance between items and within them; needs two items with two trials each."""
    total, items = own.trials.sum(), len(own.trials)
    within = (own.errors * (own.trials - own.errors) / own.trials).sum() / (total - items)
    spread = own.trials @ np.square(own.errors / own.trials - own.errors.sum() / total)
    return float(spread - (items - 1) * within), float((total - np.square(own.trials).sum() / total) * within)


def repeated(own: ItemErrors) -> tuple[float, float]:
    """Errors on items that err in at least 80% of their trials: observed, and expected of independent errors."""
    least = np.ceil(4 * own.trials / 5)
    rate = own.errors.sum() / own.trials.sum()
    expected = own.trials * rate * binom.sf(least - 2, own.trials - 1, rate)
    return float(own.errors[own.errors >= least].sum()), float(expected.sum())


def item_figures(errors: Sequence[ItemErrors]) -> dict[str, Any]:
    """ICC and share of repeated errors over prompts with two items or more."""
    several = [own for own in errors if len(own.trials) > 1 and own.trials.min() > 1]
    goals = [own.goal for own in several]
    parts = np.array([[*variances(own), *repeated(own), own.errors.sum(), own.trials.sum()] for own in several])
    between, within, observed, expected, made, trials = parts.reshape(-1, 6).T
    return {
        "prompts": len(several),
        "items": sum(len(own.trials) for own in several),
        "rate": ratio(made, trials, goals),
        "ICC": ratio(between, between + within, goals),
        "repeated": ratio(observed, made, goals),
        "repeated, independent": ratio(expected, made, goals),
        "repeated, difference": ratio(observed - expected, made, goals),
    }


def greedy_figures(errors: Sequence[ItemErrors]) -> dict[str, Any]:
    """The share of the errors of most samples that the greedy plan makes, and of those of fewer."""
    known = [
        (own.goal, 2 * count > trials, greedy)
        for own in errors
        for count, trials, greedy in zip(own.errors, own.trials, own.greedy, strict=True)
        if greedy is not None
    ]
    result: dict[str, Any] = {}
    for name, wanted in (("majority", True), ("minority", False)):
        made = [(float(greedy), goal) for goal, most, greedy in known if most == wanted]
        result[f"{name} errors"] = len(made)
        values, goals = np.array([value for value, _ in made]), [goal for _, goal in made]
        result[f"greedy, {name}"] = ratio(values, np.ones(len(made)), goals)
    return result


def ratio(numerators: Array, denominators: Array, goals: Sequence[str]) -> Interval | None:
    """The ratio of two sums over prompts, with its interval over goals; None where the denominator is 0."""
    names, place = np.unique(np.asarray(goals), return_inverse=True)
    sums = np.zeros((len(names), 2))
    np.add.at(sums, place, np.stack([numerators, denominators], axis=1))
    above, below = sums.sum(axis=0)
    if not below > 0:
        return None
    drawn = resampled_totals(sums)
    values = np.full(len(drawn), np.nan)
    np.divide(drawn[:, 0], drawn[:, 1], out=values, where=drawn[:, 1] > 0)
    return bootstrap_interval(float(above / below), values, len(goals), len(names))


def by_cosine(embed: Embed) -> Group:
    """Groups lines all of whose cosines are at least SAME_LINE."""
    vectors: dict[str, NDArray[Any]] = {}

    def group(lines: Sequence[str]) -> list[Any]:
        distinct = sorted({*lines})
        if new := [line for line in distinct if line not in vectors]:
            vectors.update(zip(new, embed(new), strict=True))
        if len(distinct) < 2:
            return [0] * len(lines)
        links = linkage(np.stack([vectors[line] for line in distinct]), "complete", "cosine")
        labels = dict(zip(distinct, fcluster(links, 1 - SAME_LINE, "distance").tolist(), strict=True))
        return [labels[line] for line in lines]

    return group


def grouped(plans: Sequence[Sequence[str]], group: Group) -> list[dict[Any, str]]:
    """The foreign steps of each plan, with a line that says each."""
    names = iter(group([line for plan in plans for line in plan]))
    return [{next(names): line for line in plan} for plan in plans]


def foreign(prompts: Sequence[SampledPrompt], group: Group, seed: int = 0) -> tuple[dict[str, Any], list[ItemErrors]]:
    """The share of samples with the most frequent foreign step, against steps drawn from the plans of other goals; and
    how often each foreign step is written.
    """
    rng, goals = random.Random(seed), [prompt.goal for prompt in prompts]
    steps = [grouped([plan.foreign for plan in prompt.samples], group) for prompt in prompts]
    greedy = [None if prompt.greedy is None else prompt.greedy.foreign for prompt in prompts]
    share, drawn, errors = [], [], list[ItemErrors]()
    for prompt, own, likeliest in zip(prompts, steps, greedy, strict=True):
        pool = [
            line for goal, other in zip(goals, steps, strict=True) if goal != prompt.goal for plan in other
            for line in plan.values()
        ]  # fmt: skip
        share.append(_most_frequent(own))
        if pool or not any(own):
            draws = ([rng.choices(pool, k=len(plan)) for plan in own] for _ in range(DRAWS))
            drawn.append(fmean(_most_frequent(grouped(lines, group)) for lines in draws))
        if likeliest is not None:
            *samples, written = grouped([*(plan.foreign for plan in prompt.samples), likeliest], group)
            counts = Counter(name for plan in samples for name in plan)
            found = np.array([*counts.values()], np.float64)
            among = [name in written for name in counts]
            errors.append(ItemErrors(prompt.goal, found, np.full(len(found), len(samples), np.float64), [*among]))
    known = len(drawn) == len(prompts)  # else no other goal has a foreign line
    values = {
        "prompts": len(prompts),
        "a sample": fmean(len(plan) for own in steps for plan in own),
        "most frequent": mean_interval(share, goals),
        "drawn": mean_interval(drawn, goals) if known else None,
        "difference": mean_interval(np.subtract(share, drawn), goals) if known else None,
    }
    return values, errors


def _most_frequent(plans: Sequence[dict[Any, str]]) -> float:
    """The largest share of the plans that hold one step; 0 where they hold none."""
    counts = Counter(name for plan in plans for name in plan)
    return max(counts.values(), default=0) / len(plans)


KINDS = {"missing": missing, "turned": turned, "copied": copied}
TITLES = {
    "missing": "Steps that are missing",
    "turned": "Pairs that are turned",
    "copied": "Done steps that are said again",
    "foreign": "Foreign lines",
}


def figures(prompts: Sequence[SampledPrompt], group: Group) -> dict[str, Any]:
    """All figures of a planner."""
    planned = [prompt for prompt in prompts if prompt.samples]
    errors = {kind: [count(prompt) for prompt in planned] for kind, count in KINDS.items()}
    lines, written = foreign(planned, group)
    greedy = {kind: greedy_figures(own) for kind, own in (errors | {"foreign": written}).items()}
    return {kind: item_figures(own) for kind, own in errors.items()} | {"foreign": lines, "greedy": greedy}


def report(rows: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The tables: what was sampled, each kind of error, and the greedy plans."""
    greedy = {f"{name}: {kind}": row["greedy"][kind] for name, row in rows.items() for kind in TITLES}
    return [
        table({name: row["sampled"] for name, row in rows.items()}, "planner"),
        *(
            table({name: row[kind] for name, row in rows.items()}, "planner", title=title)
            for kind, title in TITLES.items()
        ),
        table(greedy, "planner: error", title="Whether the greedy plan makes the errors of most samples, and of fewer"),
    ]


if __name__ == "__main__":
    main()
