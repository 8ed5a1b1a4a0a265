"""Every caller encodes its steps in one call and scans the corpus once for a whole batch."""

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prompt_scorer import trainer_reward
from typer.testing import CliRunner

from recipe.audit.measure import measure_attack
from recipe.audit.perturb import AuditPrompt, build_prompts, select
from recipe.audit.score import NamedScorer
from recipe.cli import app
from recipe.config import RewardConfig
from recipe.corpus.encoders import HashEncoder
from recipe.errors import ComputeError, InputError
from recipe.planning.planner import Request, prediction_of
from recipe.planning.rerank import rerank, reward_predictions
from recipe.reward.scorer import PromptGroup, outcomes_of, score_plans
from recipe.reward.verifier import Verifier
from recipe.types import Example, Plan, Procedure, Reward, Step

CONFIGS = [RewardConfig(pool=pool) for pool in ("history", "full", "own")] + [RewardConfig(verifier="grounded")]
TEXTS = ("boil the water", "warm the pot", "whisk the eggs", "lift the car", "slice the bread", "stir slowly", "wait")
EXAMPLES = [
    Example(f"e{n}", "toy", f"v{n}", goal, (TEXTS[n], TEXTS[n + 1]), (TEXTS[n + 2], f"wait {n} minutes", "serve"), 2)
    for n, goal in enumerate(("make tea", "fry eggs", "change a tyre", "toast bread"))
]
PROCEDURES = [
    Procedure("toy", f"{goal} {video}", goal, tuple(Step(f"{text} {goal}") for text in TEXTS))
    for goal in ("make tea", "fry eggs", "change a tyre")
    for video in range(2)
]


class Work(NamedTuple):
    """What one batch took."""

    scans: int
    encodings: int


def work_of(corpus: Any, call: Callable[[], object]) -> Work:
    searches, calls = corpus.searches, len(corpus.encoder.calls)
    call()
    return Work(corpus.searches - searches, len(corpus.encoder.calls) - calls)


def groups() -> list[PromptGroup]:
    return [PromptGroup(one.goal, one.history, [one.continuation, one.continuation[::-1], ()]) for one in EXAMPLES]


@pytest.fixture(params=CONFIGS, ids=lambda config: f"{config.verifier} {config.pool}")
def verifier(request: pytest.FixtureRequest, corpus: Any) -> Verifier:
    return Verifier(corpus, request.param)


def test_the_verifier_scores_groups_as_it_scores_each_alone(verifier: Verifier, corpus: Any) -> None:
    together: list[Any] = []
    assert work_of(corpus, lambda: together.extend(verifier.score_groups(groups()))) == Work(1, 1)
    for group, rewards in zip(groups(), together, strict=True):
        assert rewards == Verifier(corpus, verifier.config).score(
            history=group.history, continuations=group.plans, goal=group.goal
        )


def reranked(verifier: Verifier) -> object:
    requests = [Request(one.goal, one.history) for one in EXAMPLES]
    return rerank(verifier, requests, [[Plan(plan) for plan in group.plans] for group in groups()])


def rewarded_predictions(verifier: Verifier) -> object:
    written = [
        prediction_of(one.example_id, sample, "\n".join(f"- {step}" for step in group.plans[sample]))
        for sample in range(3)
        for one, group in zip(EXAMPLES, groups(), strict=True)
    ]
    return reward_predictions(verifier, EXAMPLES, written)


def batch_of_a_trainer(verifier: Verifier) -> object:
    rows = [(one.goal, list(one.history), "\n".join(f"- {s}" for s in one.continuation)) for one in EXAMPLES * 2]
    return trainer_reward(verifier)(*zip(*rows, strict=True))


def batch_of_the_service(verifier: Verifier) -> object:
    batching = pytest.importorskip("recipe_apps.service.batching")
    metrics = pytest.importorskip("recipe_apps.service.metrics")

    async def here() -> bool:
        return False

    async def run() -> None:
        batcher = batching.Batcher(verifier, 60.0, metrics.ServiceMetrics())
        batcher.start()
        try:
            await batcher.rewards(groups(), here)
        finally:
            await batcher.stop()

    return asyncio.run(run())


def audited(verifier: Verifier) -> object:
    return NamedScorer("it", verifier).score(audit_prompts())


def best_of_many_plans(verifier: Verifier) -> object:
    return measure_attack(NamedScorer("it", verifier), audit_prompts(), "best of")


def audit_prompts() -> list[AuditPrompt]:
    return build_prompts(select(PROCEDURES), HashEncoder(128).encode)


CALLERS = [reranked, rewarded_predictions, batch_of_a_trainer, batch_of_the_service, audited, best_of_many_plans]


@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.__name__)
def test_a_batch_takes_one_scan_and_one_call_of_the_encoder(
    caller: Callable[[Verifier], object], verifier: Verifier, corpus: Any
) -> None:
    assert work_of(corpus, lambda: caller(verifier)) == Work(1, 1)


def test_a_round_of_the_attack_is_one_batch(corpus: Any) -> None:
    audited, prompts = NamedScorer("it", Verifier(corpus, RewardConfig(pool="full"))), audit_prompts()
    work = work_of(corpus, lambda: measure_attack(audited, prompts, "greedy"))
    assert work.scans <= 1 + 3 * max(len(prompt.true) for prompt in prompts)


@pytest.fixture
def opened(verifier: Verifier, corpus: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Commands and stages that open a corpus folder get this corpus."""
    monkeypatch.setattr("recipe.corpus.store.Corpus.open", lambda *_, **__: corpus)
    return corpus


def test_reward_score_with_several_prompts(opened: Any, verifier: Verifier, tmp_path: Path) -> None:
    prompts, config, output = tmp_path / "prompts.jsonl", tmp_path / "reward.toml", tmp_path / "rewards.jsonl"
    prompts.write_text(
        "".join(json.dumps({"goal": g.goal, "history": g.history, "continuations": g.plans}) + "\n" for g in groups())
    )
    config.write_text(f'verifier = "{verifier.config.verifier}"\npool = "{verifier.config.pool}"\n')
    command = ["reward", "score", "--corpus", "any", "--config", config, "--input", prompts, "--output", output]
    result: list[Any] = []
    assert work_of(opened, lambda: result.append(CliRunner().invoke(app, [*map(str, command)]))) == Work(1, 1)
    assert result[0].exit_code == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    expected = [[one.total for one in own if isinstance(one, Reward)] for own in verifier.score_groups(groups())]
    assert [[one["total"] for one in row["rewards"]] for row in rows] == expected


class Fragile(HashEncoder):
    """Fails where a text says so."""

    def __init__(self) -> None:
        super().__init__(128)

    def encode(self, texts: Sequence[str], *_: object) -> Any:
        if "unspeakable" in texts:
            raise OSError("down")
        return super().encode(texts)


def test_a_failure_reaches_the_plans_that_it_concerns(verifier: Verifier, corpus: Any) -> None:
    tea, eggs, tyre, toast = groups()
    lost = eggs._replace(plans=[*eggs.plans, ("unspeakable",)])
    blank = tyre._replace(plans=[*tyre.plans, (" ",)])
    corpus.encoder = Fragile()
    fragile = Verifier(corpus, verifier.config)
    outcomes = outcomes_of(fragile, [tea, lost, blank, toast])
    assert [[type(one) for one in own] for own in outcomes] == [
        [Reward] * 3,
        [ComputeError] * 4,
        [Reward] * 3 + [InputError],
        [Reward] * 3,
    ]
    assert outcomes[3] == verifier.score_groups([toast])[0]
    prompts = [*((one.goal, one.history) for one in EXAMPLES), ("make tea", (" ",))]
    assert [type(one) for one in score_plans(fragile, prompts, [("serve",)] * 5)] == [Reward] * 4 + [InputError]
