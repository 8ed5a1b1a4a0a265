"""Each removed name is answered by its sentence, and is really gone."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recipe import config
from recipe.cli import app
from recipe.config import GRPOConfig, JudgeConfig, RewardConfig, load_config
from recipe.config.base import check_table
from recipe.config.removed import REMOVED, removed_option
from recipe.errors import ConfigError
from recipe_apps.cli.serve import PageSettings
from recipe_studies.experiments.settings import load_experiment

COMMANDS = sorted(row for row in REMOVED if row.startswith("recipe "))
SETTINGS = sorted(REMOVED.keys() - {*COMMANDS})


@pytest.mark.parametrize("row", COMMANDS)
def test_a_removed_command_or_option_is_wrong_usage_with_its_sentence(row: str) -> None:
    result = CliRunner().invoke(app, shlex.split(row)[1:], prog_name="recipe")
    said = f"{result.exception}" if isinstance(result.exception, ConfigError) else result.stderr
    assert result.exit_code in (1, 2)
    assert " ".join(REMOVED[row].split()) in " ".join(said.split())


def test_an_option_of_another_command_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REMOVED, "recipe fry --fat lard", "it burnt; use oil")  # type: ignore[misc]
    assert removed_option("recipe fry", ["--goal", "lard", "--fat", "oil"]) is None
    assert removed_option("recipe bake", ["--fat", "lard"]) is None
    for words in (["--fat", "lard"], ["--goal", "tea", "--fat=lard"]):
        assert removed_option("recipe fry", words) == "`recipe fry --fat lard` was removed: it burnt; use oil."


@pytest.mark.parametrize("row", SETTINGS)
def test_a_removed_setting_is_no_key_of_its_table(row: str, tmp_path: Path) -> None:
    table, _, rest = row.partition(".")
    key, _, value = rest.partition("=")
    assert issubclass(PageSettings, config.Settings), "its rows need it to be loaded"
    kind = next(kind for kind in settings_of(config.Settings) if kind.__name__ == table)
    field = kind.model_fields.get(key)
    assert f"'{value}'" not in repr(field) if value else field is None
    (tmp_path / "c.toml").write_text(f'{key} = "{value}"\n')
    given = {key: [value] if "tuple" in repr(field) else value}
    with pytest.raises(ConfigError, match="was removed: ") as raised:
        load_experiment(tmp_path / "c.toml") if key == "kind" else check_table(given, kind, "c.toml")
    assert str(raised.value).endswith(f"was removed: {REMOVED[row]}.")


def settings_of(base: type[config.Settings]) -> Iterator[type[config.Settings]]:
    for kind in base.__subclasses__():
        yield kind
        yield from settings_of(kind)


def test_a_key_that_is_fixed_may_be_given_with_its_value_only() -> None:
    fixed = [(kind, key, value) for kind in settings_of(config.Settings) for key, value in kind.fixed.items()]
    assert len(fixed) > 12
    for kind, key, value in fixed:
        assert key not in kind.model_fields
        check_table({key: value}, kind, "c.toml")
        with pytest.raises(ConfigError, match=f"{key} was removed: "):
            check_table({key: "another"}, kind, "c.toml")


def test_records_hold_what_is_fixed_so_that_ids_stay() -> None:
    judge = JudgeConfig(repeats=2)
    record = judge.model_dump(mode="json")
    assert (record["max_steps"], record["max_step_characters"], record["max_characters"]) == (100, 500, 12_000)
    assert JudgeConfig.model_validate(record) == judge
    assert judge.model_dump(include={"seed", "max_steps"}) == {"seed": 0, "max_steps": 100}
    assert record.keys() - judge.model_dump(exclude={"max_steps", "seed"}).keys() == {"max_steps", "seed"}
    assert judge.model_dump(exclude_unset=True) == judge.model_dump(exclude_defaults=True) == {"repeats": 2}
    [whole, less] = (RewardConfig().model_dump(exclude=out) for out in (None, {"grounded": {"order": True}}))
    assert (whole["epsilon"], whole["grounded"].pop("order")) == (1e-6, 1.0)
    assert whole == less


def test_a_file_with_a_removed_key_or_value_names_what_to_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "grpo.toml"
    monkeypatch.setitem(REMOVED, "GroundedConfig.colour", "it gained nothing; leave it out")  # type: ignore[misc]
    monkeypatch.setitem(REMOVED, "GRPOConfig.loss=hinge", "it gained nothing; use grpo")  # type: ignore[misc]
    start = 'model = "m"\nexamples = "e"\noutput = "o"\ncorpus = "c"\n'
    for end, shown in (
        ("[reward.grounded]\ncolour = 3\n", "reward.grounded.colour was removed: it gained nothing; leave it out."),
        ('loss = "hinge"\n', "loss = 'hinge' was removed: it gained nothing; use grpo."),
        ("[lora]\ncolour = 3\n", "unknown key 'lora.colour'; known keys are "),
    ):
        path.write_text(start + end)
        with pytest.raises(ConfigError) as raised:
            load_config(path, GRPOConfig)
        assert str(raised.value).startswith(f"{path}: {shown}")
    path.write_text(start)
    with pytest.raises(ConfigError, match=r"--set .*colour=3: .*was removed"):
        load_config(path, GRPOConfig, ["reward.grounded.colour=3", "lora.rank=4"])
