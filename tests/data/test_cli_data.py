"""The commands `recipe data list` and `recipe data prepare`, as a user runs them."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from recipe.cli import data
from recipe.cli.console import run
from recipe.data.examples import read_examples


class Recipe:
    """Runs `recipe data ...` in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capfd = monkeypatch, capfd

    def __call__(self, *arguments: str | Path) -> tuple[int, str, str]:
        self._monkeypatch.setenv("COLUMNS", "200")
        self._monkeypatch.setattr(sys, "argv", ["recipe data", *map(str, arguments)])
        self._capfd.readouterr()
        try:
            code = run(data.app)
        except SystemExit as stop:
            code = int(stop.code or 0)
        return code, *self._capfd.readouterr()

    def json(self, *arguments: str | Path) -> Any:
        code, out, _ = self(*arguments, "--json")
        assert code == 0
        return json.loads(out)


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Recipe:
    return Recipe(monkeypatch, capfd)


def test_list_counts_what_is_there(recipe: Recipe, coin: Path) -> None:
    rows = {row["name"]: row for row in recipe.json("list", "--root", coin.parent)}
    assert (rows["coin"]["videos"], rows["coin"]["segments"], rows["coin"]["tasks"]) == (3, 8, 2)
    assert rows["coin"]["splits"] == {"train": 2, "test": 1}
    assert rows["crosstask"]["folder"] is None
    code, out, _ = recipe("list", "--root", coin.parent)
    assert code == 0
    assert "absent" in out
    assert "research use" in out


def test_list_without_a_root_says_what_to_fetch(recipe: Recipe) -> None:
    code, out, _ = recipe("list")
    assert code == 0
    assert "facebookresearch/VLaMP" in out


def test_prepare_writes_examples_and_counts_what_was_left_out(
    recipe: Recipe, coin: Path, crosstask: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out" / "examples.jsonl"
    result = recipe.json("prepare", "--root", coin.parent, "--output", output)
    assert result["examples"] == len(read_examples(output)) == 4 + 1 + 3 + 1
    assert result["groups"] == [
        {"source": "coin", "split": "train", "videos": 1, "examples": 4},
        {"source": "coin", "split": "test", "videos": 1, "examples": 1},
        {"source": "crosstask", "split": "test", "videos": 1, "examples": 1},
        {"source": "crosstask", "split": "train", "videos": 1, "examples": 3},
    ]
    assert result["no_split"] == {"crosstask": 1}
    assert result["too_short"] == {"coin": 1, "crosstask": 1}
    assert {example.split for example in read_examples(output)} == {"train", "test"}


def test_prepare_gives_the_same_bytes_each_time(recipe: Recipe, coin: Path, tmp_path: Path) -> None:
    def written(name: str, *options: str) -> bytes:
        recipe.json("prepare", "--root", coin, "--output", tmp_path / name, "--cuts-train", "2", *options)
        return (tmp_path / name).read_bytes()

    assert written("a") == written("b")
    assert any(written(f"seed{seed}", "--seed", str(seed)) != written("a") for seed in range(1, 6))


def test_prepare_takes_procedures_of_ones_own(recipe: Recipe, tmp_path: Path) -> None:
    row = {
        "source": "mine",
        "video_id": "v",
        "goal": "tea",
        "split": "val",
        "steps": [{"text": t} for t in "abc"],
    }
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


def test_prepare_limits_videos(recipe: Recipe, coin: Path, tmp_path: Path) -> None:
    result = recipe.json("prepare", "--root", coin, "--output", tmp_path / "e.jsonl", "--limit", "1")
    assert all(group["videos"] == 1 for group in result["groups"])


def test_videos_without_a_split_alone_give_an_error(recipe: Recipe, tmp_path: Path) -> None:
    row = {"source": "mine", "video_id": "v", "goal": "tea", "steps": [{"text": "a"}, {"text": "b"}]}
    (tmp_path / "own.jsonl").write_text(json.dumps(row) + "\n")
    code, _, error = recipe("prepare", "--procedures", tmp_path / "own.jsonl", "--output", tmp_path / "e.jsonl")
    assert code == 1
    assert "1 are in no split" in error


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ((), 2, "--root"),
        (("--root", "ROOT", "--benchmark", "con"), 2, "known are coin"),
        (("--root", "ROOT", "--cuts-train", "0"), 2, "'all'"),
        (("--root", "ROOT", "--cuts-test", "some"), 2, "'all'"),
        (("--root", "ROOT", "--limit", "0"), 2, "--limit"),
        (("--root", "ROOT", "--benchmark", "crosstask"), 1, "crosstask/crosstask_release"),
        (("--root", "nowhere"), 1, "does not exist"),
    ],
)
def test_what_cannot_be_done_is_said(
    recipe: Recipe, coin: Path, tmp_path: Path, options: tuple[str, ...], code: int, message: str
) -> None:
    given = [str(coin.parent) if option == "ROOT" else option for option in options]
    found, _, error = recipe("prepare", "--output", tmp_path / "e.jsonl", *given)
    assert found == code
    assert message in error
    assert not (tmp_path / "e.jsonl").exists()


@pytest.mark.real_data
def test_prepare_over_the_real_benchmarks(recipe: Recipe, shared_data: Path, tmp_path: Path) -> None:
    result = recipe.json("prepare", "--root", shared_data, "--output", tmp_path / "e.jsonl")
    assert {(g["source"], g["split"]): g["examples"] for g in result["groups"] if g["split"] != "train"} == {
        ("coin", "test"): 2_797,
        ("crosstask", "val"): 340,
        ("crosstask", "test"): 731,
    }
    assert result["too_short"] == {"crosstask": 52}
    assert result["no_split"] == {"crosstask": 242}
    assert len(result["trained_and_tested"]) == 9
