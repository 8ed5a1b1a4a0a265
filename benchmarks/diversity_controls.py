"""What the proxy judge of diversity gives plans whose diversity is known: ten plans for each prompt of the world.

python benchmarks/diversity_controls.py [--prompts 49] [--encoder minilm]
"""

import argparse
import random
from collections.abc import Callable, Sequence
from statistics import fmean

from common import add_json, table, write_result

from recipe.artifacts import to_json
from recipe.config import EncoderConfig
from recipe.corpus.encoders import open_encoder
from recipe.evaluation.diversity.judges import ProxyDiversityJudge, Question
from recipe.evaluation.diversity.plans import PLANS, PromptSamples, distinct_steps
from recipe.evaluation.diversity.scores import DiversityMeasure, compare_plans
from recipe.evaluation.measures import summarise
from recipe.types import Example
from recipe.world.examples import draw_examples
from recipe.world.graph import TaskGraph, World
from recipe.world.load import load_world
from recipe.world.validity import plan_key

Steps = Sequence[str]
Write = Callable[[World, Example, Sequence[Example], random.Random], Steps]
"""Writes one plan of a control for a prompt, given all prompts."""


def main() -> None:
    """Measure every control and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=49)
    parser.add_argument("--encoder", default="minilm")
    add_json(parser, "evaluation-diversity")
    arguments = parser.parse_args()
    world = load_world()
    examples = draw_examples(world, "test_cuts", arguments.prompts)
    judge = ProxyDiversityJudge(open_encoder(EncoderConfig(name=arguments.encoder)).encode, arguments.encoder)
    found = {"judge": to_json(judge.identity), "prompts": len(examples), "controls": {}}
    for name, write in CONTROLS.items():
        prompts = [sampled(world, example, examples, write) for example in examples]
        pairs = compare_plans(judge, prompts, order_check=0)
        scores = summarise(DiversityMeasure(judge.identity, PLANS), name, [pair.row() for pair in pairs], examples)
        diversity, levels = scores.overall.values["diversity"], scores.extras["levels"]
        found["controls"][name] = {"diversity": to_json(diversity), "levels": levels}
        ends = f"(no interval: {diversity.reason})"
        if diversity.low is not None and diversity.high is not None:
            ends = f"({diversity.low:.2f} to {diversity.high:.2f})"
        print(f"{name:34} {diversity.mean:.2f} {ends:18} {levels}")
    found["of no use"] = of_no_use(judge, examples)
    print("true plans held for useless:", found["of no use"])
    rows = {
        name: {"D": control["diversity"]} | {f"pairs at {level}": count for level, count in control["levels"].items()}
        for name, control in found["controls"].items()
    }
    write_result(
        arguments.json,
        found,
        title="Diversity of samples whose diversity is known",
        guide="evaluation.md",
        body=[
            f"Ten plans for each of {len(examples)} prompts of the embedded world, by {judge.identity.name}: the "
            "diversity with its "
            "interval, and the pairs at each level.",
            table(rows, "plans", digits=2),
            f"True plans held for useless: {found['of no use']['whole']:.1%} of whole ones, "
            f"{found['of no use']['half']:.1%} of "
            "halves.",
        ],
        partial=arguments.prompts < parser.get_default("prompts"),
    )


def of_no_use(judge: ProxyDiversityJudge, examples: Sequence[Example]) -> dict[str, float]:
    """Share of true continuations, and of their two halves, that the cap takes for plans of no use."""
    questions = []
    for one in examples:
        middle = (len(one.continuation) + 1) // 2
        questions.append(Question(one, one.continuation[:middle], one.continuation[middle:]))
    whole = [Question(one, one.continuation, one.continuation) for one in examples]
    likeness = judge.likeness([*questions, *whole])
    halves = [judge.useful(one.example, plan, likeness) for one in questions for plan in one[1:]]
    wholes = [judge.useful(one.example, one.first, likeness) for one in whole]
    return {"whole": 1 - fmean(wholes), "half": 1 - fmean(halves)}


def sampled(world: World, example: Example, examples: Sequence[Example], write: Write) -> PromptSamples:
    """Ten plans of a control for a prompt."""
    rng = random.Random(example.example_id)
    plans = [tuple(distinct_steps(write(world, example, examples, rng)).values()) for _ in range(PLANS)]
    return PromptSamples(example, tuple(range(PLANS)), tuple(plans))


def same_plan(world: World, example: Example, examples: Sequence[Example], rng: random.Random) -> Steps:
    return example.continuation


def other_words(world: World, example: Example, examples: Sequence[Example], rng: random.Random) -> Steps:
    keys = plan_key(world, example.goal, example.continuation)
    return [rng.choice(world.wordings[key]) for key in keys if key is not None]


def said_again(world: World, example: Example, examples: Sequence[Example], rng: random.Random) -> Steps:
    return [step for step in example.continuation for _ in range(rng.randint(1, 3))]


def valid_order(world: World, example: Example, examples: Sequence[Example], rng: random.Random) -> Steps:
    graph = world.graph(example.goal)
    left = plan_key(world, example.goal, example.continuation)
    done = set(plan_key(world, example.goal, example.history))
    usual = dict(zip(left, example.continuation, strict=True))
    return [usual[key] for key in reordered(graph, done & set(graph.after), set(left) & set(graph.after), rng)]


def reordered(graph: TaskGraph, done: set[str | None], left: set[str | None], rng: random.Random) -> list[str]:
    """The steps that are left in a random valid order."""
    before, used = {key for key in done if key}, {key for key in done | left if key}
    order: list[str] = []
    while ready := graph.ready(before | set(order), used):
        order.append(rng.choice(ready))
    return order


def shuffled(world: World, example: Example, examples: Sequence[Example], rng: random.Random) -> Steps:
    return rng.sample(example.continuation, len(example.continuation))


def either_half(world: World, example: Example, examples: Sequence[Example], rng: random.Random) -> Steps:
    middle = (len(example.continuation) + 1) // 2
    return rng.choice([example.continuation[:middle], example.continuation[middle:]])


def any_half(world: World, example: Example, examples: Sequence[Example], rng: random.Random) -> Steps:
    """Half of the steps that are left, in order."""
    kept = sorted(rng.sample(range(len(example.continuation)), (len(example.continuation) + 1) // 2))
    return [example.continuation[place] for place in kept]


def other_goal(world: World, example: Example, examples: Sequence[Example], rng: random.Random) -> Steps:
    return rng.choice([one for one in examples if one.goal != example.goal]).continuation


def history_again(world: World, example: Example, examples: Sequence[Example], rng: random.Random) -> Steps:
    return rng.sample(example.history, rng.randint(1, len(example.history)))


CONTROLS: dict[str, Write] = {
    "the same plan": same_plan,
    "the same plan, steps said again": said_again,
    "the same plan in other words": other_words,
    "the same steps in valid orders": valid_order,
    "the same steps shuffled": shuffled,
    "half of the steps": any_half,
    "the first or the second half": either_half,
    "plans for other goals": other_goal,
    "steps of the history": history_again,
}


if __name__ == "__main__":
    main()
