"""Cards say from what a model was made, and name no place of this machine."""

from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from recipe.artifacts import file_sha256, read_json, write_json
from recipe.config import BaseModelConfig, GRPOConfig, SFTConfig
from recipe.training.policy import load_policy
from recipe.training.runs import open_run
from recipe.training.sft import train_sft


@pytest.fixture(scope="module")
def tuned(base_model: Path, examples_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of an SFT run of two steps."""
    output = tmp_path_factory.mktemp("tuned") / "run"
    return train_sft(
        SFTConfig(
            model=str(base_model), examples=examples_file, output=output,
            epochs=1, batch_size=6, save_every=1, metrics=(), seed=3,
        )
    )  # fmt: skip


def test_model_and_checkpoints_hold_a_card(
    tuned: Path, base_model: Path, examples_file: Path, base_config: BaseModelConfig
) -> None:
    for folder, step in ((tuned, 2), (tuned.parent / "checkpoints/checkpoint-1", 1)):
        card = read_json(folder / "card.json")
        assert (card["stage"], card["seed"], card["step"], card["processes"]) == ("sft", 3, step, 1)
        assert card["inputs"]["examples"] == file_sha256(examples_file)
        assert card["config"]["learning_rate"] == 2e-4
        assert card["figures"]["step"] == step
        assert card["figures"]["loss"] > 0
        assert card["base_model"]["weights"] == file_sha256(base_model / "model.safetensors")
        assert card["base_model"]["stage"] == "base"
        assert card["base_model"]["inputs"]["examples"] == card["inputs"]["examples"]
        assert card["code"]["packages"].keys() >= {"torch", "trl"}
        data = ModelCard.load(folder / "README.md").data
        assert data.library_name == ("transformers" if folder == tuned else "peft")
        assert data.pipeline_tag == "text-generation"
        text = (folder / "card.json").read_text() + (folder / "README.md").read_text()
        for place in (tuned, base_model, examples_file, base_config.output):
            assert str(place.parent) not in text
    assert load_policy(str(tuned)).tokenizer.chat_template


@pytest.mark.parametrize("version", ["paper", "grounded"])
def test_a_card_of_grpo_names_corpus_and_reward(version: str, tmp_path: Path) -> None:
    encoder = {"name": str(tmp_path / "jina-embeddings-v3"), "dimension": 8}
    write_json(tmp_path / "c" / "manifest.json", {"id": "abc", "narrations": 5, "encoder": encoder})
    settings: dict[str, Any] = {"corpus": tmp_path / "c", "reward": {"verifier": version}}
    config = GRPOConfig(model="Some/Model", revision="v1", examples=Path("e"), output=tmp_path / "o", **settings)
    run = open_run("grpo", config, config.output, {"corpus": config.corpus, "model": Path(config.model)})
    assert run.record["base_model"] == {"name": "Some/Model", "revision": "v1"}
    assert run.record["corpus"] == {
        "id": "abc", "narrations": 5, "encoder": {"name": "jina-embeddings-v3", "dimension": 8},
    }  # fmt: skip
    assert run.record["reward"] == version
    assert read_json(config.output / "run.json")["decoding"] == run.record["decoding"]
    assert run.record["decoding"]["temperature"] == [config.temperature, "ours"]
    assert run.record["decoding"]["repetition_penalty"] == [1.0, "ours"]
    files = run.card(7, {"reward": 0.25, "reward_seconds": 3.0}, merged=True)
    assert str(tmp_path) not in "".join(files.values())
    card = ModelCard(files["README.md"])
    assert card.data.base_model == "Some/Model"
    assert "grpo" in card.data.tags
    assert "0.25" in card.text
    assert "reward_seconds" not in card.text
    assert "CC BY-NC" in card.text


def test_the_model_that_all_began_with_is_found_through_folders(tmp_path: Path) -> None:
    first = SFTConfig(model="Some/Model", examples=Path("e"), output=tmp_path / "sft")
    (tmp_path / "sft" / "model").mkdir(parents=True)
    card = open_run("sft", first, first.output / "run", {}).card(1, {}, merged=True)["card.json"]
    (tmp_path / "sft" / "model" / "card.json").write_text(card)
    then = SFTConfig(model=str(tmp_path / "sft" / "model"), examples=Path("e"), output=tmp_path / "again")
    readme = open_run("sft", then, then.output, {}).card(1, {}, merged=True)["README.md"]
    assert ModelCard(readme).data.base_model == "Some/Model"
