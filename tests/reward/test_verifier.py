"""The verifier against the equations spelt out for one completion at a time."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from recipe.alignment import backends
from recipe.alignment.reference import monotone_coverage, needleman_wunsch
from recipe.config import RewardConfig
from recipe.corpus.encoders import HashEncoder
from recipe.errors import ComputeError, InputError
from recipe.reward.paper import paper_reward
from recipe.reward.verifier import Verifier
from recipe.types import Hit

HISTORY = ["boil some water", "warm up the pot"]
PLANS = [
    ["put tea leaves in the pot", "pour the water", "wait"],
    ["whisk the eggs", "melt the butter"],
    ["warm the pot"],
    ["lift a car", "remove the bolts", "take the wheel off", "mount the spare wheel", "lower the car"],
]
ABLATIONS: list[dict[str, object]] = [
    {},
    {"stage2": False},
    {"history_baseline": False},
    {"relative_progress": False},
    {"gate": "off"},
    {"gate": "plain"},
]


class Expected(NamedTuple):
    total: float
    best: int | None


def expected(corpus: Any, config: RewardConfig, history: list[str], plan: list[str]) -> Expected:
    """Equations 1 to 8 for one completion, without any sharing."""

    def pool(steps: list[str]) -> list[int]:
        vectors = HashEncoder(128).encode(steps) if steps else None
        return [hit.narration for hit in corpus.search_vectors(vectors, config.pool_size)] if steps else []

    def score(steps: list[str], narration: int) -> float:
        W = HashEncoder(128).encode(steps) @ corpus.embeddings(narration).T
        return needleman_wunsch(W, config.gap).score if config.stage2 else monotone_coverage(W)

    def aligned(steps: list[str], narrations: list[int]) -> float:
        return max(score(steps, narration) for narration in narrations) if steps else 0.0

    full = history + plan
    of_full = pool(history) if config.pool == "history" and history else pool(full)
    of_history = pool(history) if config.pool == "own" else of_full
    parts = paper_reward(aligned(history, of_history), aligned(full, of_full), config)
    return Expected(parts.total, max(of_full, key=lambda n: score(full, n), default=None))


@pytest.mark.parametrize("backend", list(backends.BACKENDS))
@pytest.mark.parametrize("pool", ["history", "full", "own"])
@pytest.mark.parametrize("change", ABLATIONS, ids=str)
@pytest.mark.parametrize("history", [HISTORY, []], ids=["history", "no history"])
@pytest.mark.parametrize("size", [1, 3])
def test_every_reading_and_ablation_is_the_equations(
    corpus: Any, backend: str, pool: str, change: dict[str, object], history: list[str], size: int
) -> None:
    if backend not in backends.available():
        pytest.skip(f"the packages of backend {backend} are not installed")
    config = RewardConfig.model_validate({"pool": pool, "pool_size": size} | change)
    rewards = Verifier(corpus, config, backend=backend).score(
        history=history, continuations=[*PLANS, []], goal="make tea"
    )
    for reward, plan in zip(rewards, [*PLANS, []], strict=True):
        total, best = expected(corpus, config, history, plan)
        assert reward.total == pytest.approx(total, abs=1e-5)
        assert reward.best_narration == best
        assert reward.steps == len(plan)


def test_parts_are_consistent(corpus: Any) -> None:
    verifier = Verifier(corpus, RewardConfig(pool_size=3))
    good, wrong = verifier.score(history=HISTORY, continuations=[PLANS[0], ["say hello", "juggle"]], goal="make tea")
    assert good.total == good.aligned_full > 0
    assert not good.gated
    assert corpus.narration(good.best_narration).video_id == "tea"
    assert [hit.score for hit in good.pool] == sorted((hit.score for hit in good.pool), reverse=True)
    assert len(good.pool) == 3
    assert wrong.gated
    assert wrong.total < 0
    assert wrong.aligned_history == good.aligned_history


def test_a_completion_without_steps_follows_the_formula(corpus: Any) -> None:
    [reward] = Verifier(corpus).score(history=HISTORY, continuations=[[]], goal="make tea")
    assert reward.rho == 0
    assert reward.total == pytest.approx(-0.2)
    [nothing] = Verifier(corpus).score(history=[], continuations=[[]], goal="make tea")
    assert nothing.total == pytest.approx(-0.2)
    assert nothing.best_narration is None
    assert nothing.pool == ()


def test_a_history_is_searched_once_and_a_step_encoded_once(corpus: Any) -> None:
    verifier = Verifier(corpus)
    for _ in range(3):
        verifier.score(history=HISTORY, continuations=PLANS, goal="make tea")
    assert corpus.searches == 1
    assert len(corpus.encoder.calls) == 1
    assert len(corpus.encoder.calls[0]) == len({*HISTORY, *(step for plan in PLANS for step in plan)})


def test_threads_share_a_verifier(corpus: Any) -> None:
    verifier = Verifier(corpus)
    alone = verifier.score(history=HISTORY, continuations=PLANS, goal="make tea")
    fresh = Verifier(corpus)
    with ThreadPoolExecutor(4) as threads:
        results = list(
            threads.map(lambda _: fresh.score(history=HISTORY, continuations=PLANS, goal="make tea"), range(16))
        )
    assert all(result == alone for result in results)


def test_a_broken_corpus_is_an_error_and_not_a_number(corpus: Any) -> None:
    corpus.vectors[0] = np.full_like(corpus.vectors[0], np.nan)
    corpus.search_batch = lambda queries, k: [[Hit(0, 0.5)] for _ in queries]
    with pytest.raises(ComputeError, match="recipe corpus verify"):
        Verifier(corpus).score(history=HISTORY, continuations=PLANS, goal="make tea")


def test_unusable_steps_are_refused(corpus: Any) -> None:
    with pytest.raises(InputError, match="not one text"):
        Verifier(corpus).score(history="boil the water", continuations=PLANS, goal="make tea")
    with pytest.raises(InputError, match="step is empty"):
        Verifier(corpus).score(history=HISTORY, continuations=[["pour", " "]], goal="make tea")


@pytest.mark.parametrize(
    "gives",
    [OSError("connection refused"), np.full((2, 128), np.nan, np.float32), np.ones((1, 128), np.float32)],
    ids=["error", "NaN", "too few"],
)
def test_a_failing_encoder_is_an_error_and_leaves_nothing_behind(corpus: Any, gives: Any) -> None:
    def failing(texts: list[str]) -> Any:
        if isinstance(gives, Exception):
            raise gives
        return gives

    verifier, encode = Verifier(corpus), corpus.encoder.encode
    corpus.encoder.encode = failing
    with pytest.raises(ComputeError, match="encoder"):
        verifier.embed(["boil", "pour"])
    corpus.encoder.encode = encode
    assert np.array_equal(verifier.embed(["boil", "pour"]), HashEncoder(128).encode(["boil", "pour"]))


def test_more_steps_than_are_kept_are_embedded_all_the_same(corpus: Any) -> None:
    corpus.encoder = SimpleNamespace(encode=lambda texts: np.array([[len(text)] for text in texts], np.float32))
    texts = ["a", *(f"step {n}" for n in range(33_000))]
    assert Verifier(corpus).embed(texts)[:, 0].tolist() == list(map(len, texts))
