"""The mean of models: every weight, what is copied, and what is refused."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from recipe.artifacts import read_json
from recipe.cli import app
from recipe.errors import ComputeError, InputError
from recipe.training.average import average_models
from recipe.training.policy import load_policy

WEIGHTS = "model.safetensors"


def altered(model: Path, target: Path, change: Callable[[torch.Tensor], torch.Tensor]) -> Path:
    """A copy of a model with other weights."""
    shutil.copytree(model, target)
    weights = {name: change(weight).contiguous() for name, weight in load_file(model / WEIGHTS).items()}
    save_file(weights, target / WEIGHTS, metadata={"format": "pt"})
    return target


def split(model: Path) -> None:
    """Put the weights of a model into two files, as large ones come."""
    weights = load_file(model / WEIGHTS)
    names = sorted(weights)
    half = len(names) // 2
    parts = {f"model-0000{part}-of-00002.safetensors": own for part, own in ((1, names[:half]), (2, names[half:]))}
    for file, own in parts.items():
        save_file({name: weights[name] for name in own}, model / file, metadata={"format": "pt"})
    places = {name: file for file, own in parts.items() for name in own}
    index = {"metadata": {"total_size": 0}, "weight_map": places}
    (model / f"{WEIGHTS}.index.json").write_text(json.dumps(index))
    (model / WEIGHTS).unlink()


@pytest.fixture
def models(base_model: Path, tmp_path: Path) -> list[Path]:
    return [altered(base_model, tmp_path / str(factor), lambda w, by=factor: w * by) for factor in (1, 2, 6)]


@pytest.mark.parametrize("shards", [False, True])
def test_every_weight_is_the_mean_and_the_model_loads(
    models: list[Path], base_model: Path, tmp_path: Path, shards: bool
) -> None:
    first = load_file(base_model / WEIGHTS)
    if shards:
        split(models[0])
        split(models[2])
    card = average_models(models, tmp_path / "mean")
    loaded = load_policy(str(tmp_path / "mean")).model.state_dict()
    for name, weight in first.items():
        torch.testing.assert_close(loaded[name], 3 * weight)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (tmp_path / "mean" / name).read_bytes() == (models[0] / name).read_bytes()
    assert [len(one["weights"].split()) for one in card["models"]] == ([2, 1, 2] if shards else [1, 1, 1])
    assert read_json(tmp_path / "mean/card.json") == card
    assert len({one["weights"] for one in card["models"]}) == 3


def test_sums_are_in_float32_and_weights_keep_their_kind(base_model: Path, tmp_path: Path) -> None:
    """In bfloat16, 1 and 1 + 2^-7 and 1 + 2^-6 have the mean 1 + 2^-7; a sum in bfloat16 loses it."""
    steps = (0.0, 2.0**-7, 2.0**-6)
    models = [
        altered(base_model, tmp_path / str(place), lambda w, to=step: torch.full_like(w, 1 + to, dtype=torch.bfloat16))
        for place, step in enumerate(steps)
    ]
    average_models(models, tmp_path / "mean")
    for weight in load_file(tmp_path / "mean" / WEIGHTS).values():
        assert weight.dtype == torch.bfloat16
        assert (weight.float() == 1 + 2.0**-7).all()


def test_what_is_no_mean_is_refused_and_nothing_is_written(
    models: list[Path], base_model: Path, tmp_path: Path
) -> None:
    first, second, _ = models

    def other(name: str, file: str, change: Callable[[Path], object]) -> Path:
        folder = tmp_path / name
        shutil.copytree(second, folder)
        change(folder / file)
        return folder

    def reshaped(file: Path) -> None:
        weights: Mapping[str, torch.Tensor] = load_file(file)
        name = next(iter(weights))
        save_file({**weights, name: weights[name][:1].clone()}, file)

    cut = other("cut", WEIGHTS, lambda file: file.write_bytes(file.read_bytes()[:1000]))
    words = other("words", "tokenizer.json", lambda file: file.write_text("{}"))
    shapes = other("shapes", WEIGHTS, reshaped)
    empty = other("empty", WEIGHTS, lambda file: file.unlink())
    for folders in ([first], [first, first], [first, cut], [first, words], [first, shapes], [first, empty]):
        with pytest.raises(InputError):
            average_models(folders, tmp_path / "mean")
    endless = altered(base_model, tmp_path / "endless", lambda w: w / 0)
    with pytest.raises(ComputeError):
        average_models([first, endless], tmp_path / "mean")
    assert not list(tmp_path.glob("*mean*"))
    kept = {file.name: file.read_bytes() for file in second.iterdir()}
    with pytest.raises(InputError):  # the output is another model
        average_models([first, models[2]], second)
    assert {file.name: file.read_bytes() for file in second.iterdir()} == kept
    average_models(models, tmp_path / "mean")
    with pytest.raises(InputError):  # the output is one of the models
        average_models([first, tmp_path / "mean"], tmp_path / "mean")


def test_the_command_takes_runs_and_writes_a_mean_again(models: list[Path], tmp_path: Path) -> None:
    runs = [tmp_path / f"run-{place}" for place in range(2)]
    for run, model in zip(runs, models, strict=False):
        run.mkdir()
        model.rename(run / "model")
    target = tmp_path / "mean"
    for _ in range(2):  # a mean may be written again
        result = CliRunner().invoke(app, ["train", "average", *map(str, runs), "--output", str(target)])
        assert result.exit_code == 0, result.output
    assert read_json(target / "card.json")["stage"] == "average"
    refused = CliRunner().invoke(app, ["train", "average", str(runs[0]), "--output", str(tmp_path / "one")])
    assert isinstance(refused.exception, InputError)
    assert not (tmp_path / "one").exists()
