"""Every command that asks a model has the same flags for it, made from the settings class."""

from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from recipe.cli import app
from recipe.cli.flags import with_flags
from recipe.config import FrameConfig, ModelConfig, SamplingConfig
from recipe.config.base import Flag

COMMANDS = (("plan",), ("perceive",), ("vpa", "plan"), ("evaluate", "judge"), ("evaluate", "diversity"))
FIELDS = [name for name, field in ModelConfig.model_fields.items() if Flag() not in field.metadata]


def command(words: tuple[str, ...]) -> Any:
    found: Any = get_command(app)
    for word in words:
        found = found.commands[word]
    return found


def model_flags(words: tuple[str, ...]) -> dict[str, tuple[object, ...]]:
    """Names, type, bounds, default, help and panel of each flag of the model's settings."""
    context = typer.Context(command(words), info_name="recipe")
    flags = {}
    for parameter in command(words).params:
        if parameter.name in FIELDS:
            names, text = parameter.get_help_record(context)
            # A judge need not be a model, and has a second name.
            names, text = names.replace(",--judge", "").replace(", --judge", ""), text.replace("[required]", "")
            flags[parameter.name] = (names, text.strip(), parameter.default, parameter.rich_help_panel)
    return flags


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_commands_that_ask_a_model_have_the_same_flags(words: tuple[str, ...]) -> None:
    flags = model_flags(words)
    assert list(flags) == FIELDS
    assert flags == model_flags(COMMANDS[0])
    assert all(text for _, text, *_ in flags.values())


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (
            ("plan",),
            "--model --endpoint --key-variable --fps --max-frames --max-pixels --temperature --seed --batch-size",
        ),
        (("perceive",), "--model --revision --device --cache --no-goal --count --send --token-limit --no-seed --tries"),
        (
            ("vpa", "plan"),
            "--model --method --beam --few-shot --without --max-calls --max-tokens-total --candidates",
        ),
        (("evaluate", "judge"), "--judge --repeats --reasks --max-calls --structured --price-in --price-out --timeout"),
        (("evaluate", "diversity"), "--judge --reasks --temperature --max-tokens --concurrency --revision --cache"),
    ],
)
def test_the_names_of_earlier_versions_work(words: tuple[str, ...], names: str) -> None:
    known = {name for parameter in command(words).params for name in (*parameter.opts, *parameter.secondary_opts)}
    assert {*names.split()} <= known


def run(*words: str) -> Any:
    """What a command gets."""
    got: list[Any] = []
    app = typer.Typer()

    @app.command()
    @with_flags(SamplingConfig, "sampling", "Sampling", defaults={"max_tokens": 7})
    @with_flags(FrameConfig, "frames", "Frames", only=("fps", "max_pixels"))
    @with_flags(ModelConfig, "model", "Model")
    def ask(
        name: Annotated[str, typer.Argument()] = "x",
        *,
        model: ModelConfig,
        frames: FrameConfig,
        sampling: SamplingConfig,
    ) -> None:
        got.extend((name, model, frames, sampling))

    result = CliRunner().invoke(app, list(words))
    return got or result


def test_settings_are_made_of_the_flags_that_were_given() -> None:
    words = ("y", "--model", "m", "--no-seed", "--send", "video", "--cache", "c", "--fps", "0.5", "--replay")
    name, model, frames, sampling = run(*words)
    assert name == "y"
    assert model == ModelConfig(model="m", send_seed=False, clips="video", cache=Path("c"), replay=True)
    assert frames.model_fields_set == {"fps"}  # a model keeps its own bounds of the area
    assert sampling == SamplingConfig(max_tokens=7)


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        ((), "--model"),
        (("--model", "m", "--tries", "0"), "--tries"),
        (("--model", "m", "--jpeg-quality", "99"), "--jpeg-quality"),
        (("--model", "m", "--timeout", "0"), "--timeout"),
        (("--model", "m", "--structured", "some"), "--structured"),
    ],
)
def test_wrong_flags_are_wrong_usage(words: tuple[str, ...], flag: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert flag in result.output


@pytest.mark.parametrize("words", [(), ("plan",), ("corpus", "build"), ("reward", "audit"), ("evaluate", "judge")])
def test_help_wraps_at_80_columns_and_cuts_no_word(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = CliRunner().invoke(app, [*words, "--help"]).output
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert "..." not in text.partition("Options:")[2].replace("ARGS...", "")
