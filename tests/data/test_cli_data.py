"""The commands of `recipe data`, as a user runs them."""

import json
import random
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.data.conftest import Recipe
from typer.testing import CliRunner

from recipe.artifacts import write_jsonl
from recipe.cli import app
from recipe.corpus.store import Corpus
from recipe.data.benchmarks import BENCHMARKS, require_benchmarks, select_procedures
from recipe.data.examples import read_examples
from recipe.data.procedures import read_procedures


def test_list_tells_of_every_benchmark_there_is(recipe: Recipe, seven: Path) -> None:
    graphs = seven / "captaincook4d" / "task_graphs"
    graphs.mkdir()
    (graphs / "minttea.json").write_text('{"steps": {"0": "START", "1": "Stir"}, "edges": [[0, 1]]}')
    rows = recipe.json("list", "--root", seven)
    counts = ("name", "videos", "segments", "tasks", "unique_steps", "splits", "set_aside")
    assert [tuple(row[key] for key in counts) for row in rows] == [
        ("coin", 3, 8, 2, 6, {"train": 2, "test": 1}, 0),
        ("crosstask", 4, 9, 2, 5, {"train": 2, "test": 1, "": 1}, 0),
        ("captaincook4d", 3, 6, 1, 4, {"train": 1, "test": 1, "": 1}, 2),
        ("egoprocel", 6, 13, 6, 12, {"train": 5, "test": 1}, 0),
        ("niv", 3, 6, 2, 4, {"train": 2, "test": 1}, 0),
        ("egoexo4d", 3, 5, 1, 2, {"train": 1, "test": 2}, 1),
        ("egoper", 3, 6, 2, 4, {"train": 1, "test": 2}, 2),
    ]
    assert [row["folder"] for row in rows] == [str(seven / row["name"]) for row in rows]
    assert [row["role"] for row in rows] == ["in-domain"] * 4 + ["zero-shot"] * 3
    assert [row["task_graphs"] for row in rows] == [None, None, 1, *[None] * 4]
    code, out, _ = recipe("list", "--root", seven)
    assert code == 0
    assert "absent" not in out
    assert out.count("left out") == 3
    lines = out.splitlines()
    place = next(index for index, line in enumerate(lines) if line == f"CaptainCook4D: {seven / 'captaincook4d'}")
    assert lines[place + 2] == "  licence: MIT"
    assert lines[place + 4 : place + 6] == ["  left out: 2 steps that were not performed", "  task graphs: 1"]


def test_procedures_are_written_as_they_are_read(
    recipe: Recipe, coin: Path, captaincook4d: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out" / "procedures.jsonl"
    result = recipe.json("procedures", "--root", coin.parent, "--output", output)
    assert read_procedures(output) == (select_procedures(require_benchmarks(coin.parent))[0], [])
    groups = {(row["source"], row["split"]): (row["videos"], row["steps"]) for row in result.pop("groups")}
    assert groups == {
        ("coin", "train"): (2, 6),
        ("coin", "test"): (1, 2),
        ("captaincook4d", "train"): (1, 4),
        ("captaincook4d", "test"): (1, 2),
    }
    left_out = {"no_steps": {"captaincook4d": 1}, "set_aside": {"captaincook4d": 2}}
    assert result == {"output": str(output), "procedures": 5, **left_out}
    code, out, _ = recipe("procedures", "--root", coin.parent, "--output", tmp_path / "again.jsonl")
    assert (code, (tmp_path / "again.jsonl").read_bytes()) == (0, output.read_bytes())
    assert "left out of captaincook4d: 1 videos without steps" in out
    assert "left out of captaincook4d: 2 steps that were not performed" in out
    assert "5 procedures written to" in out
    options = ("procedures", "--root", coin.parent, "--output", output, "--benchmark", "coin", "--split", "test")
    assert recipe.json(*options)["groups"] == [{"source": "coin", "split": "test", "videos": 1, "steps": 2}]


def test_procedures_become_a_corpus_of_step_lists(recipe: Recipe, captaincook4d: Path, tmp_path: Path) -> None:
    recipe.json("procedures", "--root", captaincook4d, "--split", "train", "--output", tmp_path / "steps.jsonl")
    arguments = ("build", tmp_path / "steps.jsonl", "--output", tmp_path / "c", "--encoder", "hash:8")
    built = CliRunner().invoke(app, ["corpus", *map(str, arguments), "--format", "procedures", "--json"])
    assert built.exit_code == 0, built.output
    summary = json.loads(built.stdout)
    assert (summary["narrations"], summary["segments"], summary["reading"]["format"]) == (1, 4, "procedures")
    narration = Corpus.open(tmp_path / "c").narration(0)
    assert (narration.video_id, narration.title, narration.source) == ("9_2", "Mint Tea", "captaincook4d")


@pytest.mark.parametrize(
    ("command", "options", "code", "message"),
    [
        ("procedures", ("--benchmark", "con"), 2, "known are coin"),
        ("procedures", ("--split", "training"), 2, "'train', 'val', 'test'"),
        ("procedures", ("--split", "val"), 1, "no video of coin has steps in split val"),
        ("procedures", ("--benchmark", "niv"), 1, "niv/niv_valid.json"),
        ("prepare", ("--benchmark", "con"), 2, "known are coin"),
        ("prepare", ("--cuts-train", "0"), 2, "'all'"),
        ("prepare", ("--cuts-test", "some"), 2, "'all'"),
        ("prepare", ("--limit", "0"), 2, "--limit"),
        ("prepare", ("--benchmark", "crosstask"), 1, "crosstask/crosstask_release"),
        ("prepare", ("--paired",), 2, "--paired"),
        ("prepare", ("--weak-cuts", "trace"), 2, "--weak-cuts"),
        ("prepare", ("--weak", "50"), 2, "give --traces and --weak together"),
        ("prepare", ("--traces", "traces.jsonl"), 2, "give --traces and --weak together"),
        ("prepare", ("--traces", "traces.jsonl", "--weak", "101"), 2, "--weak"),
        ("prepare", ("--traces", "nowhere.jsonl", "--weak", "50"), 1, "nowhere.jsonl: the file does not exist"),
        ("prepare", ("--traces", "bad.jsonl", "--weak", "50"), 1, "line 1, field 'steps'"),
    ],
)
def test_what_cannot_be_done_is_said(
    recipe: Recipe, coin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    command: str, options: tuple[str, ...], code: int, message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.jsonl").write_text('{"source": "coin", "video_id": "v", "goal": "g", "steps": []}\n')
    (tmp_path / "traces.jsonl").write_text('{"source": "s", "video_id": "v", "goal": "g", "steps": [{"text": "a"}]}\n')
    found, _, error = recipe(command, "--root", coin.parent, "--output", "out.jsonl", *options)
    assert (found, message in error) == (code, True), error
    assert not (tmp_path / "out.jsonl").exists()


def test_without_videos_nothing_is_prepared(recipe: Recipe, tmp_path: Path) -> None:
    row = {"source": "mine", "video_id": "v", "goal": "tea", "steps": [{"text": "a"}, {"text": "b"}]}
    (tmp_path / "own.jsonl").write_text(json.dumps(row) + "\n")
    for options, code, message in (
        ((), 2, "--root"),
        (("--root", "nowhere"), 1, "does not exist"),
        (("--procedures", tmp_path / "own.jsonl"), 1, "1 are in no split"),
    ):
        found, _, error = recipe("prepare", "--output", tmp_path / "e.jsonl", *options)
        assert (found, message in error) == (code, True), error


def test_a_bad_file_leaves_the_procedures_of_before(recipe: Recipe, coin: Path, tmp_path: Path) -> None:
    output = tmp_path / "p.jsonl"
    recipe.json("procedures", "--root", coin, "--output", output)
    before = output.read_bytes()
    (coin / "COIN.json").write_text('{"database": {"v": {}}}')
    code, _, error = recipe("procedures", "--root", coin, "--output", output)
    assert code == 1
    assert "field 'database.v.class'" in error
    assert output.read_bytes() == before


def test_prepare_writes_examples_and_counts_what_was_left_out(
    recipe: Recipe, coin: Path, crosstask: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out" / "examples.jsonl"
    result = recipe.json("prepare", "--root", coin.parent, "--output", output)
    assert result["examples"] == len(read_examples(output)) == 4 + 1 + 3 + 1
    assert result["groups"] == [
        {"source": "coin", "split": "train", "videos": 1, "examples": 4, "weak": 0},
        {"source": "coin", "split": "test", "videos": 1, "examples": 1, "weak": 0},
        {"source": "crosstask", "split": "test", "videos": 1, "examples": 1, "weak": 0},
        {"source": "crosstask", "split": "train", "videos": 1, "examples": 3, "weak": 0},
    ]
    assert result["no_split"] == {"crosstask": 1}
    assert result["too_short"] == {"coin": 1, "crosstask": 1}
    assert {example.split for example in read_examples(output)} == {"train", "test"}


def test_prepare_takes_procedures_of_ones_own(recipe: Recipe, tmp_path: Path) -> None:
    row = {"source": "mine", "video_id": "v", "goal": "tea", "split": "val", "steps": [{"text": t} for t in "abc"]}
    path, output = tmp_path / "own.jsonl", tmp_path / "examples.jsonl"
    path.write_text(json.dumps(row) + "\n" + json.dumps({**row, "video_id": "w", "goal": ""}) + "\n")
    code, _, error = recipe("prepare", "--procedures", path, "--output", output)
    assert code == 1
    assert "line 2, field 'goal'" in error
    assert not output.exists()

    options = ("prepare", "--procedures", path, "--output", output, "--skip-bad", "--cuts-test", "all")
    result = recipe.json(*options)
    assert (result["examples"], [skipped["line"] for skipped in result["skipped"]]) == (2, [2])
    code, out, error = recipe(*options)
    assert code == 0
    assert "1 unusable rows" in out
    assert "line 2, field 'goal'" in error


def test_a_source_may_be_called_anything(recipe: Recipe, tmp_path: Path) -> None:
    row = {"source": "[/mine]", "video_id": "v", "goal": "tea", "split": "train", "steps": [{"text": t} for t in "abc"]}
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps(row) + "\n" + json.dumps({**row, "video_id": "w", "steps": [{"text": "a"}]}) + "\n")
    code, out, _ = recipe("prepare", "--procedures", path, "--output", tmp_path / "e.jsonl")
    assert code == 0
    assert out.count("[/mine]") == 2


def shuffled(value: Any, draw: random.Random) -> Any:
    """JSON with the keys of its objects in another order."""
    if isinstance(value, dict):
        keys = draw.sample(sorted(value), len(value))
        return {key: shuffled(value[key], draw) for key in keys}
    return [shuffled(item, draw) for item in value] if isinstance(value, list) else value


def in_another_order(folder: Path, draw: random.Random) -> None:
    """Write a folder's files again, one by one in another order, with objects and lists of videos shuffled."""
    files = {path: path.read_text() for path in folder.rglob("*") if path.is_file()}
    shutil.rmtree(folder)
    for path in draw.sample(sorted(files), len(files)):
        path.parent.mkdir(parents=True, exist_ok=True)
        text = files[path]
        if path.suffix == ".json":
            text = json.dumps(shuffled(json.loads(text), draw), indent=1)
        elif path.suffix == ".txt" and path.name != "tasks_primary.txt":
            lines = text.splitlines(keepends=True)
            text = "".join(draw.sample(lines, len(lines)))
        path.write_text(text)


def test_prepare_gives_the_same_bytes_whatever_the_order_of_its_input(
    recipe: Recipe, seven: Path, tmp_path: Path
) -> None:
    own, traces = tmp_path / "own.jsonl", tmp_path / "traces.jsonl"
    row = {"goal": "tea", "split": "train", "steps": [*"abcde"]}
    write_jsonl(own, [{"source": source, "video_id": f"v{n}", **row} for source in "ba" for n in (10, 2, 1)])
    recipe.json("procedures", "--root", seven, "--output", traces)
    names = [f"--benchmark={name}" for name in BENCHMARKS]

    def written(name: str) -> bytes:
        options = ["--zero-shot-training", "--procedures", own, "--traces", traces, "--weak", "50", "--limit", "3"]
        recipe.json("prepare", "--root", seven, "--output", tmp_path / name, *options, *names)
        return (tmp_path / name).read_bytes()

    before = written("before")
    assert before.count(b"\n") > 30
    draw = random.Random(0)
    in_another_order(seven, draw)
    for path in (own, traces):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(draw.sample(lines, len(lines))))
    draw.shuffle(names)
    assert written("after") == before


def test_prepare_keeps_the_training_videos_of_zero_shot_benchmarks_back(
    recipe: Recipe, seven: Path, tmp_path: Path
) -> None:
    options = ("prepare", "--root", seven, "--output", tmp_path / "e.jsonl")
    result = recipe.json(*options)
    assert result["zero_shot"] == {"niv": 2, "egoexo4d": 1, "egoper": 1}
    zero_shot = {"niv", "egoexo4d", "egoper"}
    assert {group["split"] for group in result["groups"] if group["source"] in zero_shot} == {"test"}
    asked = recipe.json(*options, "--zero-shot-training")
    assert asked["zero_shot"] == {}
    assert {(g["source"], g["split"]) for g in asked["groups"]} > {("niv", "train"), ("egoexo4d", "train")}
    (seven / "niv" / "niv_valid.json").write_text("{}")
    code, _, error = recipe(*options, "--benchmark", "niv")
    assert code == 1
    assert "Training videos of zero-shot benchmarks need --zero-shot-training." in error


def test_prepare_mixes_weak_supervision_in(recipe: Recipe, seven: Path, tmp_path: Path) -> None:
    traces, output = tmp_path / "traces.jsonl", tmp_path / "e.jsonl"
    seen = [{"text": "something is heated", "start": 0.0}, {"text": "something is poured", "start": 4.5}]
    write_jsonl(traces, [{"source": "coin", "video_id": "-a_b", "goal": "told", "steps": seen}])
    options = ("prepare", "--root", seven, "--output", output, "--traces", traces, "--benchmark", "coin")
    result = recipe.json(*options, "--benchmark", "crosstask", "--weak", "100")
    groups = {(g["source"], g["split"]): (g["examples"], g["weak"]) for g in result["groups"]}
    # COIN's cuts lie at 2, 4, 6 and 8 s, and the second step of the trace starts at 4.5 s.
    assert groups == {("coin", "train"): (2, 2), ("coin", "test"): (1, 0), ("crosstask", "test"): (1, 0)}
    assert result["no_trace"] == {"crosstask": 3}
    assert result["one_sided"] == {"coin": 2}
    weak = [example for example in read_examples(output) if example.supervision == "weak"]
    assert {(e.goal, e.history, e.continuation) for e in weak} == {
        ("brew tea", ("something is heated",), ("something is poured",))
    }
    code, out, _ = recipe(*options, "--weak", "100")
    assert code == 0
    assert "weakly supervised: 2 examples" in out
    assert "left out of coin: 2 training examples whose pseudo-trace has no step on one side of the cut" in out
    plain = recipe.json("prepare", "--root", seven, "--output", tmp_path / "plain.jsonl", "--benchmark", "coin")
    assert plain["groups"][0]["weak"] == 0
    recipe.json(*options, "--weak", "0")
    assert output.read_bytes() == (tmp_path / "plain.jsonl").read_bytes()


def test_paired_mixtures_are_cut_where_the_trace_is(recipe: Recipe, coin: Path, tmp_path: Path) -> None:
    traces, output = tmp_path / "traces.jsonl", tmp_path / "e.jsonl"
    seen = [{"text": f"seen {n}", "start": 2.5 * n} for n in range(4)]
    write_jsonl(traces, [{"source": "coin", "video_id": "-a_b", "goal": "told", "steps": seen}])
    options = ("prepare", "--root", coin, "--output", output, "--traces", traces, "--paired", "--weak-cuts", "trace")
    for percent, weak in ((0, 0), (100, 3)):
        result = recipe.json(*options, "--weak", percent)
        assert (result["examples"], result["no_cut"]) == (3 + 1, {"coin": 1})
        cuts = {(one.cut, one.until, one.history) for one in read_examples(output) if one.supervision == "weak"}
        assert cuts == {(n, 2.5 * n, tuple(f"seen {k}" for k in range(n))) for n in (1, 2, 3)[:weak]}
    code, out, _ = recipe(*options, "--weak", "50")
    assert code == 0
    assert "left out of coin: 1 training examples whose pseudo-trace has no further cut point" in out


def test_prepare_gives_training_examples_the_histories_that_phi_told(
    recipe: Recipe, coin: Path, tmp_path: Path
) -> None:
    plain, output, told = (tmp_path / name for name in ("plain.jsonl", "told.jsonl", "histories.jsonl"))
    recipe.json("prepare", "--root", coin, "--output", plain)
    examples = read_examples(plain)
    trained = [example for example in examples if example.split == "train"]
    write_jsonl(told, [{"example_id": e.example_id, "history": ["something"], "until": e.until} for e in trained[1:]])
    options = ("prepare", "--root", coin, "--output", output, "--histories", told)
    result = recipe.json(*options)
    assert (result["examples"], result["told"], result["no_history"]) == (4, 3, {"coin": 1})
    wanted = [replace(e, told_history=("something",) if e.split == "train" else None) for e in examples]
    assert read_examples(output) == [example for example in wanted if example.example_id != trained[0].example_id]
    code, out, _ = recipe(*options)
    assert code == 0
    assert "with Phi's history: 3 examples" in out
    assert "left out of coin: 1 training examples without a history" in out
    for example, until, named in ((trained[0].example_id, 99, "99"), ("another", None, str(told))):
        write_jsonl(told, [{"example_id": example, "history": [], "until": until}])
        code, _, error = recipe(*options)
        assert (code, named in error) == (1, True)


def test_doctor_says_what_is_the_matter(recipe: Recipe, seven: Path) -> None:
    code, out, _ = recipe("doctor", seven)
    assert code == 0
    assert "coin: complete" in out
    assert "there: 3 of 11,827 videos (2 train, 1 test), 8 segments" in out
    assert "works: zero-shot testing on 2 videos, training on request on 1 videos" in out
    shutil.move(seven / "crosstask" / "splits" / "test.txt", seven / "test.txt")
    shutil.copy(seven / "coin" / "COIN.json", seven / "egoper" / "COIN.json")
    code, out, error = recipe("doctor", seven)
    assert (code, error.count("Traceback")) == (1, 0)
    assert "missing: splits/test.txt (split)" in out
    assert "works: nothing" in out
    assert f"in the wrong place: {seven / 'egoper' / 'COIN.json'} is of coin" in out


def test_doctor_counts_video_files(recipe: Recipe, seven: Path, tmp_path: Path) -> None:
    videos = tmp_path / "videos"
    (videos / "coin").mkdir(parents=True)
    (videos / "egoprocel" / "MECCANO").mkdir(parents=True)
    for name in ("coin/-a_b.mp4", "zeta.MKV", "01.tent.mp4", "egoprocel/MECCANO/0008.avi"):
        (videos / name).write_bytes(b"film")
    code, out, _ = recipe("doctor", seven, "--videos", videos)
    assert code == 0
    assert re.findall(r"video files: (\d) of", out) == [*"2001000"]
    assert "the Video configuration on 2 videos" in out
    code, _, error = recipe("doctor", seven, "--videos", tmp_path / "nowhere")
    assert code == 1
    assert "the folder does not exist" in error


@pytest.mark.real_data
def test_prepare_over_the_real_benchmarks(recipe: Recipe, shared_data: Path, tmp_path: Path) -> None:
    result = recipe.json("prepare", "--root", shared_data, "--output", tmp_path / "e.jsonl")
    assert {(g["source"], g["split"]): g["examples"] for g in result["groups"] if g["split"] != "train"} == {
        ("coin", "test"): 2_797,
        ("crosstask", "val"): 340,
        ("crosstask", "test"): 731,
        ("captaincook4d", "val"): 62,
        ("captaincook4d", "test"): 109,
        ("niv", "test"): 45,
    }
    assert result["zero_shot"] == {"niv": 103}
    assert "niv" not in {g["source"] for g in result["groups"] if g["split"] == "train"}
    assert result["too_short"] == {"crosstask": 52}
    assert result["no_split"] == {"crosstask": 242}
    assert len(result["trained_and_tested"]) == 9
