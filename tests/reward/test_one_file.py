"""`examples/one_file.py`, the paper's reward in one file, computes what the package computes."""

import asyncio
import random
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import built_corpus

from recipe.config import RewardConfig
from recipe.corpus.store import Corpus
from recipe.data.narrations import read_narrations
from recipe.plan_text import plan_steps
from recipe.reward.trainers.source import RewardSource
from recipe.reward.trainers.trl import alignment_reward
from recipe.reward.verifier import Verifier
from recipe.text import format_plan

EXAMPLES = Path(__file__).parents[2] / "examples"
POOL = 4


@pytest.fixture(scope="module")
def one_file() -> Any:
    spec = spec_from_file_location("one_file", EXAMPLES / "one_file.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.POOL = POOL  # type: ignore[attr-defined]
    return module


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return built_corpus(tmp_path_factory.mktemp("corpus"), read_narrations([EXAMPLES / "subtitles"]))


def test_rewards_are_those_of_the_verifier_and_of_its_hook_for_trl(one_file: Any, corpus: Corpus) -> None:
    verifier = Verifier(corpus, RewardConfig(pool_size=POOL))

    def encode(texts: Sequence[str]) -> Any:
        return verifier.embed(list(texts)).astype(np.float64)

    said = [[segment.text for segment in corpus.narration(number).segments] for number in range(len(corpus))]
    reward = one_file.Reward([], encode)
    # A corpus stores its vectors in 16 bits.
    reward.narrations = [corpus.embeddings(number).astype(np.float64) for number in range(len(corpus))]
    draw, texts = random.Random(0), [text for segments in said for text in segments]
    rows = []
    while len(rows) < 100:
        history, plan = (tuple(draw.choice(texts) for _ in range(draw.randrange(6))) for _ in range(2))
        if not history + plan:
            continue
        scores = sorted(one_file.monotone_coverage(encode(history or plan) @ V.T) for V in reward.narrations)
        if scores[-POOL] - scores[-POOL - 1] > 1e-6:  # the pool does not depend on rounding
            rows.append((history, plan))
    rows.append((("stir the pot",), ()))
    histories, plans = zip(*rows, strict=True)
    written = [format_plan(plan) for plan in plans]
    rewards = reward.trl(written, histories, goal=["g"] * len(rows))
    expected = [verifier.score(goal="g", history=h, continuations=[c])[0].total for h, c in rows]
    assert rewards == pytest.approx(expected, abs=1e-5)
    assert min(rewards) < 0 < max(rewards)
    hook = alignment_reward(written, ["g"] * len(rows), histories, source=RewardSource(verifier))
    assert rewards == pytest.approx(asyncio.run(hook), abs=1e-5)


def test_without_any_step_the_reward_is_that_of_no_progress(one_file: Any, corpus: Corpus) -> None:
    reward = one_file.Reward([["boil the water"]], one_file.encode_words)
    [nothing] = Verifier(corpus).score(goal="g", history=(), continuations=[()])
    assert reward((), ()) == nothing.total == -0.2


@given(st.lists(st.builds("{} {}".format, st.text("abcé", min_size=1), st.text("abc1.)")).map(str.strip), max_size=5))
def test_a_numbered_list_is_read_as_the_package_reads_it(one_file: Any, steps: list[str]) -> None:
    text = f"Here is the rest:\n{format_plan(steps)}" if steps else ""
    assert one_file.steps_of(text) == steps == [*plan_steps(text)]


def test_the_file_is_short_and_runs_by_itself(one_file: Any) -> None:
    assert len((EXAMPLES / "one_file.py").read_text().splitlines()) < 100
    reward = one_file.Reward([["boil water", "add leaves"], ["glue a patch"]], one_file.encode_words)
    right, wrong = reward.trl(["1. add leaves", "1. glue a patch"], [["boil water"]] * 2)
    assert right == pytest.approx(1.0)
    assert wrong < right
