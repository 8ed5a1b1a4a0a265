"""Texts, numbers and files that are made to do harm: nothing reaches the terminal raw, nothing hangs, one sentence."""

import json
import os
import re
from pathlib import Path

import pytest
from tests.cli.conftest import Recipe

from recipe.cli.console import SafeConsole
from recipe.report.elements import Section
from recipe.report.markdown import render_markdown

CLEARS, TITLE, CSI, TURNS = "\x1b[2J", "\x1b]0;owned\x07", "\x9b31m", "\u202edrawkcab"
HOSTILE = f"pour {CLEARS}{TITLE}{CSI}{TURNS} the water"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")
BUILD = ("corpus", "build", "bad.jsonl", "--output", "made", "--encoder", "hash:64")
BIG = "9" * 400


def write(recipe: Recipe, text: str, name: str = "bad.jsonl") -> None:
    (recipe.folder / name).write_text(text, encoding="utf-8")


def test_what_is_narrated_never_reaches_the_terminal_raw(recipe: Recipe) -> None:
    pytest.importorskip("numba")
    row = {"video_id": f"v{CSI}", "title": HOSTILE, "source": TITLE, "sentences": [HOSTILE, "boil the water"]}
    write(recipe, json.dumps(row))
    assert recipe(*BUILD).code == 0
    for more in ((), ("--json",)):
        for words in (("corpus", "search", "made", HOSTILE), ("corpus", "info", "made")):
            outcome = recipe(*words, *more)
            assert outcome.code == 0
            assert not RAW.search(outcome.out + outcome.err)
    assert "\\x1b[2J" in recipe("corpus", "search", "made", "pour").out
    assert HOSTILE in json.loads(recipe("corpus", "search", "made", "pour", "--json").out)["hits"][0]["title"]


def test_errors_show_what_a_terminal_would_obey(recipe: Recipe) -> None:
    write(recipe, json.dumps({"video_id": HOSTILE, "sentences": ["a"]}) + "\n" + json.dumps({"video_id": HOSTILE}))
    outcome = recipe(*BUILD)
    assert outcome.code == 1
    assert not RAW.search(outcome.err)
    outcome = recipe("corpus", "info", f"no{CLEARS}corpus")
    assert outcome.code == 1
    assert "no\\x1b[2Jcorpus" in outcome.err
    write(recipe, json.dumps({"video_id": "v" * 100_000, "sentences": ["a", 3]}))
    assert len(recipe(*BUILD).err) < 3000


def test_styles_and_layout_stay(capsys: pytest.CaptureFixture[str]) -> None:
    SafeConsole(force_terminal=True, color_system="standard").print("a\tb\nc\x1b[2J", style="red", highlight=False)
    shown = capsys.readouterr().out
    assert "\x1b[31ma" in shown
    assert "c\\x1b" in shown
    assert "\x1b[2J" not in shown


def test_words_in_square_brackets_are_shown(recipe: Recipe) -> None:
    """Of a path, a goal or the name of a table; rich would take them for styles."""
    outcome = recipe("world", "narrations", "--count", "2", "--output", "[red]new[/] [frontier.NAME].jsonl")
    assert "[red]new[/] [frontier.NAME].jsonl" in outcome.out
    assert "[frontier.NAME]" in recipe("reproduce", "frontier", "--dry-run").err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bad.jsonl", f'{{"video_id": "a", "segments": [{{"start": {BIG}, "end": {BIG}, "text": "x y"}}]}}'),
        ("bad.json", f'{{"a": {{"start": [{BIG}], "end": [{BIG}], "text": ["x y"]}}}}'),
        ("bad.whisperx.json", f'{{"segments": [{{"start": {BIG}, "end": {BIG}, "text": "x y"}}]}}'),
    ],
)
def test_times_too_large_for_any_clock(recipe: Recipe, name: str, text: str) -> None:
    write(recipe, text, name)
    build = ("corpus", "build", name, "--output", "made", "--encoder", "hash:64")
    recipe.refuses(*build, because="the time 9999.* is not a number of seconds")
    recipe.refuses(*build, "--bad", "skip", because="1 caption skipped: time that is no number")
    write(recipe, f'{{"source": "s", "video_id": "v", "goal": "g", "steps": [{{"text": "a", "start": {BIG}}}]}}')
    recipe.refuses(
        "data", "prepare", "--procedures", "bad.jsonl", "--output", "d", because=r"'steps\[0\]\.start': 9999"
    )


def test_utf_16_needs_a_mark_of_its_order(recipe: Recipe) -> None:
    (recipe.folder / "bad.jsonl").write_bytes('{"video_id": "a", "sentences": ["x"]}'.encode("utf-16-le"))
    recipe.refuses(*BUILD, "--encoding", "utf-16", because="no UTF-16 byte order mark; give utf-16-le")
    assert recipe(*BUILD, "--encoding", "utf-16-le").code == 0


def test_what_is_nested_too_deeply(recipe: Recipe) -> None:
    write(recipe, '{"a": ' + "[" * 200_000 + "]" * 200_000 + "}", "deep.json")
    write(recipe, '{"video_id": "a", "sentences": ["x"]}')
    recipe.refuses(*BUILD, "--exclude", "deep.json", because="deep.json: ")
    write(recipe, "a = " + "[" * 5000 + "]" * 5000, "deep.toml")
    write(recipe, "a = " + "9" * 5000, "digits.toml")
    recipe.refuses("train", "sft", "deep.toml", because="deep.toml: not valid TOML .nested too deeply")
    recipe.refuses("train", "sft", "digits.toml", because="digits.toml: not valid TOML")


def test_pipes_are_not_waited_for(recipe: Recipe) -> None:
    (recipe.folder / "report").mkdir()
    for name in ("pipe", "report/report.json"):
        os.mkfifo(recipe.folder / name)
    recipe.refuses("train", "sft", "pipe", because="pipe: this is a pipe or a device")
    recipe.refuses("run", "pipe", "--output", "x", because="pipe: this is a pipe or a device")
    recipe.refuses("report", "report", because="report.json: this is a pipe or a device")
    recipe.refuses("corpus", "build", "pipe", "--output", "x", because="pipe: this is a pipe or a device")


@pytest.mark.thorough
def test_a_line_of_json_has_an_end(recipe: Recipe) -> None:
    with (recipe.folder / "long.jsonl").open("wb") as stream:
        stream.write(b'{"a": "')
        stream.seek(1 << 30)
        stream.write(b'"}')
    recipe.refuses("data", "prepare", "--procedures", "long.jsonl", "--output", "d", because="line 1: .*longer than")
    build = ("corpus", "build", "long.jsonl", "--output", "c", "--encoder", "hash:64")
    recipe.refuses(*build, because="a line is longer than")
    Path(recipe.folder / "long.jsonl").unlink()


def test_a_name_is_no_link_in_markdown() -> None:
    hostile = "[x](javascript:alert(1)) ![y](http://tracker.example/p.png) [z]: http://tracker.example <script>"
    text = render_markdown(hostile, [hostile], [Section("s", hostile, hostile, paragraphs=(hostile,))])
    assert "](" not in text
    assert "]:" not in text
    assert "<" not in text


def test_a_plan_without_end_is_refused(recipe: Recipe) -> None:
    write(recipe, json.dumps({"example_id": "a", "steps": ["pour it"] * 100_000}), "p.jsonl")
    write(recipe, json.dumps({"example_id": "a", "goal": "g", "history": ["b"], "continuation": ["c"]}), "e.jsonl")
    judge = ("evaluate", "judge", "p.jsonl", "--examples", "e.jsonl", "--judge", "proxy", "--output", "j.json")
    recipe.refuses(*judge, because="line 1, field 'steps': .* 10000")
