"""The stage that trains a reward on a run's own corpus, and the rewards of the run that use it."""

from pathlib import Path
from typing import Any

import pytest
from tests.models.endpoint_server import Reply, completion, serving
from tests.world.lists import step_lists

pytest.importorskip("torch")

from recipe.artifacts import read_json
from recipe.config import CorpusConfig, EncoderConfig, GroundedConfig, RewardConfig, SamplingConfig
from recipe.corpus.build import build_corpus
from recipe.corpus.store import Corpus
from recipe.data.examples import write_examples
from recipe.planning.prediction_files import read_predictions, write_predictions
from recipe.planning.predictions import Prediction
from recipe.progress import SILENT
from recipe.reward import self_trained as nets
from recipe.reward.self_trained import CARD
from recipe.reward.verifier import Verifier
from recipe.world.examples import draw_examples
from recipe.world.load import load_world
from recipe_studies.experiments.models import EndpointModel
from recipe_studies.experiments.stages import Ranking, Sampling, SelfTraining, placed_reward, rank, self_train
from recipe_studies.experiments.study import CORPUS, TEST, PlanSet

GROUNDED = GroundedConfig(pool_size=20, background_size=20, candidates=30)
VERIFIER = RewardConfig(verifier="grounded", grounded=GROUNDED)
NET = {"self_trained": "self-trained", "self_trained_anyway": True}
OWN = VERIFIER.model_copy(update={"grounded": GROUNDED.model_copy(update=NET)})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with a corpus of step lists."""
    folder, world = tmp_path_factory.mktemp("run"), load_world()
    told = [one for goal in world.goals for one in step_lists(world, goal, 4)]
    build_corpus(told, folder / CORPUS, CorpusConfig(encoder=EncoderConfig(name="hash:128")))
    return folder


def answer(body: dict[str, Any], count: int) -> Reply:
    return completion(f"1. wait {count} times\n2. stop")


@pytest.mark.parametrize("sampled", [False, True])
def test_the_stage_leaves_a_net_that_the_rewards_of_the_run_find_wherever_it_lies(
    sampled: bool, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nets, "STEPS", 60)
    made = tmp_path / "run"
    made.mkdir()
    (made / CORPUS).symlink_to(run / CORPUS)
    with serving(answer) as server:
        model = EndpointModel(model="m", endpoint=server.url)
        policy = Sampling(model, True, (), SamplingConfig(), 2) if sampled else None
        self_train(made, SelfTraining(VERIFIER, 32, 0, policy), SILENT)
    counts = read_json(made / "self-trained" / CARD)["counts"]
    assert counts["prompts"] >= 24
    assert (counts["samples"] > 0) == sampled
    assert sorted(path.name for path in made.iterdir()) == [CORPUS, "self-trained"]

    moved = made.rename(tmp_path / "moved")
    corpus, examples = Corpus.open(moved / CORPUS), draw_examples(load_world(), "test_cuts", 3)
    assert (
        "net"
        in Verifier(corpus, placed_reward(moved, OWN))
        .score(goal=examples[0].goal, history=examples[0].history, continuations=[examples[0].continuation])[0]
        .parts
    )
    assert placed_reward(moved, VERIFIER) == VERIFIER
    plans = PlanSet("base", "plans/base.jsonl")
    write_examples(moved / TEST, examples)
    write_predictions(moved / plans.file, [Prediction(e.example_id, e.continuation, 0) for e in examples])
    rank(moved, Ranking("self-trained", OWN, (plans,)), SILENT)
    rank(moved, Ranking("grounded", VERIFIER, (plans,)), SILENT)
    with_net, without = (read_predictions(moved / plans.rewarded(name)) for name in ("self-trained", "grounded"))
    assert all((a.reward or 0.0) > (b.reward or 0.0) for a, b in zip(with_net, without, strict=True))
