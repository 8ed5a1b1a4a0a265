"""An unknown key is answered with the known one, also where another project calls it otherwise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.config import BestOfNConfig, GRPOConfig, ModelConfig, SamplingConfig, Settings, SFTConfig, parse_config
from recipe.config.synonyms import SYNONYMS, nearest_key
from recipe.errors import ConfigError

MEANT = [
    (BestOfNConfig, "group_size", "n"),
    (BestOfNConfig, "samples", "n"),
    (BestOfNConfig, "num_generations", "n"),
    (BestOfNConfig, "num-generations", "n"),
    (BestOfNConfig, "lr", "learning_rate"),
    (BestOfNConfig, "max_new_tokens", "max_completion_tokens"),
    (BestOfNConfig, "num_train_epochs", "epochs"),
    (BestOfNConfig, "iterations", "rounds"),
    (GRPOConfig, "n", "group_size"),
    (GRPOConfig, "num_generations", "group_size"),
    (GRPOConfig, "kl_coef", "beta"),
    (GRPOConfig, "max_steps", "steps"),
    (GRPOConfig, "epsilon", "clip"),
    (GRPOConfig, "grop_size", "group_size"),
    (SFTConfig, "per_device_train_batch_size", "batch_size"),
    (SFTConfig, "model_name_or_path", "model"),
    (SFTConfig, "output_dir", "output"),
    (SFTConfig, "lora.r", "rank"),
    (SamplingConfig, "max_new_tokens", "max_tokens"),
    (ModelConfig, "base_url", "endpoint"),
    (GRPOConfig, "validation.eval_steps", "every"),
]


@pytest.mark.parametrize(("kind", "name", "meant"), MEANT)
def test_another_name_of_a_key_is_answered_with_the_key(kind: type[Settings], name: str, meant: str) -> None:
    table: object = 3
    for part in reversed(name.split(".")):
        table = {part: table}
    assert isinstance(table, dict)
    with pytest.raises(ConfigError, match=f"'{name}'.*'{meant}'"):
        parse_config(table, kind, "here")


def test_each_line_of_the_table_names_a_key_of_the_settings() -> None:
    kinds, keys = [Settings], set[str]()
    for kind in kinds:  # which grows
        kinds += kind.__subclasses__()
        keys |= kind.model_fields.keys()
    assert [sorted(names) for names in SYNONYMS if not names & keys] == []


@given(st.text(max_size=30), st.lists(st.sampled_from(sorted(BestOfNConfig.model_fields)), unique=True))
def test_only_a_known_key_is_ever_named(name: str, known: list[str]) -> None:
    assert nearest_key(name, known) in (*known, None)
    for key in known:
        assert nearest_key(key, known) == key
