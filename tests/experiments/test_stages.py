"""Stages at work on a small world: labels and copies of the corpus, permuted rewards, composed plans."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("numba")

from recipe.config import CorpusConfig, EncoderConfig, parse_config
from recipe.data.examples import read_examples
from recipe.planning.prediction_files import read_predictions, write_predictions
from recipe.planning.predictions import Prediction
from recipe.progress import SILENT
from recipe.reward.scorer import PromptGroup, plain_reward
from recipe.types import Reward
from recipe.world.load import load_world
from recipe.world.validity import score_plan
from recipe_studies.experiments.expand import expand, read_inputs
from recipe_studies.experiments.settings import ExperimentConfig
from recipe_studies.experiments.stages import PermutedRewards, Ranking, rank
from recipe_studies.experiments.study import BASE, COPIES, LABELLED, LABELS, TEST, TRAIN, PlanSet, study_of

WORLD = load_world()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, a corpus of lists, and what is read from it."""
    values = {
        "title": "t",
        "source": {"type": "world", "domains": ["repair"], "narrations": 80, "documents": 200, "train": 8, "test": 6}
        | {"clean": 1},
        "corpus": CorpusConfig(encoder=EncoderConfig(name="hash:256"), shard_size=16).model_dump(),
        "grpo": {"reward": {"verifier": "grounded"}},
        "sft": {"epochs": 1},
        "compared": ["labels"],
        "validation": {"prompts": 12},
    }
    config, folder = parse_config(values, ExperimentConfig, "test"), tmp_path_factory.mktemp("run")
    for stage in expand(study_of(config), read_inputs(config)):
        if stage.name in ("data", "corpus", "validation", "plans-corpus"):
            stage.work(folder, stage.settings, SILENT)
    return folder


def test_clean_lists_give_right_labels_and_copies(run: Path) -> None:
    tested = {example.example_id: example for example in read_examples(run / TEST)}
    for plans in (LABELS, COPIES):
        rows = read_predictions(run / plans.file)
        assert {row.example_id for row in rows} == {*tested}
        scores = [
            score_plan(WORLD, tested[row.example_id].goal, tested[row.example_id].history, row.steps).score
            for row in rows
        ]
        assert sum(scores) / len(scores) > 0.5
    training = {example.example_id: example for example in read_examples(run / TRAIN)}
    labelled = read_examples(run / LABELLED)
    assert labelled
    for example in labelled:  # prompts of the training examples with other continuations
        assert replace(example, continuation=training[example.example_id].continuation) == training[example.example_id]
    assert any(example.continuation != training[example.example_id].continuation for example in labelled)


def test_a_ranker_composes_of_the_first_samples(run: Path) -> None:
    examples = read_examples(run / TEST)
    rows = [
        Prediction(example.example_id, steps, sample=sample)
        for example in examples
        for sample, steps in enumerate(
            [(example.continuation[0], "wait"), ("wait", *example.continuation[1:]), ("not", "looked", "at")]
        )
    ]
    base, composed = PlanSet(BASE, "plans/base.jsonl"), PlanSet("composed", "composed/relevance.jsonl")
    write_predictions(run / base.file, rows)
    rank(run, Ranking("relevance", None, (base,), composed=composed, best_of=2), SILENT)
    made = {row.example_id: row for row in read_predictions(run / composed.file)}
    rewarded = read_predictions(run / base.rewarded("relevance"))
    for example in examples:
        own = [row for row in rewarded if row.example_id == example.example_id and row.sample < 2]
        assert made[example.example_id].reward >= max(row.reward or 0 for row in own)  # type: ignore[operator]
        assert "looked" not in made[example.example_id].steps
    assert any(row.steps not in {own.steps for own in rows} for row in made.values())


class Lengths:
    """Rewards the number of steps."""

    def score_groups(self, groups: list[PromptGroup]) -> list[list[Reward]]:
        return [[plain_reward(float(len(plan)), len(plan)) for plan in group.plans] for group in groups]


def test_permuted_rewards_are_those_of_the_prompt_in_another_order() -> None:
    groups = [PromptGroup(f"goal {n}", (), [("s",) * (k + 1) for k in range(6)]) for n in range(40)]
    scorer = PermutedRewards(Lengths(), 0)  # type: ignore[arg-type]
    own = [[reward.total for reward in rewards] for rewards in scorer.score_groups(groups)]  # type: ignore[union-attr]
    assert all(sorted(rewards) == [1, 2, 3, 4, 5, 6] for rewards in own)
    again = [[r.total for r in rewards] for rewards in scorer.score_groups(groups)]  # type: ignore[union-attr]
    assert own == again
    first = Counter(rewards[0] for rewards in own)
    assert len(first) > 3  # a plan's reward says nothing of its place
