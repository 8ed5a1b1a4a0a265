"""What agreement with an annotated continuation pays plans that are no plans, and where its floor comes from.

    python benchmarks/agreement.py --data FOLDER [--prompts 150]

FOLDER holds coin, crosstask and captaincook4d as `recipe data prepare` reads them, and youcook2/procedures.jsonl as
`recipe data procedures` writes it; those that are there are measured, on their training videos alone. For each prompt
there are the true continuation, the same in other words, the continuation of another video of the goal, and plans that
should get little. Each is measured by the nearest annotated step, by matched steps, and in other ways that were tried:
steps assigned one to one at the floor, likenesses summed in order, and the floor without the goal and the history as
rivals. The floor is the likeness at which true steps in other words are furthest above steps of a related goal, the
mean over data sets. Only numbers are shown.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from common import add_json, table, write_result
from scipy.optimize import linear_sum_assignment

from recipe.artifacts import to_json
from recipe.audit.perturb import ALTERNATIVE, AuditPrompt, build_prompts, select, wordings
from recipe.config import EncoderConfig
from recipe.corpus.encoders import open_encoder
from recipe.data.benchmarks import BENCHMARKS, find_benchmark
from recipe.data.procedures import read_procedures
from recipe.evaluation.controls import LABELS, control_plans
from recipe.evaluation.matching import (
    FLOOR,
    CosineScale,
    Embed,
    Likeness,
    NearestStep,
    StepMatcher,
    calibrate,
    ordered_f1,
    ordered_likeness,
    step_f1,
)
from recipe.reward.scorer import Steps
from recipe.stats import mean_interval
from recipe.types import Example, Procedure

NAMES = ("coin", "crosstask", "youcook2", "captaincook4d")
FLOORS = tuple(round(0.3 + 0.05 * step, 2) for step in range(15))
IN_OTHER_WORDS, RELATED = "the truth in other words", "steps of a related goal"
MEASURES = ("nearest", "nearest, in order", "matched", "matched, in order", "assigned", "summed", "no rivals")


def main() -> None:
    """Measure every kind of plan on every data set, and the floor on all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--prompts", type=int, default=150, help="of each data set")
    parser.add_argument("--encoder", default="minilm")
    add_json(parser, "evaluation-match")
    arguments = parser.parse_args()
    encoder, known = open_encoder(EncoderConfig(name=arguments.encoder)), dict[str, np.ndarray]()

    def embed(texts: Sequence[str]) -> np.ndarray:
        if new := sorted(set(texts) - known.keys()):
            known.update(zip(new, encoder.encode(new), strict=True))
        return np.stack([known[text] for text in texts])

    scale = calibrate(embed)
    found: dict[str, dict[str, object]] = {}
    floors: dict[float, list[float]] = {floor: [] for floor in FLOORS}
    for name in NAMES:
        if not (procedures := training_procedures(arguments.data, name)):
            continue
        prompts = build_prompts(select(procedures, limit=arguments.prompts), embed)
        made = list(plans(procedures, prompts))
        embed([text for one, kinds in made for text in texts_of(one, kinds)])
        vocabulary = [step.text for one in procedures for step in one.steps]
        found[name] = measured(embed, scale, made, vocabulary)
        for floor in FLOORS:
            matcher = StepMatcher(embed, scale, floor)
            means = {
                kind: np.mean([matcher.agreement(one, kinds[kind]).f1 for one, kinds in made if kind in kinds])
                for kind in (IN_OTHER_WORDS, RELATED)
            }
            floors[floor].append(float(means[IN_OTHER_WORDS] - means[RELATED]))
    separation = {f"{floor:.2f}": float(np.mean(apart)) for floor, apart in floors.items()}
    result = {"encoder": arguments.encoder, "scale": scale._asdict(), "floor": FLOOR, "separation by floor": separation}
    result |= {"data sets": found}
    write_result(
        arguments.json,
        result,
        title="Agreement with an annotated continuation",
        guide="evaluation.md",
        body=body(result, arguments.prompts),
    )
    show(result)


def training_procedures(data: Path, name: str) -> list[Procedure]:
    """Procedures of the training videos of a data set; none where it is not there."""
    if name in BENCHMARKS:
        folder = find_benchmark(data, name)
        read = [] if folder is None else BENCHMARKS[name].read(folder)
    else:
        file = data / name / "procedures.jsonl"
        read = read_procedures(file, on_bad="skip").procedures if file.is_file() else []
    return [one for one in read if one.split == "train" and one.steps]


def plans(
    procedures: Sequence[Procedure], prompts: Sequence[AuditPrompt]
) -> Iterator[tuple[Example, dict[str, Steps]]]:
    """Each prompt as an example with its plans by kind; a kind that a prompt does not admit is absent."""
    annotated = [
        Example(f"{one.source}/{one.video_id}", one.source, one.video_id, one.goal, (), steps, 0)
        for one in procedures
        if (steps := tuple(step.text for step in one.steps))
    ]
    examples = [
        Example(
            f"{one.source}/{one.video_id}", one.source, one.video_id, one.goal, one.history, one.true, len(one.history)
        )
        for one in prompts
    ]
    labels = control_plans(examples, annotated).get(LABELS, {})
    for prompt, example in zip(prompts, examples, strict=True):
        goal, random = example.goal, Random(example.example_id)
        kinds = {
            "the truth": prompt.true,
            IN_OTHER_WORDS: tuple(wordings().paraphrase(step, random) for step in prompt.true),
            "another video of the goal": prompt.variants.get(ALTERNATIVE, ()),
            "the goal alone": (goal,),
            "the goal, three times": (goal, f"start to {goal}", f"finish: {goal}"),
            "the goal in other words": (f"now {goal} carefully using the right tools",),
            "history copied": example.history,
            "history in other words": prompt.variants.get("paraphrased_history", ()),
            LABELS: labels[example.example_id].steps if example.example_id in labels else (),
            "generic steps": prompt.variants.get("filler", ()),
            "steps of another goal": prompt.variants.get("offgoal", ()),
            RELATED: prompt.variants.get("related", ()),
        }
        yield example, {kind: steps for kind, steps in kinds.items() if steps}


def texts_of(example: Example, kinds: dict[str, Steps]) -> list[str]:
    """All texts of a prompt."""
    return [
        example.goal,
        *example.history,
        *example.continuation,
        *(step for steps in kinds.values() for step in steps),
    ]


def measured(
    embed: Embed, scale: CosineScale, made: Sequence[tuple[Example, dict[str, Steps]]], vocabulary: Sequence[str]
) -> dict[str, object]:
    """Mean of each measure for each kind of plan, intervals clustered by goal."""
    nearest, matcher = NearestStep(embed, vocabulary), StepMatcher(embed, scale)
    nearest.learn([step for _, kinds in made for steps in kinds.values() for step in steps])
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    goals: dict[str, list[str]] = defaultdict(list)
    for example, kinds in made:
        reference = example.continuation
        likeness = Likeness(embed, scale, texts_of(example, kinds))
        for kind, steps in kinds.items():
            goals[kind].append(example.goal)
            near, wanted = nearest(steps), nearest(reference)
            matched = matcher.agreement(example, steps)
            cosines = likeness.cosines(steps, reference)
            rivals = likeness.cosines(steps, (*example.history, example.goal)).max(axis=1)
            soft = scale.likeness(cosines)
            allowed = (cosines.max(axis=1) >= rivals)[:, None]
            enough, total = soft >= FLOOR, len(steps) + len(reference)
            rows, columns = linear_sum_assignment((enough & allowed).astype(float), maximize=True)
            row = (
                step_f1(near, wanted),
                ordered_f1(near, wanted),
                matched.f1,
                matched.ordered_f1,
                2 * float((enough & allowed)[rows, columns].sum()) / total,
                2 * ordered_likeness(soft * allowed) / total,
                2 * ordered_likeness(enough.astype(float)) / total,
            )
            for name, value in zip(MEASURES, row, strict=True):
                values[kind][name].append(value)
    return {
        kind: {name: to_json(mean_interval(some, goals[kind])) for name, some in by_measure.items()}
        for kind, by_measure in values.items()
    }


def body(result: dict[str, Any], prompts: int) -> list[str | dict[str, object]]:
    """A table of each data set, and the choice of the floor."""
    return [
        f"Training videos, at most {prompts} prompts of each set, cut as in the audit; means and intervals by goal, "
        "in the "
        f"encoder {result['encoder']}.",
        *(table(kinds, "plan", name, digits=2) for name, kinds in result["data sets"].items()),
        f"The floor is {result['floor']:.3f}. Truth in other words minus steps of a related goal, mean over the sets:",
        table({"difference": result["separation by floor"]}, "floor"),
    ]


def show(result: dict[str, Any]) -> None:
    """The same on the terminal."""
    print("floor: truth in other words minus steps of a related goal, mean over data sets")
    print(" ".join(f"{floor}: {apart:.3f}" for floor, apart in result["separation by floor"].items()))
    for name, kinds in result["data sets"].items():
        print(f"\n{name}\n{'':28}" + " ".join(f"{measure:>18}" for measure in MEASURES))
        for kind, by_measure in kinds.items():
            print(f"{kind:28}" + " ".join(f"{by_measure[measure]['mean']:18.3f}" for measure in MEASURES))


if __name__ == "__main__":
    main()
