"""One value of a file is broken: each command that reads it ends as it should or says in one sentence what is wrong."""

import copy
import json
import math
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import EXAMPLE, MAIN, NARRATIONS, PROGRESS, PROMPT, Recipe, write_lines

from recipe.artifacts import remove
from recipe.evaluation.judge.verdicts import CRITERIA

pytestmark = pytest.mark.thorough

pytest.importorskip("numba")

HALF = "pour \ud83e it"
SIX = dict.fromkeys(CRITERIA, 3)
WHOLE = EXAMPLE | {"source": "coin", "video_id": "v", "cut": 1, "split": "test", "until": 3.5, "told_history": ["boil"]}
LATER = EXAMPLE | {"example_id": "b", "split": "test"}
PLAN = {"example_id": "a", "steps": ["pour it", "drink"], "sample": 0, "reward": 0.5, "gated": False}
PLANS = [PLAN | {"text": "1. pour it\n2. drink"}, PLAN | {"sample": 1, "steps": ["wait"]}, PLAN | {"example_id": "b"}]
STEPS = [{"text": text, "start": 2 * n, "end": 2 * n + 1} for n, text in enumerate(("boil it", "pour it", "stir it"))]
VIDEO = {"source": "s", "video_id": "v", "goal": "g", "split": "train", "steps": STEPS}
ROLLOUT = {"step": 1, "goal": "g", "history": ["a"], "completion": "1. b", "reward": {"total": 0.5, "gated": False}}
RATING = {"example_id": "a", "rater": "r", "system": "s", "comment": "c", **SIX}
VERDICT = {"example_id": "a", "sample": 0, "scores": SIX, "steps": ["pour it"], "text": "3"}
GRAPH = {"goal": "brew a pot of tea", "steps": {"0": "START", "1": "pour it", "2": "END"}, "edges": [[0, 1], [1, 2]]}
HASH = ("--encoder", "hash:64")
EXAMPLES = ("--examples", "examples.jsonl")
BUILD = ("corpus", "build", "narrations.jsonl", "--output", "new", *HASH)
PREPARE = ("data", "prepare", "--procedures", "procedures.jsonl", "--output", "new")

READS: dict[str, tuple[tuple[str, ...], str, list[dict[str, Any]]]] = {
    "build": (BUILD, "narrations.jsonl", [*NARRATIONS[1:], NARRATIONS[0] | {"title": "t", "source": "s", "url": "u"}]),
    "titles": ((*BUILD, "--titles", "titles.jsonl"), "titles.jsonl", [{"id": "tea", "title": "Tea"}]),
    "exclude": ((*BUILD, "--exclude", "excluded.jsonl"), "excluded.jsonl", [LATER, WHOLE]),
    "against": (("corpus", "info", "corpus", "--against", "excluded.jsonl"), "excluded.jsonl", [VIDEO]),
    "prepare": (PREPARE, "procedures.jsonl", [VIDEO | {"video_id": "w"}, VIDEO]),
    "histories": ((*PREPARE, "--histories", "h.jsonl"), "h.jsonl", [{"example_id": "a", "history": ["a"], "until": 1}]),
    "traces": ((*PREPARE, "--traces", "t.jsonl", "--weak", "50"), "t.jsonl", [VIDEO]),
    "pseudo": (
        ("data", "pseudo", "--corpus", "corpus", *EXAMPLES, "--split", "", "--output", "new"),
        "examples.jsonl",
        [WHOLE],
    ),
    "score": (("reward", "score", "--corpus", "corpus", "--input", "prompts.jsonl"), "prompts.jsonl", [PROMPT, PROMPT]),
    "explain": (
        ("reward", "explain", "--corpus", "corpus", *EXAMPLES, "--example", "a", "--predictions", "plans.jsonl"),
        "plans.jsonl",
        PLANS,
    ),
    "coverage": (("reward", "coverage", "--corpus", "corpus", "--tasks", "t.jsonl"), "t.jsonl", [VIDEO]),
    "watch": (("reward", "watch", "step-00001.jsonl"), "step-00001.jsonl", [ROLLOUT, ROLLOUT]),
    "match": (("evaluate", "match", "plans.jsonl", *EXAMPLES, *HASH), "plans.jsonl", PLANS),
    "match examples": (("evaluate", "match", "plans.jsonl", *EXAMPLES, *HASH), "examples.jsonl", [LATER, WHOLE]),
    "judge": (
        ("evaluate", "judge", "plans.jsonl", *EXAMPLES, "--judge", "proxy", *HASH, "--output", "new"),
        "plans.jsonl",
        PLANS,
    ),
    "diversity": (
        ("evaluate", "diversity", "plans.jsonl", *EXAMPLES, "--judge", "proxy", *HASH, "--fewer", "--output", "new"),
        "plans.jsonl",
        PLANS[:2],
    ),
    "validity": (("evaluate", "validity", "plans.jsonl", *EXAMPLES), "plans.jsonl", PLANS),
    "verdicts": (
        ("evaluate", "validity", "plans.jsonl", *EXAMPLES, "--verdicts", "verdicts.jsonl"),
        "verdicts.jsonl",
        [VERDICT],
    ),
    "seen": (
        ("evaluate", "histories", *EXAMPLES, "--histories", "h.jsonl", "--skip-missing", *HASH),
        "h.jsonl",
        [{"example_id": "a", "history": ["boil"], "until": 3.5}],
    ),
    "questions": (("board", "check", "plans.jsonl", "--questions", "examples.jsonl"), "examples.jsonl", [LATER, WHOLE]),
    "plan": (("plan", "--model", "no-model", *EXAMPLES, "--output", "new"), "examples.jsonl", [LATER, WHOLE]),
}
"""A command, a file that it reads, and rows of the file, the last of which is broken."""


def places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The way to each value in a row."""
    for key, inner in (
        [*value.items()] if isinstance(value, dict) else [*enumerate(value)] if isinstance(value, list) else []
    ):
        yield (*path, key)
        yield from places(inner, (*path, key))


def changed(row: dict[str, Any], path: tuple[str | int, ...], value: object, *, drop: bool = False) -> dict[str, Any]:
    row = copy.deepcopy(row)
    at: Any = row
    for key in path[:-1]:
        at = at[key]
    if drop:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return row


@pytest.fixture
def files(recipe: Recipe, corpus: Path) -> Recipe:
    """Good files of every kind."""
    write = {"examples.jsonl": [WHOLE, LATER], "plans.jsonl": PLANS, "procedures.jsonl": [VIDEO]}
    for name, rows in write.items():
        write_lines(recipe.folder / name, *rows)
    return recipe


def field_of(path: tuple[str | int, ...]) -> str:
    """As the readers name it: the list, where a text of a list is meant."""
    named = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).removeprefix(".")
    return re.sub(r"(\[\d+\])+$", "", named)


@pytest.mark.parametrize("most", [2, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", READS)
def test_half_a_character_is_told_with_file_line_and_field(files: Recipe, name: str, most: int | None) -> None:
    words, file, (*good, row) = READS[name]
    texts = [path for path in places(row) if isinstance(_at(row, path), str)]
    for path in random.Random(name).sample(texts, min(most or len(texts), len(texts))):
        write_lines(files.folder / file, *good, changed(row, path, HALF))
        where = rf"{re.escape(file)}, line {len(good) + 1}, field '{re.escape(field_of(path))}"
        files.refuses(*words, because=where, leaves="run")


def _at(row: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        row = row[key]
    return row


@pytest.mark.parametrize("most", [3, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", READS)
def test_a_value_of_another_kind_is_read_or_told_in_one_sentence(files: Recipe, name: str, most: int | None) -> None:
    words, file, (*good, row) = READS[name]
    values = (None, math.nan, 10**400, [["x"]], {"a": [None]})
    broken = [changed(row, path, value) for path in places(row) for value in values]
    broken += [changed(row, path, None, drop=True) for path in places(row)]
    for bad in broken if most is None else random.Random(name).sample(broken, most):
        write_lines(files.folder / file, *good, bad)
        outcome = files(*words)
        assert outcome.code in (0, 1), (bad, outcome)
        if outcome.code:
            *progress, sentence = outcome.err.splitlines()
            assert sentence.startswith("error: ")
            assert all(PROGRESS.fullmatch(line) for line in progress), (bad, outcome.err)
        remove(files.folder / "new")


def test_rows_of_procedures_with_half_a_character_can_be_left_out(files: Recipe) -> None:
    write_lines(files.folder / "procedures.jsonl", VIDEO | {"goal": HALF}, VIDEO | {"video_id": "w"})
    outcome = files(*PREPARE, "--skip-bad")
    assert outcome.code == 0
    rows = [json.loads(line) for line in (files.folder / "new").read_text().splitlines()]
    assert {row["video_id"] for row in rows} == {"w"}


def test_training_reads_no_half_character(files: Recipe) -> None:
    pytest.importorskip("trl")
    write_lines(files.folder / "examples.jsonl", LATER, WHOLE | {"continuation": ["pour it", HALF]})
    files.refuses("train", "base", "base.toml", because=r"line 2, field 'continuation': .*\[1\]", leaves="run")


def test_files_of_json_are_read_as_lines_are(files: Recipe) -> None:
    graph = GRAPH | {"steps": GRAPH["steps"] | {"1": HALF}}
    (files.folder / "graph.json").write_text(json.dumps(graph))
    words = ("evaluate", "validity", "plans.jsonl", *EXAMPLES, "--graphs", "graph.json", *HASH)
    files.refuses(*words, because=r"graph\.json, field 'steps\.1'")


@pytest.fixture
def judged(files: Recipe) -> Recipe:
    """Also scores of a judge and of the match, with their rows."""
    for words in (READS["judge"][0][:-1], (*READS["match"][0], "--output")):
        name = f"{words[1]}.json"
        assert files(*words, name).code == 0
    return files


@pytest.mark.parametrize(
    ("words", "file", "row", "field"),
    [
        (("evaluate", "agreement", "judge.json", "--ratings", "r.jsonl", *EXAMPLES), "r.jsonl", RATING, "rater"),
        (("evaluate", "agreement", "judge.json", "--ratings", "r.jsonl", *EXAMPLES), "r.jsonl", RATING, "clarity"),
        (("report", "judge.json", *EXAMPLES, "--output", "new"), "judge.rows.jsonl", None, "judge"),
        (("report", "match.json", *EXAMPLES, "--output", "new"), "match.rows.jsonl", None, "example_id"),
    ],
)
def test_rows_beside_scores(judged: Recipe, words: tuple[str, ...], file: str, row: Any, field: str) -> None:
    rows = [row] if row else [json.loads(line) for line in (judged.folder / file).read_text().splitlines()]
    value = [HALF] if field == "steps" else HALF
    write_lines(judged.folder / file, rows[0] | {field: value}, *rows[1:])
    judged.refuses(*words, because=rf"{re.escape(file)}, line 1, field '{re.escape(field)}'")


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("judge", '"plans": 2', f'"plans": {10**400}'),
        ("judge", r'"mean": [\d.]+', '"mean": NaN'),
        ("match", r'"mean": [\d.]+', '"mean": Infinity'),
        ("match", r'"system": "\w+"', '"system": "\\\\ud800"'),
    ],
)
def test_scores_that_are_no_numbers_or_no_texts(judged: Recipe, name: str, old: str, new: str) -> None:
    path = judged.folder / f"{name}.json"
    text, times = re.subn(old, new, path.read_text())
    assert times
    path.write_text(text)
    judged.refuses("report", path.name, "--output", "new", because=rf"{name}\.json")


def test_a_number_that_no_measure_can_be_is_located(judged: Recipe) -> None:
    path = judged.folder / "match.rows.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for value in (10**400, math.nan, math.inf, [1]):
        write_lines(path, *({**row, "metrics": dict.fromkeys(row["metrics"], value)} for row in rows))
        because = r"match\.rows\.jsonl, line 1"
        judged.refuses("report", "match.json", *EXAMPLES, "--output", "page.html", because=because)


@pytest.mark.parametrize(
    "words",
    [
        ("corpus", "search", "corpus", "TEXT"),
        ("reward", "score", "--corpus", "corpus", "--goal", "g", "--history", "TEXT", "--continuation", "a"),
        ("reward", "explain", "--corpus", "corpus", "--goal", "g", "--history", "a", "--continuation", "TEXT"),
        ("plan", "--model", "m", "--goal", "TEXT"),
        ("plan", "--model", "m", "--goal", "g", "--history", "TEXT"),
    ],
)
def test_a_word_of_the_command_line_that_is_no_utf_8(files: Recipe, words: tuple[str, ...]) -> None:
    """Python reads a byte that is no UTF-8 as half a character."""
    text = b"pour \xff it".decode("utf-8", "surrogateescape")
    files.refuses(*(text if word == "TEXT" else word for word in words), because=r"half a character .*\\udcff")


def test_a_word_of_the_command_line_on_its_way_to_a_file(files: Recipe) -> None:
    text = b"ours \xff".decode("utf-8", "surrogateescape")
    words = ("evaluate", "match", "plans.jsonl", *EXAMPLES, *HASH, "--system", text, "--output", "new")
    outcome = files(*words)
    assert outcome.code == 1
    assert "\\udcff" in outcome.err.splitlines()[-1]
    assert not (files.folder / "new").exists()


@pytest.mark.parametrize(("encoding", "more"), [("ascii", ()), ("latin-1", ("--json",))])
def test_what_a_terminal_has_no_character_for(corpus: Path, encoding: str, more: tuple[str, ...]) -> None:
    words = ("reward", "score", "--corpus", str(corpus), "--goal", "茶 ☕ é", "--history", "a", "--continuation", "b")
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    command = [sys.executable, "-c", MAIN, *words, *more]
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    if more:
        assert json.loads(done.stdout.decode(encoding))[0]["goal"] == "茶 ☕ é"


def test_what_is_shown_can_be_written(files: Recipe) -> None:
    """A goal is shown and not read by the paper's reward."""
    text = b"pour \xff it".decode("utf-8", "surrogateescape")
    words = ("reward", "score", "--corpus", "corpus", "--goal", text, "--history", "a", "--continuation", "b")
    for more in ((), ("--json",)):
        outcome = files(*words, *more)
        assert outcome.code == 0
        assert "pour \\udcff it" in outcome.out
