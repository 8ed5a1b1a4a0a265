"""How far the proxy judge can be trusted: its total against exact validity, and against corruptions of real procedures.

    python benchmarks/proxy_validity.py [--data FOLDER] [--predictions PLANS.jsonl ... --examples TEST.jsonl]

On the embedded world, plans of every quality are made for each prompt: the reference, its corruptions, valid orders of
the task graph, and valid orders with one to six careless edits. Their validity is known exactly. FOLDER holds coin and
crosstask as `recipe data prepare` reads them; of those, only numbers are shown. Predictions for the embedded world,
such as those of `recipe demo`, are a population of their own.
"""

import argparse
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import add_json, table, write_result

from recipe.artifacts import to_json
from recipe.audit.perturb import ALTERNATIVE, TRUE, AuditPrompt, build_prompts, select
from recipe.config import EncoderConfig
from recipe.corpus.encoders import open_encoder
from recipe.data.benchmarks import BENCHMARKS
from recipe.data.examples import read_examples
from recipe.evaluation.judge.plans import Case
from recipe.evaluation.judge.proxy import ProxyJudge
from recipe.evaluation.judge.verdicts import CRITERIA
from recipe.evaluation.matching import NearestStep, StepMatcher, ordered_f1, scale_of, step_f1
from recipe.planning.prediction_files import read_predictions
from recipe.stats import Interval, kendall, mean_interval, spearman
from recipe.types import Example, Procedure, Step, Verdict
from recipe.world.examples import draw_examples
from recipe.world.graph import TaskGraph, World
from recipe.world.load import load_world
from recipe.world.validity import plan_key, score_plan

VALID, EDITED, PREDICTED = "valid", "edited", "predicted"
CLASSES = (
    *("shuffled", "reversed", "swap_adjacent", "offgoal", "related", "repeat_history", "paraphrased_history"),
    *("repeat_last", "repeat_next", "filler", "true_plus_filler", "half", "missing_middle", "doubled", "too_long"),
    "empty",
)
"""Classes of the audit that are judged: those that disturb the true steps, without what policies write."""
ORDERS, MOST_EDITS = 3, 6
"""Valid orders of a prompt, and edits of the most careless plan."""
Embed = Callable[[Sequence[str]], np.ndarray]


class Scored(NamedTuple):
    """A plan, what it is, and what is said of it."""

    example: Example
    kind: str
    verdict: Verdict
    validity: float | None
    baselines: dict[str, float]


def main() -> None:
    """Measure all populations and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=98, help="of each test split and of each data set")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--predictions", type=Path, nargs="*", default=())
    parser.add_argument("--examples", type=Path)
    add_json(parser, "judge-proxy")
    arguments = parser.parse_args()
    embed = open_encoder(EncoderConfig(name=arguments.encoder)).encode
    judge, world = ProxyJudge(embed, arguments.encoder), load_world()
    scored = score(judge, embed, world, world_plans(world, embed, arguments.prompts))
    edited = [one for one in scored if one.kind.startswith(EDITED)]
    found = {
        "judge": to_json(judge.identity),
        "prompts": len({one.example.example_id for one in scored}),
        "world": {"all plans": correlations(scored), "careless plans": correlations(edited)},
        "world by kind": by_kind(scored),
        "order": order_of_valid_plans(scored),
    }
    if arguments.predictions:
        examples = {one.example_id: one for one in read_examples(arguments.examples)}
        plans = [
            (examples[one.example_id], PREDICTED, one.steps)
            for path in arguments.predictions
            for one in read_predictions(path)
            if one.steps
        ]
        found["world"]["predictions"] = correlations(score(judge, embed, world, plans))
    if arguments.data is not None:
        found["real"] = {
            name: against_corruptions(judge, embed, arguments.data / name, name, arguments.prompts)
            for name in ("coin", "crosstask")
        }
    write_result(
        arguments.json,
        found,
        title="The proxy judge against exact validity and against corruptions",
        guide="judge.md",
        body=body(found),
        partial=arguments.prompts < parser.get_default("prompts"),
    )
    show(found)


def body(found: dict[str, Any]) -> list[str | dict[str, Any]]:
    """The tables of the results page."""
    parts: list[str | dict[str, Any]] = [
        f"{found['judge']['name']}; {found['prompts']} prompts of the embedded world. Rank correlations with exact "
        "validity, "
        "intervals clustered by goal."
    ]
    for population, correlated in found["world"].items():
        rows = {name: row for name, row in correlated.items() if name != "plans"}
        parts.append(table(rows, "", f"{population}: {correlated['plans']:,}", digits=2))
    parts.append(table(found["world by kind"], "plan", "Means by kind of plan"))
    parts.append(table({"perfect plans that are not the reference": found["order"]}))
    for name, real in found.get("real", {}).items():
        known = real["another video's reference"]
        rows = {
            kind: {"own reference": own, "another video's reference": known.get(kind)}
            for kind, own in real["own reference"].items()
        }
        parts.append(table(rows, "P(true above it)", f"{name}: {real['prompts']} procedures", digits=2))
    return parts


Made = tuple[Example, str, Sequence[str]]


def world_plans(world: World, embed: Embed, prompts: int) -> list[Made]:
    """Plans of every quality for prompts of both test splits."""
    made: list[Made] = []
    for split in ("test_cuts", "test_goals"):
        drawn = draw_examples(world, split, prompts)
        procedures = [
            Procedure(one.source, one.video_id, one.goal, tuple(map(Step, one.history + one.continuation)))
            for one in drawn
        ]
        for prompt in judged_prompts(procedures, embed):
            example = example_of(prompt)
            made += [(example, kind, steps) for kind, steps in prompt.variants.items() if steps]
            made += careless_plans(world, example)
    return made


def judged_prompts(procedures: Sequence[Procedure], embed: Embed, limit: int | None = None) -> list[AuditPrompt]:
    """The audit's prompts with the classes that are judged."""
    kept = {TRUE, ALTERNATIVE, *CLASSES}
    return [
        replace(prompt, variants={name: plan for name, plan in prompt.variants.items() if name in kept})
        for prompt in build_prompts(select(procedures, limit=limit), embed)
    ]


def example_of(prompt: AuditPrompt) -> Example:
    """The audited prompt with its true continuation as the reference."""
    at = len(prompt.history)
    name = f"{prompt.source}/{prompt.video_id}"
    return Example(name, prompt.source, prompt.video_id, prompt.goal, prompt.history, prompt.true, at)


def careless_plans(world: World, example: Example) -> list[Made]:
    """Valid orders in an annotator's words, as they are and with one to six edits."""
    rng, graph = random.Random(example.example_id), world.graph(example.goal)
    done = set(graph.after).intersection(plan_key(world, example.goal, example.history))
    made: list[Made] = []
    for _ in range(ORDERS):
        order = completion(graph, done, rng)
        made.append((example, VALID, [world.label(step, rng) for step in order]))
    for edits in range(1, MOST_EDITS + 1):
        steps = list(completion(graph, done, rng))
        for _ in range(edits):
            steps = edit(steps, world, graph, rng)
        made.append((example, f"{EDITED} {edits}", [world.label(step, rng) for step in steps]))
    return made


def completion(graph: TaskGraph, done: set[str], rng: random.Random) -> list[str]:
    """A random valid order of what is left to do, without the optional steps that it is too late for."""
    late = {step for step in graph.optional - done if any(step in graph.before(one, done | {step}) for one in done)}
    used = done | graph.required | {step for step in graph.optional - late if rng.random() < 0.5}
    order: list[str] = []
    while ready := graph.ready(done | set(order), used):
        order.append(rng.choice(ready))
    return order


def edit(steps: list[str], world: World, graph: TaskGraph, rng: random.Random) -> list[str]:
    """One careless edit: a step left out, swapped with the next, said again, or put in from anywhere or the goal."""
    at = rng.randrange(len(steps))
    kind = rng.choice(("drop", "swap", "repeat", "foreign", "early"))
    if kind == "drop" and len(steps) > 1:
        return steps[:at] + steps[at + 1 :]
    if kind == "swap" and at + 1 < len(steps):
        return [*steps[:at], steps[at + 1], steps[at], *steps[at + 2 :]]
    put_in = {"repeat": steps, "foreign": list(world.wordings)}.get(kind, list(graph.steps))
    return [*steps[:at], rng.choice(put_in), *steps[at:]]


def score(judge: ProxyJudge, embed: Embed, world: World | None, made: Sequence[Made]) -> list[Scored]:
    """All plans with the proxy's verdict, the baselines, and the exact validity where there is a world."""
    judged = judge.judge([Case(example, tuple(steps)) for example, _, steps in made])
    nearest = NearestStep(embed, [step for example, _, _ in made for step in example.history + example.continuation])
    nearest.learn([step for _, _, steps in made for step in steps])
    matcher = StepMatcher(embed, judge.calibration)
    matcher.learn(
        text for example, _, steps in made for text in (example.goal, *example.history, *example.continuation, *steps)
    )
    scored = []
    for (example, kind, steps), row in zip(made, judged, strict=True):
        assert isinstance(row.outcome, Verdict)
        ours, reference, matched = nearest(steps), example.continuation, matcher.agreement(example, steps)
        baselines = {
            "matched step F1": matched.f1,
            "matched step F1 in order": matched.ordered_f1,
            "step F1": step_f1(ours, reference),
            "step F1 in order": ordered_f1(ours, reference),
            "plan length": float(len(steps)),
            "length error, negated": -abs(len(steps) - len(reference)),
        }
        validity = None if world is None else score_plan(world, example.goal, example.history, steps).score
        scored.append(Scored(example, kind, row.outcome, validity, baselines))
    return scored


def correlations(scored: Sequence[Scored]) -> dict[str, object]:
    """Rank correlations with validity, over all plans and within prompts, intervals clustered by goal."""
    validity = np.array([one.validity for one in scored], dtype=np.float64)
    names = ["proxy", *scored[0].baselines, *CRITERIA]
    return {"plans": len(scored)} | {name: correlation(scored, validity, values(scored, name)) for name in names}


def values(scored: Sequence[Scored], name: str) -> np.ndarray:
    """The proxy's total, a baseline, or one criterion of each plan."""
    if name == "proxy":
        return np.array([one.verdict.total for one in scored], dtype=np.float64)
    if name in CRITERIA:
        return np.array([getattr(one.verdict, name) for one in scored], dtype=np.float64)
    return np.array([one.baselines[name] for one in scored])


def correlation(scored: Sequence[Scored], validity: np.ndarray, told: np.ndarray) -> dict[str, object]:
    """Spearman and Kendall overall, and the mean over prompts of Spearman within each."""
    goals = [one.example.goal for one in scored]
    prompts = np.array([one.example.example_id for one in scored])
    within, of_goal = [], []
    for name in dict.fromkeys(prompts):
        here = prompts == name
        rho = spearman(validity[here], told[here], ["one"] * int(here.sum()))
        if rho is not None:
            within.append(rho.mean)
            of_goal.append(goals[int(here.argmax())])
    return {
        "spearman": to_json(spearman(validity, told, goals)),
        "kendall": kendall(validity, told),
        "within prompts": to_json(mean_interval(within, of_goal)) if within else None,
    }


def by_kind(scored: Sequence[Scored]) -> dict[str, dict[str, float]]:
    """Mean validity and mean scores of each kind of plan."""
    means = {}
    for kind in dict.fromkeys(one.kind for one in scored):
        of_kind = [one for one in scored if one.kind == kind]
        means[kind] = {
            "plans": len(of_kind),
            "validity": float(np.mean([one.validity for one in of_kind])),
            "proxy": float(np.mean([one.verdict.total for one in of_kind])),
        } | {name: float(np.mean([getattr(one.verdict, name) for one in of_kind])) for name in CRITERIA}
    return means


def order_of_valid_plans(scored: Sequence[Scored]) -> dict[str, object]:
    """What the proxy gives plans that are perfect but are not the reference, and how often a worse plan beats one."""
    perfect = [one for one in scored if one.kind == VALID]
    goals = [one.example.goal for one in perfect]
    beaten = []
    for one in perfect:
        worse = [other for other in scored if other.example == one.example and (other.validity or 0.0) < 1]
        beaten.append(float(np.mean([other.verdict.total > one.verdict.total for other in worse])))
    return {
        "validity": float(np.mean([one.validity for one in perfect])),
        "total of 30": to_json(mean_interval([one.verdict.total for one in perfect], goals)),
        "worse plans above": to_json(mean_interval(beaten, goals)),
    }


def against_corruptions(judge: ProxyJudge, embed: Embed, folder: Path, name: str, limit: int) -> dict[str, object]:
    """P(true > corrupted) of each class, ties one half: with the video's own continuation as the reference, and with
    that of another video of the same goal, which neither plan was made from."""
    read = [one for one in BENCHMARKS[name].read(folder) if name != "coin" or one.split == "test"]
    prompts = judged_prompts(read, embed, limit)
    own = auc(judge, prompts, [example_of(prompt) for prompt in prompts])
    others = [prompt for prompt in prompts if prompt.variants.get(ALTERNATIVE)]
    examples = [replace(example_of(prompt), continuation=prompt.variants[ALTERNATIVE]) for prompt in others]
    goals: dict[str, set[str]] = {}
    for one in read:
        goals.setdefault(one.goal, set()).update(step.text for step in one.steps)
    return {
        "scale": scale_of([sorted(steps) for steps in goals.values()], embed)._asdict(),
        "prompts": len(prompts),
        "prompts with another video": len(others),
        "own reference": own,
        "another video's reference": auc(judge, others, examples, leave_out=ALTERNATIVE),
    }


def auc(
    judge: ProxyJudge, prompts: Sequence[AuditPrompt], examples: Sequence[Example], leave_out: str = ""
) -> dict[str, object]:
    """P(true > corrupted) with its interval clustered by goal, for each class and their mean."""
    cases = [
        Case(example, steps, control=kind)
        for prompt, example in zip(prompts, examples, strict=True)
        for kind, steps in prompt.variants.items()
        if kind != leave_out
    ]
    totals: dict[str, dict[str, int]] = {}
    for row in judge.judge(cases):
        assert isinstance(row.outcome, Verdict)
        totals.setdefault(row.control, {})[row.example_id] = row.outcome.total
    goal_of, true = {one.example_id: one.goal for one in examples}, totals.pop(TRUE)
    won: dict[str, dict[str, float]] = {
        kind: {name: (true[name] > total) + 0.5 * (true[name] == total) for name, total in of_kind.items()}
        for kind, of_kind in totals.items()
    }
    found: dict[str, object] = {
        kind: to_json(mean_interval(list(of_kind.values()), [goal_of[name] for name in of_kind]))
        for kind, of_kind in won.items()
    }
    corrupted = [of_kind for kind, of_kind in won.items() if kind != ALTERNATIVE]
    means = {name: float(np.mean([own[name] for own in corrupted if name in own])) for name in true}
    overall = mean_interval(list(means.values()), [goal_of[name] for name in means])
    return found | {"mean": to_json(overall), "true total of 30": float(np.mean(list(true.values())))}


def show(found: dict[str, Any]) -> None:
    """The same on the terminal."""
    for population, correlated in found["world"].items():
        print(f"\n{population}: {correlated['plans']} plans")
        for name, row in correlated.items():
            if name == "plans":
                continue
            kendalls = "-" if row["kendall"] is None else f"{row['kendall']:.2f}"
            print(f"{name:24} {interval(row['spearman']):24} {kendalls:6} {interval(row['within prompts'])}")
    print("\nkind: plans, validity, proxy, criteria")
    for kind, row in found["world by kind"].items():
        criteria = " ".join(f"{row[name]:.1f}" for name in CRITERIA)
        print(f"{kind:24} {row['plans']:5} {row['validity']:.2f} {row['proxy']:5.1f}   {criteria}")
    print("\nvalid plans that are not the reference:", found["order"])
    for name, real in found.get("real", {}).items():
        print(f"\n{name}: {real['prompts']} prompts, {real['prompts with another video']} with another video")
        print(f"scale: {real['scale']}")
        for kind, own in real["own reference"].items():
            other = real["another video's reference"].get(kind)
            cells = [interval(one) if isinstance(one, dict) else one for one in (own, other)]
            print(f"{kind:24} {cells[0]!s:24} {cells[1]}")


def interval(value: dict[str, Any] | None) -> str:
    """A mean and its ends."""
    if value is None:
        return "-"
    read = Interval(**value)
    bounds = f" (no interval: {read.reason})" if read.reason else ""
    return f"{read.mean:.2f}" + (bounds if read.low is None else f" ({read.low:.2f} to {read.high:.2f})")


if __name__ == "__main__":
    main()
