"""Settings of commands: the same options of a model everywhere, every key by `--set` and `--settings`, and help."""

import json
import re
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from tests.cli.conftest import PROGRESS, TRAINED, Recipe, write_toml
from typer.main import get_command
from typer.testing import CliRunner

from recipe.cli import app
from recipe.cli.console import CommandGroup
from recipe.cli.flags import SettingsTable, with_settings
from recipe.config import FrameConfig, ModelConfig, PhiConfig, SamplingConfig
from recipe.errors import ConfigError

FLAGS = {"revision", "engine", "device", "endpoint", "key_variable", "concurrency", "cache", "replay", "max_calls"}
ASKING = (("plan",), ("perceive",), ("vpa", "plan"), ("evaluate", "judge"), ("evaluate", "diversity"), ("serve",))


def command(words: tuple[str, ...]) -> Any:
    found, context = get_command(app), typer.Context(get_command(app), info_name="recipe")
    for word in words:
        found = found.get_command(context, word)  # type: ignore[attr-defined]
        context = typer.Context(found, parent=context, info_name=word)
    return found


def commands(group: Any, path: tuple[str, ...], parent: Any = None) -> list[tuple[tuple[str, ...], Any]]:
    """Every command below a group, with the words that name it."""
    context = typer.Context(group, parent=parent, info_name=path[-1] if path else "recipe")
    if not hasattr(group, "list_commands"):
        return [(path, group)]
    names = group.list_commands(context)
    return [pair for name in names for pair in commands(group.get_command(context, name), (*path, name), context)]


def test_commands_that_ask_a_model_have_the_same_options() -> None:
    seen = []
    for words in ASKING:
        asking = command(words)
        context = typer.Context(asking, info_name="recipe")
        options = {one.name: one.get_help_record(context) for one in asking.params if one.name.startswith("model_")}
        names, _ = options.pop("model_model")
        assert names.startswith("--model")
        # Of `recipe plan` the others are settings.
        assert {name.removeprefix("model_") for name in options} == ({"endpoint"} if words == ("plan",) else FLAGS)
        assert all(about for _, about in options.values())
        seen.append(options)
    assert all(options.items() <= seen[1].items() for options in seen)


def run(*words: str) -> Any:
    """What a command gets, or how it ends."""
    got: list[Any] = []
    app = CommandGroup()

    @app.command()
    @with_settings(
        model=SettingsTable(ModelConfig, ("model", "max_calls")),
        frames=SettingsTable(FrameConfig, ("fps",)),
        sampling=SettingsTable(SamplingConfig, defaults={"max_tokens": 7}),
        phi=SettingsTable(PhiConfig, defaults={"frames": {"max_pixels": 9}}),
    )
    def ask(
        name: Annotated[str, typer.Argument()] = "x",
        *,
        model: ModelConfig,
        frames: FrameConfig,
        sampling: SamplingConfig,
        phi: PhiConfig,
    ) -> None:
        got.extend((name, model, frames, sampling, phi))

    result = CliRunner().invoke(app, ["ask", *words])
    if isinstance(result.exception, ConfigError):
        return str(result.exception)
    return got or result


def test_an_option_goes_before_set_and_set_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text('[model]\nmodel = "f"\ntries = 3\ntimeout = 5.0\nconcurrency = 2\n[frames]\ncount = 8\n')
    words = ("y", "--settings", str(file), "--model", "m", "--set", "model.timeout=9", "--set", "model.model=s")
    name, model, frames, sampling, phi = run(*words, "--fps", "0.5", "--set", "phi.frames.fps=1")
    assert name == "y"
    assert model == ModelConfig(model="m", tries=3, timeout=9.0, concurrency=2)
    assert model.model_fields_set == {"model", "tries", "timeout", "concurrency"}
    assert frames == FrameConfig(fps=0.5, count=8)
    assert sampling == SamplingConfig(max_tokens=7)
    assert phi.frames == FrameConfig(fps=1, max_pixels=9)
    assert run("--settings", str(file))[1].model == "f"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--set", "model.trys=3"), ("model.trys", "'tries'")),
        (("--set", "modle.tries=3"), ("modle", "'model'")),
        (("--set", "model.tries=0"), ("--set model.tries=0", "greater than 0")),
        (("--set", "model.extra_body=x"), ("model.extra_body", "JSON object")),
        (("--set", "model=3"), ("--set model=3", "key 'model'")),
        (("--settings", "absent.toml"), ("absent.toml", "does not exist")),
    ],
)
def test_a_wrong_key_or_value_is_named_with_the_remedy(words: tuple[str, ...], named: tuple[str, ...]) -> None:
    sentence = run(*words, *(() if "model=3" in words else ("--model", "m")))
    assert all(part in sentence for part in named), sentence


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        ((), "--model"),
        (("--model", "m", "--max-calls", "-1"), "--max-calls"),
        (("--tries", "2"), "--set model.tries=2"),
        (("--tries",), "--set model.tries=VALUE"),
        (("--tries", "--fps", "2"), "--set model.tries=VALUE"),
        (("--model.tries=2",), "--set model.tries=2"),
        (("--goal", "x"), "--set phi.goal=true"),
        (("--max-pixels=3",), "--set model.max_pixels=3 or --set frames.max_pixels=3"),
        (("--imitate", "a b"), "--set 'sampling.imitate=a b'"),
        (("--triess", "2"), "--set model.tries=2"),
        (("--fpss", "2"), "--fps"),
        (("--nothing-alike", "2"), "No such option"),
    ],
)
def test_wrong_options_are_wrong_usage(words: tuple[str, ...], flag: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert flag in " ".join(result.output.replace("│", " ").split())


@pytest.mark.thorough
def test_every_command_with_settings_answers_an_option_that_is_a_key() -> None:
    answered = dict[str, int]()
    for words, found in commands(get_command(app), ()):
        options = {flag for parameter in found.params for flag in parameter.opts}
        if "--set" not in options:
            continue
        keys = found.callback.setting_keys()
        for key, value in list(keys.items())[:: max(len(keys) // 6, 1)]:
            option = f"--{key.rpartition('.')[2].replace('_', '-')}"
            if option in options:
                continue
            result = CliRunner().invoke(app, [*words, option, "7"], env={"COLUMNS": "500"})
            assert result.exit_code == 2, words
            ways = re.findall(r"--set '?([\w.]+)=", result.output)
            assert ways, (words, option, result.output)
            assert {way.rpartition(".")[2] for way in ways} == {key.rpartition(".")[2]}
            assert {*ways} <= keys.keys()
            answered[" ".join(words)] = answered.get(" ".join(words), 0) + 1
            assert value in ("VALUE", "true")
    assert {"plan", "serve", "train grpo", "train check", "run", "reproduce", "board rescore"} <= answered.keys()


@pytest.mark.parametrize("words", [(), ("plan",), ("corpus", "build"), ("reward", "audit"), ("evaluate", "judge")])
def test_help_wraps_at_80_columns_and_cuts_no_word(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = CliRunner().invoke(app, [*words, "--help"]).output
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert "..." not in text.partition("Options:")[2].replace("ARGS...", "")


def test_every_command_has_help() -> None:
    every = commands(get_command(app), ())
    assert len(every) > 60
    for words, found in every:
        text = found.get_help(typer.Context(found, info_name=words[-1]))
        assert text.startswith(f"Usage: {words[-1]} "), words
        assert f"Example: recipe {' '.join(words)} " in f"{' '.join(text.split())} ", words
        flags = [flag for parameter in found.params for flag in parameter.opts]
        assert len(flags) == len({*flags}), words


MATCH = "evaluate match plans.jsonl --examples examples.jsonl --encoder hash:64"
JSON = (
    "corpus build narrations.jsonl --output corpus --encoder hash:64",
    "corpus info corpus",
    "corpus verify corpus",
    "corpus search corpus boil",
    "data list",
    "data doctor folder",
    "data prepare --procedures procedures.jsonl --output prepared.jsonl",
    "reward score --corpus corpus --input prompts.jsonl",
    "reward explain --corpus corpus --goal g --history boil --continuation pour",
    "train sft sft.toml --dry-run",
    f"{MATCH} --output m.json",
    f"{MATCH} --output n.json --system other",
    "evaluate validity plans.jsonl --examples examples.jsonl",
    "evaluate judge plans.jsonl --examples examples.jsonl --judge proxy --encoder hash:64 --output j.json",
    "evaluate compare m.json n.json",
    "report m.json j.json --output page.html",
    "train check base.toml",
)
"""Commands that can be run on small files, in an order in which each finds what it reads."""


@pytest.mark.thorough
def test_json_is_alone_on_standard_output_and_parses(recipe: Recipe) -> None:
    write_toml(recipe.folder / "sft.toml", TRAINED)
    for line in JSON:
        outcome = recipe(*line.split(), "--json")
        assert outcome.code in (0, 1), (line, outcome.err)
        assert json.loads(outcome.out or "null") is not None, (line, outcome.err)
        assert all(PROGRESS.fullmatch(told) for told in outcome.err.splitlines()), outcome.err
        text = recipe(*line.split())
        assert text.code == outcome.code, (line, text.err)
        assert text.out.strip(), line
