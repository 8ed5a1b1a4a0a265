"""`recipe data pseudo` and its report: files, figures against planted annotations, and inputs that cannot be used."""

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Recipe, corpus, recipe, small_corpus, write_lines  # noqa: F401
from tests.conftest import built_corpus

from recipe.config import MiningConfig
from recipe.corpus.store import Corpus
from recipe.data.examples import read_training_examples
from recipe.mining.mine import ExampleOrigin, Mined, mine
from recipe.mining.quality import MINED, OTHER_GOAL, measure_quality
from recipe.types import Example, Narration, Procedure, Segment, Step
from recipe.world.load import load_world
from recipe.world.narrator import narrate

EXAMPLE = {
    "example_id": "a",
    "goal": "g",
    "split": "train",
    "history": ["boil the water"],
    "continuation": ["pour it", "wait"],
}


def world_corpus(folder: Path, count: int = 8) -> Corpus:
    return built_corpus(folder, narrate(load_world(), count), "hash:128")


def test_the_command_writes_examples_origins_and_a_report_and_nothing_else(recipe: Recipe) -> None:  # noqa: F811
    world_corpus(recipe.folder / "w")
    before = set(recipe.folder.iterdir())
    words = ("data", "pseudo", "--corpus", "w", "--output", "out/p.jsonl", "--report", "q", "--limit", 9, "--json")
    outcome = recipe(*words)
    assert outcome.code == 0, outcome.err
    result = json.loads(outcome.out)
    examples = read_training_examples(recipe.folder / "out/p.jsonl", "train")
    origins = [json.loads(line) for line in (recipe.folder / "out/p.origins.jsonl").read_text().splitlines()]
    assert [one["example_id"] for one in origins] == [one.example_id for one in examples]
    assert len(examples) == result["examples"] == result["quality"]["examples"] == 9
    assert result["quality"] == json.loads((recipe.folder / "q/quality.json").read_text())
    assert examples[0].goal in (recipe.folder / "q/quality.md").read_text() or len(examples) > 8
    assert {path.name for path in set(recipe.folder.iterdir()) - before} == {"out", "q"}
    assert {path.name for path in (recipe.folder / "out").iterdir()} == {"p.jsonl", "p.origins.jsonl"}
    first = (recipe.folder / "out/p.jsonl").read_bytes()
    assert recipe(*words).code == 0
    assert (recipe.folder / "out/p.jsonl").read_bytes() == first


def test_histories_of_examples_are_mined_for(recipe: Recipe) -> None:  # noqa: F811
    world_corpus(recipe.folder / "w")
    write_lines(recipe.folder / "e.jsonl", EXAMPLE)
    outcome = recipe("data", "pseudo", "--corpus", "w", "--examples", "e.jsonl", "--output", "p.jsonl", "--steps", 1)
    assert outcome.code == 0, outcome.err
    [found] = read_training_examples(recipe.folder / "p.jsonl")
    assert (found.history, len(found.continuation)) == (("boil the water",), 1)


@pytest.mark.parametrize(
    ("words", "because"),
    [
        (("--corpus", "nowhere"), "nowhere"),
        (("--corpus", "corpus"), "title"),
        (("--corpus", "corpus", "--examples", "nothing.jsonl"), "nothing.jsonl.*does not exist"),
        (("--corpus", "corpus", "--examples", "no-json", "--split", ""), "no-json, line"),
        (("--corpus", "corpus", "--examples", "examples.jsonl"), "no example is in split 'train'"),
        (("--corpus", "corpus", "--examples", "first.jsonl"), "history"),
        (("--corpus", "corpus", "--exclude", "no-utf8"), "no-utf8"),
        (("--corpus", "corpus", "--examples", "last.jsonl"), "no example was mined"),
        (("--corpus", "corpus", "--report", "q", "--annotations", "no-object"), "no-object"),
        (("--corpus", "corpus", "--output", "folder"), "folder"),
        (("--corpus", "corpus", "--report", "no-json"), "no-json"),
    ],
)
@pytest.mark.usefixtures("corpus")
def test_input_that_cannot_be_used_ends_in_one_sentence(
    recipe: Recipe,  # noqa: F811
    words: tuple[str, ...],
    because: str,
) -> None:
    write_lines(recipe.folder / "train.jsonl", EXAMPLE)
    write_lines(recipe.folder / "first.jsonl", EXAMPLE | {"history": []})
    write_lines(recipe.folder / "last.jsonl", EXAMPLE | {"history": ["pour"]})
    recipe.refuses("data", "pseudo", "--output", "p.jsonl", *words, because=because)


def test_wrong_usage(recipe: Recipe) -> None:  # noqa: F811
    outcome = recipe("data", "pseudo", "--corpus", "c", "--output", "p.jsonl", "--annotations", "procedures.jsonl")
    assert outcome.code == 2


def planted(folder: Path) -> tuple[Corpus, Mined]:
    """Two videos of two goals, every other segment a step, and continuations that are the annotated ones."""
    steps = {
        "tea": ["boil the water", "warm the teapot", "add the tea leaves"],
        "tyre": ["loosen the nuts", "jack up the car", "pull off the wheel"],
    }
    narrations = []
    for name, own in steps.items():
        texts = [text for step in own for text in ("so far so good", step)]
        segments = tuple(Segment(text, 10.0 * place, 10.0 * place + 10) for place, text in enumerate(texts))
        narrations.append(Narration(name, segments, f"the {name}"))
    opened = built_corpus(folder, narrations, "hash:256")
    mined = Mined("titles", considered=2)
    for place, (name, own) in enumerate(steps.items()):
        mined.examples.append(Example(f"pseudo/{name}/1", "pseudo", name, f"the {name}", (own[0],), tuple(own[1:]), 1))
        mined.origins.append(ExampleOrigin(f"pseudo/{name}/1", name, place, (3, 5)))
    return opened, mined


def test_agreement_and_step_like_shares_against_planted_annotations(tmp_path: Path) -> None:
    opened, mined = planted(tmp_path / "c")
    videos = []
    for example in mined.examples:
        texts = (*example.history, *example.continuation)
        steps = tuple(Step(text, 20.0 * place + 10, 20.0 * place + 20) for place, text in enumerate(texts))
        videos.append(Procedure("s", example.video_id, "another wording of the goal", steps))
    quality = measure_quality(mined, opened, MiningConfig(threshold=-9.0), procedures=videos)
    assert quality.compared == 2
    assert {name: one.mean for name, one in quality.agreement[MINED].items()} == pytest.approx(
        {"f1": 1.0, "ordered_f1": 1.0, "likeness": 1.0}
    )
    assert quality.agreement[OTHER_GOAL]["f1"].mean == 0.0
    share = quality.step_like_segments
    assert share is not None
    assert (share.videos, share.precision, share.precision_of_all, share.recall) == (2, 1.0, 0.5, 1.0)
    assert {one.annotated for one in quality.shown} == {one.continuation for one in mined.examples}
    page = quality.page()
    assert all(step in page for one in mined.examples for step in one.continuation)
    assert len(quality.tables()) == 3


def test_annotations_without_times_are_not_compared_with(tmp_path: Path) -> None:
    opened, mined = planted(tmp_path / "c")
    untimed = [Procedure("s", "tea", "g", (Step("boil the water"), Step("warm the teapot")))]
    quality = measure_quality(mined, opened, MiningConfig(), procedures=untimed)
    assert (quality.compared, quality.agreement, quality.step_like_segments) == (0, {}, None)


def test_mined_continuations_of_the_world_agree_more_than_chance(tmp_path: Path) -> None:
    from recipe.world.examples import draw_examples

    opened, asked = world_corpus(tmp_path / "c", 64), draw_examples(load_world(), "train", 40)
    config = MiningConfig(segments="step-like")
    mined = mine(opened, config, asked)
    agreement = measure_quality(mined, opened, config, examples=asked).agreement
    assert agreement[MINED]["f1"].mean > agreement[OTHER_GOAL]["f1"].mean + 0.05
