"""Bad input as a user meets it: one sentence, exit code 1 (2 for wrong usage, 130 for Ctrl-C), and nothing changed."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import BASE, EXAMPLE, MAIN, PROCEDURE, PROGRESS, TRAINED, Recipe, start, write_lines, write_toml

import recipe as recipe_package
from recipe.artifacts import locked, read_json

# Files ---------------------------------------------------------------------------------------------------------------

CONFIGS = Path(__file__).parents[2] / "configs"
READS_LINES = {
    "corpus build": ("corpus", "build", "FILE", "--output", "new", "--encoder", "hash:64"),
    "data prepare": ("data", "prepare", "--procedures", "FILE", "--output", "new"),
    "reward score": ("reward", "score", "--corpus", "corpus", "--input", "FILE"),
    "evaluate plans": ("evaluate", "validity", "FILE", "--examples", "examples.jsonl"),
    "evaluate examples": ("evaluate", "validity", "plans.jsonl", "--examples", "FILE"),
    "plan": ("plan", "--model", "no-model", "--examples", "FILE", "--output", "new"),
}
BAD_FILES = {
    "empty": "empty: .*empty",
    "blank-lines": "blank-lines: .*empty",
    "missing": "missing: .*does not exist",
    "folder": "folder: .*folder",
    "narrations.jsonl/x": "narrations.jsonl/x: .*does not exist",
    "no-object": "no-object(, line 1)?: .*(JSON object|captions)",
}


@pytest.mark.parametrize(
    ("command", "file"),
    [*((command, "no-object") for command in READS_LINES), *(("evaluate plans", file) for file in BAD_FILES)],
)
def test_files_that_cannot_be_read(recipe: Recipe, corpus: Path, command: str, file: str) -> None:
    words = [file if word == "FILE" else word for word in READS_LINES[command]]
    recipe.refuses(*words, because=BAD_FILES[file])


@pytest.mark.parametrize(
    ("words", "because"),
    [
        (("score", "--goal", "g", "--continuation", "b"), "--history"),
        (("score", "--goal", "g", "--history", " ", "--continuation", "b"), "--history"),
        (("score", "--goal", " ", "--history", "a", "--continuation", "b"), "--goal"),
        (("score", "--goal", "g", "--history", "a"), "--continuation"),
        (("score",), "--input, or"),
        (("score", "--input", "prompts.jsonl", "--goal", "g"), "not from both"),
        (("explain", "--goal", "g", "--history", "", "--continuation", "b"), "--history"),
    ],
)
def test_prompts_on_the_command_line(recipe: Recipe, corpus: Path, words: tuple[str, ...], because: str) -> None:
    recipe.refuses("reward", *words, "--corpus", corpus, because=because)


def test_a_module_that_ends_python_is_refused(recipe: Recipe, corpus: Path) -> None:
    (recipe.folder / "ending.py").write_text(
        "def reward(goal, history, plan):\n    return 1\n\n\nraise SystemExit(0)\n"
    )
    score = ("reward", "score", "--corpus", corpus, "--input", "prompts.jsonl")
    recipe.refuses(*score, "--verifier", "ending:reward", because="ending:reward: .*SystemExit")


def test_a_mark_that_editors_of_windows_write_is_no_part_of_a_file(recipe: Recipe, corpus: Path) -> None:
    mark = b"\xef\xbb\xbf"
    (recipe.folder / "reward.toml").write_bytes(mark + b'verifier = "length"\n')
    (recipe.folder / "scores.json").write_bytes(mark + b'{"a": 1}')
    score = ("reward", "score", "--corpus", corpus, "--input", "prompts.jsonl")
    assert recipe(*score, "--config", "reward.toml").code == 0
    assert read_json(recipe.folder / "scores.json") == {"a": 1}
    world = recipe.folder / "world"
    shutil.copytree(Path(recipe_package.__file__).parent / "world" / "goals", world)
    (world / "talk.toml").write_bytes(mark + (world / "talk.toml").read_bytes())
    assert recipe("world", "goals", "--folder", "world").code == 0
    recipe.refuses("reward", "serve", "--corpus", corpus, "--token-file", "no-utf8", because="no-utf8: .*UTF-8")


def test_what_is_missing_or_given_twice_is_named(recipe: Recipe) -> None:
    clip = ("world", "clip", "--goal", "brew a pot of tea", "--output", "new.mp4")
    recipe.refuses(*clip, because="no steps")
    recipe.refuses(
        *clip, "--history", "boil the water", "--first", 2, because="--history and --first exclude each other"
    )


def test_a_completion_without_steps_is_named_and_scored(recipe: Recipe, corpus: Path) -> None:
    pytest.importorskip("numba")
    outcome = recipe("reward", "score", "--corpus", corpus, "--goal", "g", "--history", "a", "--continuation", "***")
    assert outcome.code == 0
    assert "(holds no steps)" in outcome.out


@pytest.mark.thorough
def test_other_texts(recipe: Recipe, corpus: Path) -> None:
    recipe.refuses("corpus", "search", corpus, "boil", " ", because="a step is empty")
    recipe.refuses("plan", "--model", "m", "--goal", " ", because="the goal is empty")
    recipe.refuses("plan", "--model", "m", "--goal", "g", "--history", "", because="a step of the history is empty")
    recipe.refuses("world", "show", "brew a pot of tee", because="'brew a pot of tee'.*'brew a pot of tea'")
    recipe.refuses("world", "examples", "--split", "tset", "--output", "new", because="'tset'.*train")
    write_lines(recipe.folder / "few", PROCEDURE | {"steps": [{"text": "a"}]})
    few = ("data", "prepare", "--procedures", "few", "--output", "new")
    recipe.refuses(*few, because="none of 1 videos.* 1 have fewer than two")
    write_lines(recipe.folder / "far", EXAMPLE | {"goal": "fly to the moon"})
    plans = ("evaluate", "validity", "plans.jsonl", "--examples")
    recipe.refuses(*plans, "far", because="'fly to the moon'.*did you mean")
    plans = (*plans, "examples.jsonl")
    recipe.refuses(*plans, "--split", "tset", because=r"'tset'.*1 in none")
    write_lines(recipe.folder / "plans.jsonl", {"example_id": "b", "steps": []})
    recipe.refuses(*plans, because="1 of 1 .*: b;")


@pytest.mark.thorough
def test_benchmark_folders(recipe: Recipe) -> None:
    prepare = ("data", "prepare", "--output", "new", "--root")
    recipe.refuses(*prepare, "missing", because="missing: .*does not exist")
    recipe.refuses(*prepare, "empty", because="empty: .*does not exist")
    because = "coin, crosstask, captaincook4d, egoprocel, niv, egoexo4d, egoper not found here"
    recipe.refuses(*prepare, "folder", because=because)
    coin = recipe.folder / "folder" / "coin" / "COIN.json"
    coin.parent.mkdir()
    coin.write_text('{"database": ')
    recipe.refuses(*prepare, "folder", because=r"COIN\.json: not valid JSON")
    recipe.refuses("data", "list", "--root", "folder", because=r"COIN\.json: not valid JSON")
    coin.write_bytes(b"\xff")
    recipe.refuses(*prepare, "folder", because=r"COIN\.json: not valid JSON \('utf-8' codec")
    coin.unlink()
    coin.mkdir()
    recipe.refuses(*prepare, "folder", because=r"COIN\.json: this is a folder")


@pytest.mark.parametrize(
    ("content", "because"),
    [
        (b"x = ", r"cooking\.toml: not valid TOML"),
        (b'x = "\xff"', r"cooking\.toml: not valid TOML \('utf-8' codec"),
        (b"steps = 3", r"cooking\.toml, field 'steps': "),
        (b"goals = 3", r"cooking\.toml, field 'goals': "),
        (b"[goals]\ntea = 3", r"cooking\.toml, field 'tea': "),
        (b"[gaols]", r"cooking\.toml: .*'gaols'"),
    ],
)
def test_worlds(recipe: Recipe, content: bytes, because: str) -> None:
    from recipe.world import load

    shutil.copytree(Path(load.__file__).parent / "goals", "world")
    Path("world/cooking.toml").write_bytes(content)
    recipe.refuses("world", "goals", "--folder", "world", because=because)
    for folder in ("missing", "empty", "folder"):
        recipe.refuses("world", "goals", "--folder", folder, because=f"{folder}.* does not exist")


# Settings ------------------------------------------------------------------------------------------------------------

EXPERIMENT = """
title = "t"
[source]
type = "files"
narrations = ["narrations.jsonl"]
benchmarks = ["coin"]
[corpus.encoder]
name = "hash:64"
[base]
steps = 5
[sft]
epochs = 1
[grpo]
steps = 2
reward = { pool_size = 3 }
[sampling]
seed = 0
"""


@pytest.mark.parametrize(
    ("old", "new", "because"),
    [
        ("title", "titel", "bad: .*'titel'.*'title'"),
        ('title = "t"', "", "bad: key 'title' is missing"),
        ("narrations =", "narations =", "'source.narations'.*'narrations'"),
        ('"files"', '"fiels"', "key 'source.type': .*'world', 'files'"),
        ('type = "files"', "", "key 'source.type' is missing"),
        ("steps = 5", "stpes = 5", r"\[base\]: .*'stpes'.*'steps'"),
        ("[base]", "[[base]]", "key 'base': .*table"),
        ('title = "t"', "title = ", "bad: .*TOML.*line 2"),
        ('["narrations.jsonl"]', '["missing.jsonl"]', "missing.jsonl: .*does not exist"),
    ],
)
def test_experiments(recipe: Recipe, old: str, new: str, because: str) -> None:
    assert EXPERIMENT.count(old) >= 1
    (recipe.folder / "bad").write_text(EXPERIMENT.replace(old, new, 1))
    recipe.refuses("run", "bad", "--output", "new", because=because)
    assert not (recipe.folder / "new").exists()


TAKES_CONFIG = {
    "train base": ("train", "base", "CONFIG"),
    "train sft": ("train", "sft", "CONFIG"),
    "train grpo": ("train", "grpo", "CONFIG"),
    "run": ("run", "CONFIG", "--output", "new"),
    "reward score": ("reward", "score", "--corpus", "c", "--input", "prompts.jsonl", "--config", "CONFIG"),
}


@pytest.mark.parametrize("command", TAKES_CONFIG)
def test_config_files(recipe: Recipe, corpus: Path, command: str) -> None:
    (recipe.folder / "bad").write_text("a = ")
    (recipe.folder / "unknown").write_text("zzz = 1")
    cases = {
        "missing": "missing: .*does not exist",
        "empty/x": "empty/x: .*does not exist",
        "folder": "folder: this is a folder",
        "bad": "bad: not valid TOML",
        "no-utf8": "no-utf8: not valid TOML",
        "unknown": "unknown: .*'zzz'; known keys are",
    }
    for file, because in cases.items():
        words = [{"CONFIG": file, "c": str(corpus)}.get(word, word) for word in TAKES_CONFIG[command]]
        recipe.refuses(*words, because=because)


@pytest.mark.parametrize(
    ("stage", "values", "because"),
    [
        ("base", BASE | {"stpes": 5}, "'stpes'.*'steps'"),
        ("base", BASE | {"steps": "many"}, "key 'steps': .*integer"),
        ("base", {"output": "run"}, "key 'examples' is missing"),
        ("sft", TRAINED | {"lerning_rate": 1}, "'lerning_rate'.*'learning_rate'"),
        ("sft", TRAINED | {"batch_size": 4, "micro_batch": 3}, "micro_batch 3 .* batch_size.* 4"),
        ("sft", TRAINED | {"stage": "grpo"}, "key 'stage' is 'grpo'; run `recipe train bad.toml`"),
        ("", TRAINED | {"stage": "gpro"}, "key 'stage': give one of base, sft, grpo, best-of-n .given: 'gpro'"),
        ("", TRAINED | {"stage": "sft", "group_size": 4}, "'group_size'"),
        ("", TRAINED | {"corpus": "c"}, "the settings fit grpo and best-of-n; add the key 'stage'"),
        ("grpo", TRAINED | {"corpus": "c", "bta": 1}, "'bta'.*'beta'"),
        ("grpo", TRAINED | {"corpus": "c"}, "c: no corpus here"),
    ],
)
def test_training_settings(recipe: Recipe, stage: str, values: dict[str, Any], because: str) -> None:
    if stage == "grpo":
        pytest.importorskip("trl")
    write_toml(recipe.folder / "bad.toml", values)
    recipe.refuses("train", *([stage] if stage else []), "bad.toml", because=because)


# Models and runs -----------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_models(recipe: Recipe, tiny_model: Path) -> None:
    def model(name: str) -> Path:
        return Path(shutil.copytree(tiny_model, recipe.folder / name))

    (model("weightless") / "model.safetensors").unlink()
    weights = model("cut") / "model.safetensors"
    os.truncate(weights, weights.stat().st_size - 100)
    for file in model("speechless").glob("tokenizer*"):
        file.unlink()
    config = model("other") / "config.json"
    config.write_text(config.read_text().replace('"hidden_size": 32', '"hidden_size": 64'))
    (model("broken") / "config.json").write_text("{")
    model("run/model")
    cases = {
        "./missing": "missing: .*does not exist",
        "folder": "folder: .*no model.*config.json",
        "run": "run: .*no model.*run/model",
        "weightless": "'weightless'.*model.safetensors",
        "cut": "'cut'.*deserializing",
        "speechless": "'speechless': .*no complete model",
        "other": "'other'.*shapes",
        "broken": "broken/config.json: not valid JSON",
    }
    for name, because in cases.items():
        recipe.refuses("plan", "--model", name, "--goal", "g", because=because)
    shutil.copytree(tiny_model, recipe.folder / "good")
    too_long = " ".join(["w1"] * 5000)
    recipe.refuses("plan", "--model", "good", "--goal", too_long, because="context of 48")


@pytest.mark.thorough
def test_base_runs(recipe: Recipe) -> None:
    pytest.importorskip("trl")

    def refused(change: dict[str, Any], because: str) -> None:
        write_toml(recipe.folder / "changed.toml", BASE | change)
        recipe.refuses("train", "base", "changed.toml", because=because, leaves="run")

    refused({"examples": "missing"}, "missing: ")
    refused({"examples": "folder"}, "folder: ")
    refused({"examples": "empty"}, "empty: ")
    refused({"split": "tset"}, "'tset'")
    refused({"hidden_size": 33}, "hidden_size 33 .* 16")
    refused({"context": 8}, "context of 8 ")
    # None of these failures binds the folder to its settings.
    assert recipe("train", "base", "base.toml").code == 0
    refused({"steps": 3}, "steps was 2, is 3")
    (recipe.folder / "run" / "run.json").write_text("[]")
    refused({}, "run.json: ")
    (recipe.folder / "folder" / "model").mkdir()
    refused({"output": "folder"}, "folder: .*not empty")
    with locked(recipe.folder / "other"):
        refused({"output": "other"}, "other: another process")


def test_adapters(recipe: Recipe, tiny_model: Path) -> None:
    pytest.importorskip("trl")
    settings = TRAINED | {"model": str(tiny_model), "metrics": [], "epochs": 1}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"examples": "empty"}, "empty: "),
        ({"split": "tset"}, "'tset'"),
        ({"model": "folder"}, "there is no model in this folder|no complete model"),
    ]
    for change, because in cases:
        write_toml(recipe.folder / "bad.toml", settings | change)
        recipe.refuses("train", "sft", "bad.toml", because=because, leaves="run")
    nowhere = write_toml(recipe.folder / "bad.toml", settings)
    nowhere.write_text(nowhere.read_text() + 'lora = { target_modules = ["nope"] }\n')
    recipe.refuses("train", "sft", nowhere, because="'nope'", leaves="run")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("pan", "plan"),
        ("PLAN", "plan"),
        ("sevre", "serve"),
        ("rewards", "reward"),
        ("corpus biuld", "build"),
        ("train gpro c.toml", "grpo"),
        ("evaluate mach", "match"),
        ("reward coverge", "coverage"),
        ("board sumbit", "submit"),
    ],
)
def test_a_misspelt_command_is_answered_with_the_nearest(recipe: Recipe, words: str, meant: str) -> None:
    outcome = recipe(*words.split())
    assert outcome.code == 2
    assert f"{meant!r}" in outcome.err


@pytest.mark.parametrize(
    ("words", "file", "command"),
    [
        (("run",), "grpo-qwen2.5-3b", "recipe train"),
        (("run",), "board", "recipe board init"),
        (("run",), "models", "recipe reproduce --models"),
        (("run",), "scales/tiny", "recipe reproduce --scale"),
        (("train", "grpo"), "crossing", "recipe run"),
        (("train", "check"), "crossing", "recipe run"),
        (("reproduce", "main", "--models"), "crossing", "recipe run"),
        (("board", "init"), "crossing", "recipe run"),
    ],
)
def test_a_settings_file_of_another_command_is_told_whose_it_is(
    recipe: Recipe, words: tuple[str, ...], file: str, command: str
) -> None:
    outcome = recipe(*words, CONFIGS / f"{file}.toml")
    assert outcome.code == 1
    assert f"is for {command}." in outcome.err


def test_reports(recipe: Recipe) -> None:
    pytest.importorskip("matplotlib")
    recipe.refuses("report", "missing", because="missing: .*does not exist")
    outcome = recipe("report", "empty")
    assert outcome.code == 2
    assert "name the page to write" in outcome.err
    report = recipe.folder / "folder" / "report.json"
    for content, because in (
        ("{", "not valid JSON"),
        ("[]", "no JSON object; recreate"),
        ("{}", "title"),
        ('{"title": 1}', "title"),
    ):
        report.write_text(content)
        recipe.refuses("report", "folder", because=because)
    outcome = recipe("report", "folder", "--figure", "key.tpng")
    assert outcome.code == 2
    assert "neither .png nor .svg" in outcome.err


# What the operating system refuses -----------------------------------------------------------------------------------

WRITES = {
    "corpus build": ("corpus", "build", "narrations.jsonl", "--output", "TARGET", "--encoder", "hash:64"),
    "data prepare": ("data", "prepare", "--procedures", "procedures.jsonl", "--output", "TARGET"),
    "world narrations": ("world", "narrations", "--count", "2", "--output", "TARGET"),
    "world examples": ("world", "examples", "--count", "2", "--output", "TARGET"),
    "reward score": ("reward", "score", "--corpus", "corpus", "--input", "prompts.jsonl", "--output", "TARGET"),
    "evaluate": ("evaluate", "validity", "plans.jsonl", "--examples", "examples.jsonl", "--output", "TARGET"),
    "plan": ("plan", "--model", "no-model", "--examples", "examples.jsonl", "--output", "TARGET"),
    "demo": ("demo", "--quick", "--output", "TARGET"),
}


@pytest.mark.parametrize("command", WRITES)
def test_outputs_below_a_file(recipe: Recipe, corpus: Path, command: str) -> None:
    words = ["empty/new" if word == "TARGET" else word for word in WRITES[command]]
    recipe.refuses(*words, because="empty(/new)?: (not a directory|file exists); a file is where a folder is needed")


@pytest.mark.parametrize("command", [name for name in WRITES if name not in ("corpus build", "demo")])
def test_a_folder_where_a_file_is_written(recipe: Recipe, corpus: Path, command: str) -> None:
    words = ["folder" if word == "TARGET" else word for word in WRITES[command]]
    recipe.refuses(*words, because="folder: (this is a folder|is a directory); give the path of a file")


PLACES = ("nowhere/new", "loop/new", "/proc/new", "x" * 300, "/dev/null/new")


@pytest.mark.parametrize("command", ["corpus build", "world narrations"])
@pytest.mark.parametrize("place", PLACES)
def test_outputs_where_nothing_can_be_written(recipe: Recipe, corpus: Path, command: str, place: str) -> None:
    """A link to nowhere below a file, a link to itself, a file system without files, a name that is too long."""
    (recipe.folder / "nowhere").symlink_to(recipe.folder / "empty" / "absent")
    (recipe.folder / "loop").symlink_to("loop")
    words = [place if word == "TARGET" else word for word in WRITES[command]]
    recipe.refuses(*words, because="|".join(map(re.escape, place.strip("/").split("/"))))


@pytest.mark.parametrize(
    ("code", "because"),
    [
        (errno.EACCES, "new: permission denied; choose another path"),
        (errno.EROFS, "new: read-only file system; choose another path"),
        (errno.ENOSPC, "new: no space left on device; free some space"),
    ],
)
def test_what_the_disk_refuses(recipe: Recipe, monkeypatch: pytest.MonkeyPatch, code: int, because: str) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("os.fsync", refuse)
    recipe.refuses("world", "narrations", "--count", "2", "--output", "new", because=because)


# Missing packages ----------------------------------------------------------------------------------------------------

WITHOUT = f"""
import importlib.machinery, sys
absent, found = sys.argv.pop(1), importlib.machinery.PathFinder.find_spec.__func__
def find_spec(cls, name, path=None, target=None):
    return None if name.partition(".")[0] == absent else found(cls, name, path, target)
importlib.machinery.PathFinder.find_spec = classmethod(find_spec)
{MAIN}
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("absent", "extra", "words"),
    [
        ("numba", "cpu", ("reward", "score", "--corpus", "corpus", "--input", "prompts.jsonl")),
        (
            "sentence_transformers",
            "encoder",
            ("corpus", "build", "narrations.jsonl", "--output", "new", "--encoder", "a/b"),
        ),
        (
            "sentence_transformers",
            "offline",
            ("corpus", "build", "narrations.jsonl", "--output", "new", "--encoder", "minilm"),
        ),
        ("torch", "encoder", ("plan", "--model", "m", "--goal", "g")),
        ("torch", "train,offline", ("demo", "--output", "new")),
        ("trl", "train", ("train", "base", "base.toml")),
        ("wandb", "wandb", ("run", "experiment.toml", "--output", "new")),
        ("av", "video", ("plan", "--model", "m", "--goal", "g", "--video", "narrations.jsonl")),
        ("openai", "llm", ("plan", "--model", "m", "--goal", "g", "--endpoint", "http://localhost:1/v1")),
        ("jinja2", "report", ("demo", "--output", "new")),
    ],
)
def test_missing_packages(recipe: Recipe, corpus: Path, absent: str, extra: str, words: tuple[str, ...]) -> None:
    (recipe.folder / "experiment.toml").write_text(EXPERIMENT.replace("epochs = 1", 'metrics = ["wandb"]'))
    before = recipe.files("-")
    done = subprocess.run([sys.executable, "-c", WITHOUT, absent, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    *progress, sentence = done.stderr.splitlines()
    command = re.search(r"Packages for .* are not installed; run: \S+ .*install .*\[(.*)\]'\.$", sentence)
    assert command is not None
    assert command[1] == extra
    assert all(PROGRESS.fullmatch(line) for line in progress)
    assert recipe.files("-") == before


# Usage ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("corpus",),
        ("nosuch",),
        ("--nosuch",),
        ("corpus", "nosuch"),
        ("corpus", "build"),
        ("corpus", "search", "c"),
        ("corpus", "search", "c", "step", "-k", "0"),
        ("data", "prepare", "--output", "x"),
        ("world", "narrations"),
        ("world", "narrations", "--output", "x", "--count", "0"),
        ("train", "base"),
        ("plan",),
        ("plan", "--model", "m", "--temperature", "-1"),
        ("reward", "score", "--corpus", "c", "--pool", "nosuch"),
        ("evaluate", "validity"),
        ("report",),
        ("demo", "--seed", "x"),
        ("run",),
    ],
)
def test_wrong_usage(recipe: Recipe, words: tuple[str, ...]) -> None:
    before = recipe.files("-")
    outcome = recipe(*words)
    assert outcome.code == 2
    assert "Usage: recipe" in outcome.out + outcome.err
    assert "Traceback" not in outcome.err
    assert recipe.files("-") == before


@pytest.mark.parametrize(
    "words",
    [
        ("reward", "explain", "--corpus", "corpus", "--goal", "tea", "--continuation", "a", "--continuation", "b"),
        ("reward", "coverage", "--corpus", "corpus", "--tasks=examples.jsonl", "--tasks", "procedures.jsonl"),
        ("plan", "--model", "a", "--goal", "tea", "--goal=tea"),
        ("evaluate", "match", "plans.jsonl", "--examples", "a", "--examples", "a"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_no_value_of_an_option_is_dropped_in_silence(recipe: Recipe, words: tuple[str, ...]) -> None:
    outcome = recipe(*words)
    assert outcome.code == 2
    assert re.search(r"--\w+ .* 2 times", outcome.err)
    assert not (recipe.folder / "newer").exists()


# Ctrl-C and kill -9 --------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_an_interrupted_base_run_goes_on(recipe: Recipe) -> None:
    pytest.importorskip("trl")
    write_toml(recipe.folder / "long.toml", BASE | {"steps": 100_000})
    process = start(("train", "base", "long.toml"), recipe.folder / "run" / "run.json")
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=300)
    assert (process.returncode, output) == (130, "")
    assert errors.splitlines()[-1] == "interrupted: finished work is kept; the same command resumes from there."
    assert "Traceback" not in errors
    assert [path.name for path in (recipe.folder / "run").iterdir()] == ["run.json"]
    assert recipe("train", "base", "base.toml").code == 0


INTERRUPTED = """
import os, signal, time
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(1)
except KeyboardInterrupt:
    raise ModuleNotFoundError("Could not import module") from None
"""


def test_an_error_of_an_interrupted_library_is_an_interruption(
    recipe: Recipe, corpus: Path, own_module: Callable[[str, str], str]
) -> None:
    score = ("reward", "score", "--corpus", corpus, "--input", "prompts.jsonl")
    outcome = recipe(*score, "--verifier", f"{own_module('own_interrupted', INTERRUPTED)}:reward")
    assert outcome == (130, "", "interrupted: finished work is kept; the same command resumes from there.\n")
