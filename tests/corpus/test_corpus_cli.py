"""The commands of `recipe corpus`, as a user meets them: exit codes, JSON on standard output, one-sentence errors."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recipe.cli import app
from recipe.errors import ConfigError, CorpusError, EncoderMismatch, InputError, RecipeError

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
    group = [] if arguments[0] == "publish" else ["corpus"]
    result = CliRunner().invoke(app, [*group, *map(str, arguments)], catch_exceptions=False)
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
    assert "the corpus has 2" in summary["too_small"]
    assert summary["encoder"]["name"] == "hash:64"
    assert summary["disk_bytes"] == sum(f.stat().st_size for f in (folder / "shards").rglob("*") if f.is_file())
    assert json.loads(run("verify", folder, "--json"))["id"] == summary["id"]
    result = json.loads(run("search", folder, "boil water", "pour over the leaves", "--json"))
    best, other = result["hits"]
    assert result["certificate"]["survivors"] == 2
    assert result["certificate"]["threshold"] == other["score"]
    assert (best["video_id"], other["video_id"]) == ("tea", "salad")
    assert best["score"] == pytest.approx(sum(match["similarity"] for match in best["matches"]) / 2, abs=1e-5)
    assert [(match["start"], match["text"]) for match in best["matches"]] == [
        (0, "boil the water"),
        (4, "pour it over the leaves"),
    ]
    assert {match["start"] for match in other["matches"]} == {None}


def test_where_a_search_runs_is_chosen(narrations: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("numba", "ray", "torch", "triton"):
        pytest.importorskip(package)
    folder = tmp_path / "c"
    build(narrations, folder)
    with pytest.raises(InputError, match="--devices and --actors"):
        run("search", folder, "stir", "--devices", "cuda:0", "--actors", "2")
    with pytest.raises(ConfigError, match="'cuda:99'"):
        run("search", folder, "stir", "--devices", "cuda:99")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(RecipeError, match=r"RAY_ADDRESS=127\.0\.0\.1:1"):
        run("search", folder, "stir", "--actors", "2")


def test_how_narrations_are_read_is_recorded_and_what_was_dropped_is_shown(tmp_path: Path) -> None:
    subtitles, pickled = tmp_path / "tea.srt", tmp_path / "corpus.pickle"
    subtitles.write_text("1\n00:00:01,000 --> 00:00:02,000\nboil the water\n")
    captions = {"pie": {"start": [3, 1], "end": [4, 2], "text": [[("bake it", 0.9)], [("hm", 0.1), ("roll it", 0.8)]]}}
    pickled.write_bytes(pickle.dumps(captions))
    shown = build(subtitles, tmp_path / "a")
    assert "rolling collapse" in shown
    summary = json.loads(build(pickled, tmp_path / "b", "--min-score", 0.5, "--captions", "joined", "--json"))
    assert (summary["reading"]["min_score"], summary["reading"]["captions"]) == (0.5, "joined")
    assert summary["read"]["below_score"] == 1
    assert summary["read"]["left_out"] == ["1 caption below the smallest score"]
    assert "1 caption below the smallest score" in run("info", tmp_path / "b")
    with pytest.raises(CorpusError, match=r"captions 'joined', not 'each', min_score 0\.5, not 0\.1"):
        build(pickled, tmp_path / "b", "--min-score", 0.1)
    with pytest.raises(ConfigError, match=r"key 'reading\.encoding'"):
        build(subtitles, tmp_path / "c", "--encoding", "klingon")


def test_what_was_read_is_not_called_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "subs"
    folder.mkdir()
    (folder / "how-to-mend-an-axe.vtt").write_text(
        "WEBVTT\n\n00:01.000 --> 00:02.000\n[Music]\n\n00:03.000 --> 00:04.000\nsand it (laughs)\n"
    )
    (folder / "notes.doc").write_text("none")
    shown = build(folder, tmp_path / "c").splitlines()
    labels = {line: next(label for label in ("left out", "note", "") if line.startswith(label)) for line in shown}
    expected = {"mend-an-axe": "note", "(laughs)": "note", "[Music]": "left out", "notes.doc": "left out"}
    assert {word: {labels[line] for line in shown if word in line} for word in expected} == {
        word: {label} for word, label in expected.items()
    }


def test_excluded_videos_are_kept_out_and_found(narrations: Path, tmp_path: Path) -> None:
    (tmp_path / "test.txt").write_text("tea\n")
    whole = build(narrations, tmp_path / "whole")
    assert "excluded" not in whole
    leaks = json.loads(run("info", tmp_path / "whole", "--against", tmp_path / "test.txt", "--json"))
    assert (leaks["clean"], leaks["videos"]) == (False, ["tea"])
    shown = build(narrations, tmp_path / "c", "--exclude", tmp_path / "test.txt")
    assert "narrations of excluded videos: 1" in shown
    assert json.loads(run("info", tmp_path / "c", "--json"))["exclusions"]["video_ids"] == 1
    assert "0 of 1 are in the corpus" in run("info", tmp_path / "c", "--against", tmp_path / "test.txt")
    with pytest.raises(CorpusError, match="exclusions"):
        build(narrations, tmp_path / "c")


@pytest.mark.thorough
def test_a_finished_corpus_is_left_alone_without_loading_anything(narrations: Path, tmp_path: Path) -> None:
    build(narrations, tmp_path / "c")
    words = ["corpus", "build", str(narrations), "--output", str(tmp_path / "c"), "--encoder", "hash:64"]
    heavy = ("torch", "numba", "sentence_transformers", "ray")
    code = f"import sys; from recipe.cli import app; app({words}, standalone_mode=False); "
    done = subprocess.run(
        [sys.executable, "-c", code + f"print([name for name in {heavy} if name in sys.modules])"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_corpus_grows_by_commands(narrations: Path, tmp_path: Path) -> None:
    build(narrations, tmp_path / "c", "--alignable")
    more = tmp_path / "more.jsonl"
    changed = {**ROWS[1], "sentences": ["wash the leaves", "chop the onion", "toss"]}
    more.write_text(
        "".join(json.dumps(row) + "\n" for row in (ROWS[0], changed, {"video_id": "egg", "sentences": ["a"]}))
    )
    found = json.loads(run("diff", tmp_path / "c", more, "--json"))
    assert (found["added"], found["changed"], found["equal"], found["removed"]) == (["egg"], ["salad"], 1, [])
    assert "added: 1 (egg)" in run("diff", tmp_path / "c", more)
    (tmp_path / "egg.jsonl").write_text(more.read_text().splitlines()[-1])
    assert json.loads(run("diff", tmp_path / "c", tmp_path / "egg.jsonl", "--json"))["removed"] == ["tea", "salad"]
    done = json.loads(run("add", tmp_path / "c", more, "--json"))
    assert (done["added"], done["replaced"], done["equal"], done["encoded"]) == (1, 1, 1, 2)
    assert "there already 3" in run("add", tmp_path / "c", more)
    listed = json.loads(run("list", tmp_path / "c", "--json"))
    assert [row["video_id"] for row in listed["narrations"]] == ["tea", "salad", "egg"]
    assert listed["id"] == done["id"]
    assert run("list", tmp_path / "c", "--grep", "MAKING").splitlines()[-1] == "1 of 3 narrations"
    (tmp_path / "gone.txt").write_text("salad\n")
    assert "removed 1" in run("remove", tmp_path / "c", tmp_path / "gone.txt")
    assert "nothing to do" in run("remove", tmp_path / "c", "salad")
    info = json.loads(run("info", tmp_path / "c", "--json"))
    [entry, _] = info["read"]["changes"]
    assert (info["narrations"], entry["files"], entry["reading"]) == (2, ["more.jsonl"], None)
    assert "added 1, replaced 1, removed 1" in run("info", tmp_path / "c")
    run("compact", tmp_path / "c")
    run("verify", tmp_path / "c")
    with pytest.raises(EncoderMismatch, match="name 'hash:64', not 'hash:8'"):
        run("add", tmp_path / "c", more, "--encoder", "hash:8")
    with pytest.raises(InputError, match="'eggs'; did you mean 'egg'"):
        run("remove", tmp_path / "c", "eggs")
    for command in ("add", "diff"):
        with pytest.raises(CorpusError, match="nothing was kept out"):
            run(command, tmp_path / "c", more, "--exclude", narrations)
    more.write_text(more.read_text() * 2)
    with pytest.raises(InputError, match=r"more\.jsonl.* line 4.*'tea' was read before"):
        run("add", tmp_path / "c", more)


def test_a_changed_corpus_is_published_and_pulled(narrations: Path, tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    build(narrations, tmp_path / "c")
    run("remove", tmp_path / "c", "tea")
    words = ("publish", tmp_path / "c", tmp_path / "release", "--license", "cc-by-4.0")
    published = json.loads(run(*words, "--json"))
    assert run(*words).count("0 B of")
    assert json.loads(run("pull", tmp_path / "release", tmp_path / "again", "--json"))["id"] == published["id"]
    assert published["id"][:16] in run("pull", tmp_path / "release", tmp_path / "second")
    [row] = json.loads(run("list", tmp_path / "again", "--json"))["narrations"]
    assert row["video_id"] == "salad"
