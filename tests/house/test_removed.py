"""Each removed name is answered by its sentence, and is really gone."""

import inspect
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recipe import config
from recipe.cli import app
from recipe.config import GRPOConfig, load_config
from recipe.config.removed import REMOVED, removed_option, removed_setting
from recipe.errors import ConfigError

COMMANDS = sorted(row for row in REMOVED if row.startswith("recipe "))
SETTINGS = sorted(REMOVED.keys() - {*COMMANDS})


@pytest.mark.parametrize("row", COMMANDS)
def test_a_removed_command_or_option_is_wrong_usage_with_its_sentence(row: str) -> None:
    result = CliRunner().invoke(app, shlex.split(row)[1:], prog_name="recipe")
    assert result.exit_code == 2
    assert " ".join(REMOVED[row].split()) in " ".join(result.stderr.split())


def test_an_option_of_another_command_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REMOVED, "recipe plan --search beam", "it lost; use recombine")  # type: ignore[misc]
    assert removed_option("recipe plan", ["--goal", "beam", "--search", "recombine"]) is None
    assert removed_option("recipe serve", ["--search", "beam"]) is None
    for words in (["--search", "beam"], ["--goal", "tea", "--search=beam"]):
        assert (
            removed_option("recipe plan", words) == "`recipe plan --search beam` was removed: it lost; use recombine."
        )


@pytest.mark.parametrize("row", SETTINGS)
def test_a_removed_setting_is_no_key_of_any_table(row: str) -> None:
    kinds = [kind for kind in vars(config).values() if inspect.isclass(kind) and issubclass(kind, config.Settings)]
    key, _, value = row.partition("=")
    name = key.rpartition(".")[2]
    if value:
        assert not any(f"'{value}'" in repr(kind.model_fields.get(name)) for kind in kinds)
    else:
        assert [kind.__name__ for kind in kinds if name in kind.model_fields] == []
    assert f"was removed: {REMOVED[row]}" in (removed_setting(f"a.{key}", value) or "")
    assert removed_setting(f"{key}s", "another") is None


def test_a_file_with_a_removed_key_or_value_names_what_to_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "grpo.toml"
    monkeypatch.setitem(REMOVED, "grounded.colour", "it gained nothing; leave it out")  # type: ignore[misc]
    monkeypatch.setitem(REMOVED, "loss=hinge", "it gained nothing; use grpo")  # type: ignore[misc]
    start = 'model = "m"\nexamples = "e"\noutput = "o"\ncorpus = "c"\n'
    for end, shown in (
        ("[reward.grounded]\ncolour = 3\n", "'reward.grounded.colour' was removed: it gained nothing; leave it out."),
        ('loss = "hinge"\n', "'loss=hinge' was removed: it gained nothing; use grpo."),
    ):
        path.write_text(start + end)
        with pytest.raises(ConfigError) as raised:
            load_config(path, GRPOConfig)
        assert str(raised.value) == f"{path}: {shown}"
    with pytest.raises(ConfigError, match=r"--set .*colour=3: .*was removed"):
        load_config(path, GRPOConfig, ["reward.grounded.colour=3", "loss=grpo"])
