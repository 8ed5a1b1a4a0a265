"""The data of studies: what is trained, validated and tested on shares nothing; corpora cover what they say."""

import json
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import pytest

pytest.importorskip("numba")

from recipe.artifacts import read_jsonl, write_jsonl
from recipe.config import CorpusConfig, EncoderConfig, parse_config
from recipe.corpus.store import Corpus
from recipe.data.examples import read_examples
from recipe.data.procedures import write_procedures
from recipe.errors import InputError
from recipe.progress import SILENT
from recipe.types import Narration, Procedure, Segment, Step
from recipe.world.load import load_world
from recipe.world.narrator import narrate
from recipe.world.validity import plan_key, score_plan
from recipe_studies.experiments.data import (
    DataSettings,
    captioned,
    choose_prompts,
    cut_benchmarks,
    draw_validation,
    draw_world,
    reordered,
)
from recipe_studies.experiments.expand import expand, read_inputs
from recipe_studies.experiments.schedule import Stage
from recipe_studies.experiments.settings import FilesSource, TeachingConfig, WorldSource
from recipe_studies.experiments.study import DOCUMENTS, HELD_OUT, KNOWN, NARRATIONS, TEST, TRAIN, VALIDATION, study_of

WORLD = load_world()


def test_validation_prompts_share_no_cut_point_with_others(tmp_path: Path) -> None:
    source = WorldSource(narrations=4, documents=5, train=60, test=20)
    draw_world(tmp_path, DataSettings(source, 1), SILENT)
    assert [len(read_examples(tmp_path / file)) for file in (TRAIN, TEST, DOCUMENTS)] == [60, 40, 5]
    draw_validation(tmp_path, DataSettings(source, 1, validation=30), SILENT)
    parts = {file: read_examples(tmp_path / file) for file in (TRAIN, TEST, VALIDATION)}
    cuts = {file: [(e.goal, plan_key(WORLD, e.goal, e.history)) for e in examples] for file, examples in parts.items()}
    assert len(set(cuts[VALIDATION])) == 30
    assert not set(cuts[VALIDATION]) & {*cuts[TRAIN], *cuts[TEST]}
    assert not any(WORLD.graph(example.goal).held_out for example in parts[VALIDATION])
    assert not {e.video_id for e in parts[VALIDATION]} & {e.video_id for e in parts[TRAIN]}
    few = source.model_copy(update={"domains": ("first_aid",)})
    with pytest.raises(InputError, match="cut points left for 500 validation prompts"):
        draw_validation(tmp_path, DataSettings(few, 1, validation=500), SILENT)


def test_exposure_is_the_share_of_text_about_the_goals_that_are_used(tmp_path: Path) -> None:
    source = WorldSource(domains=("repair",), narrations=8, documents=80, exposure=0.25, train=4, test=4, clean=1)
    draw_world(tmp_path, DataSettings(source, 1), SILENT)
    goals = {graph.goal for graph in WORLD.goals.values() if graph.domain == "repair"}
    assert [example.goal in goals for example in read_examples(tmp_path / DOCUMENTS)].count(True) == 20
    for _, row in read_jsonl(tmp_path / NARRATIONS):  # lists of steps, which lead to the goal
        assert score_plan(WORLD, row["title"], (), [segment["text"] for segment in row["segments"]]).perfect


FILES = {"type": "files", "narrations": ["n"], "benchmarks": ["coin", "crosstask"]}


def cut(data: Path, run_dir: Path, **values: Any) -> dict[str, list[Any]]:
    source = parse_config(FILES | values, FilesSource, "test")
    cut_benchmarks(run_dir, DataSettings(source, 0, root=data), SILENT)
    return {Path(file).stem: read_examples(run_dir / file) for file in (DOCUMENTS, TRAIN, TEST)}


def test_a_video_held_out_anywhere_is_trained_on_nowhere(data: Path, tmp_path: Path) -> None:
    whole = cut(data, tmp_path / "whole")
    for name in ("documents", "train"):
        assert {example.video_id for example in whole[name]} == {"own", "tea"}
        assert all(example.split == "train" for example in whole[name])
    assert {(e.video_id, e.split) for e in whole["test"]} == {("held", "coin"), ("shared", "crosstask")}
    assert len(whole["test"]) == 2
    some = cut(data, tmp_path / "some", train=2, documents=3)
    assert some["train"] == whole["train"][::2]  # fewer are spread over the file
    assert len(some["documents"]) == 3
    content = json.loads((data / "coin" / "COIN.json").read_text())
    del content["database"]["held"]
    (data / "coin" / "COIN.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="4 examples to train on and 0 to test on; give procedures of both"):
        cut(data, tmp_path / "run", benchmarks=["coin"])
    assert not (tmp_path / "run").exists()


def test_own_procedures_stand_in_place_of_published_files(tmp_path: Path) -> None:
    rows = [Procedure("mine", f"p{n}", "tea", tuple(Step(f"step {n} {i}") for i in range(6))) for n in range(10)]
    write_procedures(tmp_path / "tasks.jsonl", rows)
    source = {"benchmarks": [], "procedures": ["tasks.jsonl"]}
    drawn = cut(tmp_path, tmp_path / "run", **source)
    trained, tested = ({example.video_id for example in drawn[name]} for name in ("train", "test"))
    assert (len(trained), len(tested)) == (8, 2)
    assert not trained & tested
    write_procedures(tmp_path / "tasks.jsonl", [replace(rows[0], split="test"), *rows[1:]])
    assert {example.video_id for example in cut(tmp_path, tmp_path / "run", **source)["test"]} == {"p0"}


ENCODER = CorpusConfig(encoder=EncoderConfig(name="hash:32"))
DISHES = ("tea", "soup", "toast", "cake")
PROCEDURES = {
    "type": "procedures",
    "procedures": ["p.jsonl"],
    "narrations": ["n.jsonl"],
    "known_share": 0.5,
    "test_split": "val",
    "train": 30,
    "validation": 5,
    "covering": 2,
}


def corpora(folder: Path, data: Path, **values: Any) -> dict[str, list[Any]]:
    """Run the stages of data and corpora of a teaching study; the narrations of each corpus by its stage."""
    given = {"kind": "teaching", "title": "t", "corpus": ENCODER.model_dump(), "seeds": [0], "samples": 3, "best_of": 2}
    config = parse_config(given | values, TeachingConfig, "test")
    stages: list[Stage] = expand(study_of(config), read_inputs(config, data))
    narrations = {}
    for stage in stages:
        if stage.name.startswith(("data", "corpus")):
            stage.work(folder, stage.settings, SILENT)
        if stage.name.startswith("corpus"):
            corpus = Corpus.open(folder / stage.outputs[0])
            narrations[stage.name] = [corpus.narration(index) for index in range(len(corpus))]
    return narrations


@pytest.fixture
def recipes(tmp_path: Path) -> Path:
    """40 training and 8 validation videos of four dishes, and what is said in them."""
    root = tmp_path / "files"
    rows = [
        {"source": "kitchen", "video_id": f"{split}-{number}", "goal": dish, "split": split}
        | {"steps": [{"text": f"take what {dish} needs"}, {"text": f"work {number} on {dish}"}, {"text": "serve it"}]}
        for split, count in (("train", 40), ("val", 8))
        for number in range(count)
        for dish in [DISHES[number % 4]]
    ]
    write_jsonl(root / "p.jsonl", [*rows, {**rows[0], "video_id": "nameless", "goal": ""}])
    said = [
        {"video_id": row["video_id"], "source": "speech", "sentences": [f"so we {s['text']}" for s in row["steps"]]}
        for row in rows
    ]
    write_jsonl(root / "n.jsonl", said)
    return root


ARMS: dict[str, Any] = {"arms": ["lists", "wrong", "r0"], "model": "m"}


@pytest.mark.parametrize("spoken", [True, False])
def test_no_prompt_has_its_own_video_in_a_corpus(recipes: Path, tmp_path: Path, spoken: bool) -> None:
    """And goals that the base knows are not taught; without speech a corpus is of step lists."""
    source = PROCEDURES if spoken else PROCEDURES | {"narrations": []}
    narrations = corpora(tmp_path, recipes, source=source, sft_known={"epochs": 1}, **ARMS)
    parts = {name: read_examples(tmp_path / name) for name in (TRAIN, VALIDATION, HELD_OUT)}
    videos = {name: {example.video_id for example in part} for name, part in parts.items()}
    assert {name: len(own) for name, own in videos.items()} == {TRAIN: 5, VALIDATION: 5, HELD_OUT: 4}
    taught = {example.goal for part in parts.values() for example in part}
    known = {example.goal for example in read_examples(tmp_path / KNOWN)}
    assert (len(known), taught) == (2, {*DISHES} - known)
    if spoken:  # the wrong corpus has as many narrations as the right one
        assert {name: len(own) for name, own in narrations.items()} == {"corpus": 4, "corpus-lists": 10, "corpus-0": 4}
    for name, own in narrations.items():
        assert not {row.video_id for row in own} & set().union(*videos.values())
        assert {row.title for row in own} == (known if name == "corpus-0" else taught)
    # Speech of other tasks of the same source: what differs is the tasks alone.
    assert all(row.segments[0].text.startswith("so we") == spoken for row in narrations["corpus-0"])
    assert all(example.split == "test" for example in parts[HELD_OUT])
    choose_prompts(tmp_path, "validation", SILENT)
    assert read_examples(tmp_path / TEST) == parts[VALIDATION]


def test_corpora_of_the_same_speech(recipes: Path, tmp_path: Path) -> None:
    rankers = ["grounded", "shuffled", "captions"]
    narrations = corpora(tmp_path, recipes, source=PROCEDURES, rankers=rankers, **ARMS | {"arms": []})
    said = {row.video_id: [segment.text for segment in row.segments] for row in narrations["corpus"]}
    shuffled, captions = (
        {row.video_id: [segment.text for segment in row.segments] for row in narrations[f"corpus-{name}"]}
        for name in ("shuffled", "captions")
    )
    assert said != shuffled
    assert {name: sorted(own) for name, own in said.items()} == {name: sorted(own) for name, own in shuffled.items()}
    for name, own in captions.items():
        assert [line for line in own if line.startswith("so we")] == said[name]
        assert sum(not line.startswith("so we") for line in own) == 3


@pytest.mark.parametrize("order", ["shuffled", "mixed"])
def test_lines_in_another_order_keep_lengths_and_times(order: Literal["shuffled", "mixed"]) -> None:
    said = narrate(WORLD, 6, 0)
    moved = reordered(said, order, 0)
    assert moved == reordered(said, order, 0) != reordered(said, order, 1)

    def lines(narrations: list[Narration]) -> list[list[str]]:
        return [[segment.text for segment in row.segments] for row in narrations]

    def times(narrations: list[Narration]) -> list[list[tuple[float | None, float | None]]]:
        return [[(segment.start, segment.end) for segment in row.segments] for row in narrations]

    assert times(moved) == times(said)
    assert sorted(chain(*lines(moved))) == sorted(chain(*lines(said)))
    stays = [sorted(own) == sorted(new) for own, new in zip(lines(said), lines(moved), strict=True)]
    assert all(stays) if order == "shuffled" else not any(stays)


def test_captions_are_one_line_in_four_in_the_order_of_both() -> None:
    said = Narration("v", tuple(Segment(f"said {n:02d}") for n in range(40)))
    lines = [s.text for s in captioned(said, Narration("v", tuple(Segment(f"step {n}") for n in range(5)))).segments]
    assert (len(lines), sum(line.startswith("step") for line in lines)) == (20, 5)
    for kind in ("said", "step"):
        own = [line for line in lines if line.startswith(kind)]
        assert own == sorted(own)
    assert all(any(line.startswith("step") for line in lines[n : n + 5]) for n in range(0, 20, 5))


def test_what_is_known_of_the_taught_collection_stands_apart_from_other_benchmarks(data: Path, recipes: Path) -> None:
    write_jsonl(data / "p.jsonl", [row for _, row in read_jsonl(recipes / "p.jsonl") if row["goal"]])
    (data / "n.jsonl").write_bytes((recipes / "n.jsonl").read_bytes())
    source = PROCEDURES | {"known": ["coin"]}
    corpora(data / "run", data, source=source, arms=["r0"], sft_known={"epochs": 1})
    own, every = ({e.source for e in read_examples(data / "run" / file)} for file in (KNOWN, DOCUMENTS))
    assert (own, every) == ({"kitchen"}, {"kitchen", "coin"})


@pytest.mark.parametrize(
    ("source", "message"),
    [({"test_split": "test"}, "no examples for held-out"), ({"validation": 1000}, "no examples for train")],
)
def test_procedures_that_give_no_part_are_refused(
    recipes: Path, tmp_path: Path, source: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        corpora(tmp_path, recipes, source=PROCEDURES | source, **ARMS)
