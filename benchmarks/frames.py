"""What a video model's yes and no say of steps and of the frames of a history, on the world in pictures.

    recipe demo --output RUN                 # brings the base model, the corpus and the base's plans
    python benchmarks/frames.py RUN --work FOLDER

A model that never saw the world's symbols knows nothing of them, so that the tiny video model is taught first: its
visual tower as in the video demo, then its decoder to answer the two questions of `recipe.reward.frames` about states
of three quarters of the training goals. Nothing of the other goals' states is asked in training; the decoder has read
noisy plans of all goals. Measured are the AUC of P(done) and P(next) within a history, and the exact validity of the
plan that a reward likes best of ten by the base, with and without what the frames say. The weight is chosen on
the quarter of the training goals that was left out. Stages are kept in FOLDER, so that a killed run goes on.
"""

import argparse
import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import add_json, table, write_result
from numpy.typing import NDArray
from tokenizers import AddedToken

from recipe.artifacts import write_json
from recipe.config import FrameQuestionsConfig, ModelConfig, RewardConfig, SamplingConfig
from recipe.corpus.store import Corpus
from recipe.data.examples import read_examples, write_examples
from recipe.models.checkpoints import Checkpoint, load_checkpoint
from recipe.models.model import open_model
from recipe.perception.frames import Clips
from recipe.planning.planner import Planner
from recipe.planning.predictions import read_predictions, write_predictions
from recipe.reward.frames import QUESTIONS, FrameQuestions, SeenStep, question_chats
from recipe.reward.scorer import PromptGroup, Steps, score_or_raise
from recipe.reward.verifier import Verifier
from recipe.stats import mean_interval
from recipe.training.base import chat_text
from recipe.training.policy import save_model
from recipe.types import Example, Frames
from recipe.world.clips import DrawnClips
from recipe.world.examples import draw_parts
from recipe.world.frames import PAIR, SIZE, Painter
from recipe.world.graph import TaskGraph, World
from recipe.world.load import load_world
from recipe.world.validity import ValidityScorer
from recipe_studies.vision.pretraining import (
    Schedule,
    TokenisedExample,
    align_decoder,
    batch_loss,
    freeze_tower,
    load_tower,
    new_tower,
    optimise,
    pair_accuracy,
    save_tower,
    tower_of,
    train_attributes,
    train_words,
    word_accuracy,
    words_of_steps,
)
from recipe_studies.vision.video_model import VisionShape, build_video_model

SHAPE = VisionShape()
TEST_SEED = 1 << 20
"""Of the drawings that are tested on, on the unseen background."""
SAMPLES = 10
HISTORIES = 60
"""Of each test split, and of validation."""
STEPS = {"attributes": 300, "words": 200, "alignment": 100, "questions": 400, "more questions": 600}
"""Of each stage of teaching."""
BATCH = 16
QUESTIONS_ASKED = 12
"""About each clip."""
WEIGHTS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
FORMS = {
    "not done": "mean of 1 - P(done) over the steps",
    "next": "P(next) of the first step",
    "both": "half of each, as the reward has it",
}
"""Ways in which the probabilities of a plan become a number."""
WORDS = ("yes", "no")
QUESTION = """[shown]
The video
[step]
$goal
$step
[done]
completed already?
[next]
carried out next?
"""
"""The tiny model's prompt: a few words, as its context is small and each costs time."""
CLIP = Frames(np.zeros((PAIR, SIZE, SIZE, 3), np.uint8), np.zeros(PAIR), 1.0)
"""Stands in a chat whose text alone is wanted."""


def progress_of(name: str) -> Any:
    """Prints every hundredth step of a stage."""
    done = 0

    def advance(count: float) -> None:
        nonlocal done
        done += int(count)
        if done % 100 == 0:
            print(f"{name}: {done}", flush=True)

    return advance


def teach(run: Path, work: Path, world: World, asked: Sequence[str], steps: Mapping[str, int]) -> Path:
    """The model's folder: tower, words, a decoder that plans from clips, and one that answers about `asked` goals."""
    painter, shape = Painter(world), SHAPE
    base = load_checkpoint(str(run / "base" / "model"))
    if not (work / "tower").is_dir():
        tower = new_tower(shape, base.model.config.hidden_size, 0)
        heads, _ = train_attributes(
            tower,
            painter,
            Schedule(steps["attributes"], bf16=False),
            rate=2e-3,
            batch=128,
            seed=0,
            advance=progress_of("attributes"),
        )
        print("symbols of unseen pictures:", pair_accuracy(tower, heads, painter, "unseen").whole)
        save_tower(tower, work / "tower.partial")
        (work / "tower.partial").rename(work / "tower")
    if not (work / "words").is_dir():
        checkpoint = build_video_model(with_words(base), shape, 0)
        load_tower(tower_of(checkpoint), work / "tower")
        assert checkpoint.video is not None
        tokens = np.prod(checkpoint.video.grid(PAIR, SIZE, SIZE)) // checkpoint.video.merge_size**2
        vocabulary = words_of_steps(world.wordings, checkpoint.tokenizer, int(tokens))
        train_words(
            checkpoint, painter, vocabulary, Schedule(steps["words"], bf16=False),
            rate=2e-3, batch=128, seed=0, advance=progress_of("words"),
        )  # fmt: skip
        print("words of unseen pictures:", word_accuracy(checkpoint, painter, vocabulary, "unseen"))
        save_model(checkpoint.model, checkpoint.tokenizer, work / "words.partial", checkpoint.video)
        (work / "words.partial").rename(work / "words")
    if not (work / "aligned").is_dir():
        checkpoint = load_checkpoint(str(work / "words"), attention="eager")
        documents = read_examples(run / "data" / "documents.jsonl")[: steps["alignment"] * BATCH]
        align_decoder(
            checkpoint, world, painter, documents, Schedule(steps["alignment"], warmup=30, bf16=False), rate=1e-3,
            merger_rate=1e-4, text_share=0.1, batch=BATCH, seed=0, advance=progress_of("alignment"),
        )  # fmt: skip
        save_model(checkpoint.model, checkpoint.tokenizer, work / "aligned.partial", checkpoint.video)
        (work / "aligned.partial").rename(work / "aligned")
    if not (work / "model").is_dir():
        checkpoint = load_checkpoint(str(work / "aligned"), attention="eager")
        teach_questions(checkpoint, world, painter, asked, steps["questions"])
        save_model(checkpoint.model, checkpoint.tokenizer, work / "model.partial", checkpoint.video)
        (work / "model.partial").rename(work / "model")
    if not (work / "taught").is_dir():
        checkpoint = load_checkpoint(str(work / "model"), attention="eager")
        teach_questions(checkpoint, world, painter, asked, steps["more questions"], first=False)
        save_model(checkpoint.model, checkpoint.tokenizer, work / "taught.partial", checkpoint.video)
        (work / "taught.partial").rename(work / "taught")
    return work / "taught"


def with_words(base: Checkpoint) -> Checkpoint:
    """The base with a token of its own for each word of the questions that its tokenizer cuts up, yes and no too."""
    asked = [
        part["text"] for [turn] in question_chats(CLIP, "", "", QUESTION) for part in turn["content"] if "text" in part
    ]
    words = {word.strip(".,:") for word in " ".join(asked).split()}
    cut = [word for word in words | set(WORDS) if len(base.tokenizer.tokenize(f" {word}")) > 1 and word.isalpha()]
    # Whole words only: `no` is no token in `noodles`.
    added = [AddedToken(word, single_word=True, lstrip=True, normalized=False) for word in sorted(cut)]
    base.tokenizer.add_tokens(added)
    base.model.resize_token_embeddings(len(base.tokenizer), mean_resizing=False)
    return base


def can_be_next(graph: TaskGraph, step: str, done: set[str]) -> bool:
    """Whether a step is not done and waits for nothing that is not done; optional steps may stay out."""
    return step in graph.after and step not in done and graph.before(step, {*done, step}) <= done


def tokenised_questions(
    tokenizer: Any, world: World, graph: TaskGraph, name: str, rng: random.Random
) -> tuple[list[int], TokenisedExample]:
    """What stands before the clip of a state that a valid order reaches, and questions about it with their answers.

    The first question is asked as it will be in use. Others follow with their steps alone, since one bit for each
    clip teaches too slowly. Yes and no are as likely; half of the steps that get a no are of other goals.
    """
    order = graph.draw(rng)
    done = order[: rng.randint(1, len(order) - 1)]
    right = [*done] if name == "done" else [step for step in graph.steps if can_be_next(graph, step, {*done})]
    wrong = [step for step in graph.steps if step not in right]
    foreign = [step for step in world.wordings if step not in graph.after]
    steps = []
    for _ in range(QUESTIONS_ASKED):
        kind = right if rng.random() < 0.5 else wrong if wrong and rng.random() < 0.5 else foreign
        steps.append(rng.choice(kind))
    texts = [rng.choice(world.wordings[step][:2]) for step in steps]
    chat = question_chats(CLIP, graph.goal, texts[0], QUESTION)[QUESTIONS.index(name)]
    before, after = chat_text(tokenizer, chat, ask=True).split("<|video_pad|>")
    yes, no = (tokenizer(word, add_special_tokens=False)["input_ids"][0] for word in WORDS)
    parts = tokenizer([before, after, *(f"\n{text}\n" for text in texts[1:])], add_special_tokens=False)["input_ids"]
    answer, scored = list[int](), set[int]()
    for place, step in enumerate(steps):
        answer += parts[1 + place] if place else []
        scored.add(len(answer))
        answer.append(yes if step in right else no)
    unscored = frozenset(range(len(answer))) - scored
    return parts[0], TokenisedExample([], [], done, parts[1], answer, unscored)


def teach_questions(
    checkpoint: Checkpoint, world: World, painter: Painter, asked: Sequence[str], steps: int, *, first: bool = True
) -> None:
    """Train decoder and merger of a video model in place to answer questions about states of some goals.

    The `first` time it is asked about what is done alone at first.
    """
    tower = tower_of(checkpoint)
    decoder, merger = freeze_tower(checkpoint)
    graphs = [world.goals[goal] for goal in asked]

    def losses() -> Iterator[torch.Tensor]:
        rng, draw = random.Random(f"questions {first}"), torch.Generator().manual_seed(int(not first))
        for number in itertools.count():
            # Not both at first: what is done says yes to one and no to the other, which teaches nothing.
            names = QUESTIONS[:1] if first and number <= steps / 2 else QUESTIONS
            drawn = [
                tokenised_questions(checkpoint.tokenizer, world, rng.choice(graphs), rng.choice(names), rng)
                for _ in range(BATCH)
            ]
            rows = [row for _, row in drawn]
            yield batch_loss(checkpoint.model, tower, painter, drawn[0][0], rows, rng, draw)

    checkpoint.model.train()
    rows = optimise(
        [(decoder, 1e-3), (merger, 1e-4)], losses, Schedule(steps, warmup=30, bf16=False), progress_of("questions")
    )
    means = [np.mean([row["loss"] for row in rows[at : at + 25]]) for at in range(0, steps, 25)]
    print("losses by 25 steps:", [round(float(mean), 3) for mean in means])
    checkpoint.model.eval()


def auc(yes: Sequence[float], no: Sequence[float]) -> float:
    """The probability that one of `yes` is above one of `no`; ties count half.

    >>> auc([0.9, 0.4], [0.4, 0.1])
    0.875
    """
    above = np.subtract.outer(np.asarray(yes), np.asarray(no))
    return float((above > 0).mean() + 0.5 * (above == 0).mean())


def separation(world: World, questions: FrameQuestions, examples: Sequence[Example]) -> dict[str, Any]:
    """Mean AUC within a history of P(done) and P(next), with intervals over goals, and the mean probabilities.

    Each history is asked about every step of its goal, in the usual wording.
    """
    rows: dict[str, list[tuple[str, float]]] = {name: [] for name in ("done", "next", "next of what is left")}
    means: dict[str, list[float]] = {name: [] for name in ("done: yes", "done: no", "next: yes", "next: no")}
    for example in examples:
        graph = world.graph(example.goal)
        done = {step for text in example.history if (step := world.recogniser.step(text, graph.after)) is not None}
        texts = [world.wordings[step][0] for step in graph.steps]
        seen = dict(zip(graph.steps, questions.seen(example.goal, example.history, texts), strict=True))
        ready = {step for step in graph.steps if can_be_next(graph, step, done)}
        sides = {
            "done": ([seen[one].done for one in graph.steps if one in done],
                     [seen[one].done for one in graph.steps if one not in done]),
            "next": ([seen[one].next for one in ready], [seen[one].next for one in graph.steps if one not in ready]),
            "next of what is left": ([seen[one].next for one in ready],
                                     [seen[one].next for one in graph.steps if one not in {*done, *ready}]),
        }  # fmt: skip
        for name, (yes, no) in sides.items():
            if yes and no:
                rows[name].append((example.goal, auc(yes, no)))
            if name in ("done", "next"):
                means[f"{name}: yes"] += yes
                means[f"{name}: no"] += no
    intervals = {
        f"AUC {name}": interval([value for _, value in own], [goal for goal, _ in own]) for name, own in rows.items()
    }
    return intervals | {name: float(np.mean(values)) for name, values in means.items()}


def interval(values: Sequence[float] | NDArray[np.float64], goals: Sequence[str]) -> dict[str, float | None]:
    """Mean of values with its 95% interval over goals."""
    found = mean_interval(list(values), goals)
    return {"mean": found.mean, "low": found.low, "high": found.high}


def scores(form: str, plans: Sequence[Steps], seen: Mapping[str, SeenStep]) -> NDArray[np.float64]:
    """What the frames say of each plan, in one of FORMS; 0 for a plan without steps."""
    values = []
    for plan in plans:
        fresh = 1.0 - sum(seen[step].done for step in plan) / len(plan) if plan else 0.0
        first = seen[plan[0]].next if plan else 0.0
        values.append({"not done": fresh, "next": first, "both": (fresh + first) / 2}[form])
    return np.array(values)


@dataclass(frozen=True, slots=True)
class Choice:
    """The plans of one history with all that chooses among them, and their exact validity."""

    example: Example
    plans: list[Steps]
    reward: NDArray[np.float64]
    validity: NDArray[np.float64]
    frames: dict[str, NDArray[np.float64]]
    """By form."""

    def best(self, form: str, weight: float) -> float:
        """The validity of the plan that is liked best; of equals the first."""
        return float(self.validity[int(np.argmax(self.reward + weight * self.frames[form]))])


def choices(
    world: World, verifier: Verifier, questions: FrameQuestions, examples: Sequence[Example], plans: Path
) -> list[Choice]:
    """The choices among the plans of a predictions file, one for each example."""
    own: dict[str, list[Steps]] = {example.example_id: [] for example in examples}
    for prediction in read_predictions(plans):
        if prediction.example_id in own:
            own[prediction.example_id].append(prediction.steps)
    groups = [PromptGroup.of(one.goal, one.history, own[one.example_id]) for one in examples]
    rewards, validity = (score_or_raise(scorer, groups) for scorer in (verifier, ValidityScorer(world)))
    made = []
    for place, (example, group) in enumerate(zip(examples, groups, strict=True)):
        steps = list(dict.fromkeys(step for plan in group.plans for step in plan))
        seen = dict(zip(steps, questions.seen(example.goal, example.history, steps), strict=True))
        made.append(
            Choice(
                example,
                group.plans,
                np.array([reward.total for reward in rewards[place]]),
                np.array([reward.total for reward in validity[place]]),
                {form: scores(form, group.plans, seen) for form in FORMS},
            )
        )
        if place % 20 == 19:
            print(f"{plans.name}: {place + 1} of {len(examples)}", flush=True)
    return made


def chosen_weight(validation: Sequence[Choice], form: str) -> float:
    """The weight of a form whose choices are the most valid on validation; the smallest of equals."""
    means = [np.mean([choice.best(form, weight) for choice in validation]) for weight in WEIGHTS]
    return WEIGHTS[int(np.argmax(means))]


def compare(tested: Sequence[Choice], weights: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """Validity of what each reward chooses, and its difference from the grounded reward alone, paired by history."""
    goals = [choice.example.goal for choice in tested]
    alone = np.array([choice.best("both", 0.0) for choice in tested])
    found: dict[str, dict[str, Any]] = {
        "any plan": {"validity": interval([float(choice.validity.mean()) for choice in tested], goals)},
        "grounded": {"validity": interval(alone, goals)},
    }
    for form, weight in weights.items():
        mixed = np.array([choice.best(form, weight) for choice in tested])
        frames = np.array([choice.validity[int(np.argmax(choice.frames[form]))] for choice in tested])
        found[f"frames alone: {form}"] = {"validity": interval(frames, goals)}
        found[f"grounded + {weight:g} frames: {form}"] = {
            "validity": interval(mixed, goals),
            "minus grounded": interval(mixed - alone, goals),
        }
    found["best possible"] = {"validity": interval([float(choice.validity.max()) for choice in tested], goals)}
    return found


def validation_plans(
    run: Path, work: Path, world: World, goals: Sequence[str], count: int
) -> tuple[list[Example], Path]:
    """Cut points of goals that were not asked about, and plans of the base for them."""
    examples, target = draw_parts(world, goals, "validation", count, 7), work / "validation-plans.jsonl"
    write_examples(work / "validation.jsonl", examples)
    if not target.is_file():
        with open_model(ModelConfig(model=str(run / "base" / "model"))) as model:
            write_predictions(
                target, Planner(model, SamplingConfig(max_tokens=96, batch_size=64)).predict(examples, SAMPLES)
            )
    return examples, target


def main() -> None:
    """Teach, ask, choose, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="run folder of `recipe demo`")
    parser.add_argument("--work", type=Path, required=True, help="folder of the stages")
    parser.add_argument("--steps", type=int, default=max(STEPS.values()), help="steps of a stage at most")
    parser.add_argument("--limit", type=int, default=HISTORIES, help="histories of each split, and of validation")
    add_json(parser, "video-frames")
    options = parser.parse_args()
    world = load_world()
    taught = [goal for goal, graph in world.goals.items() if not graph.held_out]
    left_out = taught[::4]
    asked = [goal for goal in taught if goal not in left_out]
    steps = {stage: min(count, options.steps) for stage, count in STEPS.items()}
    options.work.mkdir(parents=True, exist_ok=True)
    folder = teach(options.run, options.work, world, asked, steps)
    (options.work / "prompt.txt").write_text(QUESTION, encoding="utf-8")
    config = FrameQuestionsConfig(
        model=str(folder), prompt=options.work / "prompt.txt", batch_size=64, cache=options.work / "answers"
    )
    drawn = DrawnClips(world, Painter(world), TEST_SEED, "unseen")
    tests = read_examples(options.run / "data" / "test.jsonl")
    by_split = {
        split: [example for example in tests if example.split == split][: options.limit]
        for split in ("test_goals", "test_cuts")
    }
    result: dict[str, Any] = {
        "questions": {
            "asked": (steps["questions"] + steps["more questions"]) * BATCH * QUESTIONS_ASKED,
            "goals": len(asked),
            "left out": len(left_out),
        }
    }
    with open_model(config, frames=config.clip) as model:
        views: dict[str, Clips] = {"their own": drawn, "other steps": drawn.other, "blank": drawn.blank}
        result["separation"] = {}
        for split, examples in by_split.items():
            for view, clips in views.items():
                questions = FrameQuestions(config, model)
                questions.show(examples, clips)
                name = f"{split}, frames of {view}" if view != "blank" else f"{split}, blank frames"
                result["separation"][name] = separation(world, questions, examples)
                print(name, json.dumps(result["separation"][name]), flush=True)
        verifier = Verifier(Corpus.open(options.run / "corpus"), RewardConfig(verifier="grounded"))
        examples, plans = validation_plans(options.run, options.work, world, left_out, options.limit)
        questions = FrameQuestions(config, model)
        questions.show([*examples, *tests], drawn)
        validation = choices(world, verifier, questions, examples, plans)
        weights = {form: chosen_weight(validation, form) for form in FORMS}
        result["weights"] = weights
        result["validation"] = {
            form: {f"{w:g}": float(np.mean([one.best(form, w) for one in validation])) for w in WEIGHTS}
            for form in FORMS
        }
        print(json.dumps(result["validation"]), weights, flush=True)
        result["best of 10"] = {}
        for split, examples in by_split.items():
            tested = choices(world, verifier, questions, examples, options.run / "predictions" / "base.jsonl")
            result["best of 10"][split] = compare(tested, weights)
        result["ledger"] = model.ledger.numbers()
    print(json.dumps(result["best of 10"], indent=1))
    write_json(options.work / "result.json", result)
    write_result(
        options.json,
        result,
        title="Frames as evidence, on the world in pictures",
        guide="video.md",
        body=body(result, by_split),
        partial=options.steps < max(STEPS.values()) or options.limit < HISTORIES,
    )


def body(result: Mapping[str, Any], by_split: Mapping[str, Sequence[Example]]) -> list[str | Mapping[str, Any]]:
    """The section of the results page."""
    parts: list[str | Mapping[str, Any]] = [
        f"A tiny video model answered {result['questions']['asked']:,} questions about states of "
        f"{result['questions']['goals']} training goals in training; {result['questions']['left out']} were left out "
        "to choose weights on. `test_goals` are goals whose states it was never asked about; `test_cuts` are other cut "
        "points of training goals. All test clips are on an unseen background. Intervals are over goals.",
        table(
            result["separation"],
            "histories",
            title="AUC within a history, of all steps of its goal, and mean probabilities",
        ),
    ]
    for split, rows in result["best of 10"].items():
        title = f"Exact validity of the best of {SAMPLES} plans of the base, {len(by_split[split])} histories: {split}"
        parts.append(table(rows, "chosen by", title=title))
    chosen = ", ".join(f"{form} {weight:g}" for form, weight in result["weights"].items())
    parts.append(f"Weights, chosen on the left-out training goals among {', '.join(map(str, WEIGHTS))}: {chosen}.")
    parts.append("Forms: " + "; ".join(f"*{name}*, {meaning}" for name, meaning in FORMS.items()) + ".")
    return parts


if __name__ == "__main__":
    main()
