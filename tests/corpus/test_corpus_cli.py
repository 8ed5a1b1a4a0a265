"""The commands of `recipe corpus`, as a user meets them: exit codes, JSON on standard output, one-sentence errors."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from recipe.cli import corpus as commands
from recipe.errors import CorpusError, InputError

ROWS = [
    {
        "video_id": "tea",
        "title": "Making tea [easy]",
        "segments": [
            {"start": 0, "end": 4, "text": "boil the water"},
            {"start": 4, "end": 9.5, "text": "pour it over the leaves"},
        ],
    },
    {"video_id": "salad", "sentences": ["wash the leaves", "chop the onion", "stir"]},
]


@pytest.fixture
def narrations(tmp_path: Path) -> Path:
    path = tmp_path / "narrations.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def run(*arguments: object) -> str:
    """Standard output of a command that succeeds; a RecipeError comes through as raised."""
    app = typer.Typer()
    app.add_typer(commands.app, name="corpus")
    result = CliRunner().invoke(app, ["corpus", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def build(narrations: Path, output: Path, *options: object) -> str:
    return run("build", narrations, "--output", output, "--encoder", "hash:64", *options)


def test_build_info_verify_and_search_as_json(narrations: Path, tmp_path: Path) -> None:
    pytest.importorskip("numba", reason="corpus search needs numba")
    folder = tmp_path / "c"
    summary = json.loads(build(narrations, folder, "--json"))
    assert summary == json.loads(run("info", folder, "--json"))
    assert (summary["narrations"], summary["timed"], summary["untimed"], summary["segments"]) == (2, 1, 1, 5)
    assert summary["lengths"] == {"2-3": 2}
    assert summary["encoder"]["name"] == "hash:64"
    assert summary["disk_bytes"] == sum(f.stat().st_size for f in (folder / "shards").rglob("*") if f.is_file())
    assert json.loads(run("verify", folder, "--json"))["id"] == summary["id"]
    best, other = json.loads(run("search", folder, "boil water", "pour over the leaves", "--json"))
    assert (best["video_id"], other["video_id"]) == ("tea", "salad")
    assert best["score"] == pytest.approx(sum(match["similarity"] for match in best["matches"]) / 2, abs=1e-5)
    assert [(match["start"], match["text"]) for match in best["matches"]] == [
        (0, "boil the water"),
        (4, "pour it over the leaves"),
    ]
    assert {match["start"] for match in other["matches"]} == {None}


def test_search_shows_titles_times_and_segments(narrations: Path, tmp_path: Path) -> None:
    pytest.importorskip("numba", reason="corpus search needs numba")
    build(narrations, tmp_path / "c")
    shown = run("search", tmp_path / "c", "boil water", "pour", "-k", 2)
    for text in ("tea (Making tea [easy])", "4.0-9.5 s", "boil the water", "untimed", "wash the leaves"):
        assert text in shown


def test_a_bad_line_is_found_before_anything_is_written(narrations: Path, tmp_path: Path) -> None:
    with narrations.open("a") as stream:
        stream.write('{"video_id": "late", "sentences": []}\n')
    with pytest.raises(InputError, match="line 3, field 'sentences'"):
        build(narrations, tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_a_video_in_two_files_needs_a_choice(narrations: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.jsonl"
    again.write_text('{"video_id": "tea", "sentences": ["steep"]}\n')
    arguments = ("build", narrations, again, "--output", tmp_path / "c", "--encoder", "hash:64")
    with pytest.raises(InputError, match="ask for duplicates keep-first"):
        run(*arguments)
    run(*arguments, "--duplicates", "keep-first")
    assert json.loads(run("info", tmp_path / "c", "--json"))["segments"] == 5


def test_a_folder_without_a_corpus_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no corpus here"):
        run("info", tmp_path)


@pytest.mark.parametrize("command", ["build", "info", "verify", "search"])
def test_help_shows_an_example(command: str) -> None:
    assert f"recipe corpus {command}" in run(command, "--help")
