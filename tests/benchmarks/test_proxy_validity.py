"""The study of the proxy: its plans are as valid as they say, and it ranks as the documentation says."""

import importlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("scipy")
from recipe.config import EncoderConfig
from recipe.corpus.encoders import open_encoder
from recipe.evaluation.judge.proxy import ProxyJudge
from recipe.world.examples import draw_examples
from recipe.world.load import load_world
from recipe.world.validity import plan_key, score_plan

WORLD = load_world()


@pytest.fixture
def study() -> ModuleType:
    return importlib.import_module("proxy_validity")


@pytest.mark.parametrize("split", ["test_cuts", "test_goals"])
def test_valid_plans_are_valid_and_edited_ones_differ(study: ModuleType, split: str) -> None:
    rng, spoilt = random.Random(split), 0
    for example in draw_examples(WORLD, split, 40):
        graph = WORLD.graph(example.goal)
        done = set(graph.after).intersection(plan_key(WORLD, example.goal, example.history))
        order = study.completion(graph, done, rng)
        for steps in (order, study.edit(order, WORLD, graph, rng)):
            plan = [WORLD.wordings[step][0] for step in steps]
            valid = score_plan(WORLD, example.goal, example.history, plan).score == 1
            assert valid or steps is not order
            spoilt += not valid
    assert spoilt > 25


@pytest.mark.thorough
def test_a_quick_run_writes_what_it_shows(
    study: ModuleType, tmp_path: Path, called_with: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "found.json"
    called_with("proxy_validity.py", "--prompts", 5, "--encoder", "hash:256", "--json", written)
    study.main()
    found = json.loads(written.read_text())["values"]
    assert found["judge"]["name"] == "proxy (hash:256)"
    assert found["world by kind"]["true"]["proxy"] == 30
    assert found["world by kind"]["valid"]["validity"] == 1
    assert found["world"]["all plans"]["proxy"]["spearman"]["mean"] > 0.5
    assert "careless plans" in capsys.readouterr().out


@pytest.mark.real_data
@pytest.mark.slow
@pytest.mark.parametrize("name", ["coin", "crosstask"])
def test_on_real_procedures_the_shares_are_those_of_the_documentation(
    study: ModuleType, shared_data: Path, name: str
) -> None:
    pytest.importorskip("sentence_transformers")
    embed = open_encoder(EncoderConfig(name="minilm")).encode
    found = study.against_corruptions(ProxyJudge(embed), embed, shared_data / name, name, 40)
    assert found["own reference"]["mean"]["mean"] > 0.98
    assert found["another video's reference"]["mean"]["mean"] == pytest.approx(0.86, abs=0.06)
    assert found["another video's reference"]["offgoal"]["mean"] > 0.9
    assert found["scale"]["chance"] == pytest.approx(0.357, abs=0.06)
