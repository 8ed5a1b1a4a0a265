"""The trainers' own code calls the adapters; each test skips where its trainer is not installed (docs/trainers.md)."""

import asyncio
import importlib
import json
import math
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from prompt_scorer import served

from recipe.corpus.store import Corpus
from recipe.errors import ComputeError
from recipe.plan_text import plan_steps
from recipe.reward.trainers import source
from recipe.reward.trainers.source import Row
from recipe.reward.verifier import Verifier

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs, not ours

GOOD = Row("make tea", ("boil the water",), "1. warm the pot\n2. put tea leaves in the pot")
EMPTY = Row("make tea", ("boil the water",), "")
LOST = Row("change a tyre", ("lift the car",), "1. remove the unspeakable bolts")
BESIDE = Row("change a tyre", ("lift the car",), "1. take off the wheel")
ROWS = [GOOD, EMPTY, LOST, BESIDE]


def theirs(module: str) -> Any:
    """A trainer's module, or a skip with the reason."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(module)
        except ImportError as error:
            pytest.skip(f"{module.partition('.')[0]} is not installed here: {error}")


@pytest.fixture
def verifier(talks_folder: Path, encoder_fails: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verifier:
    """The verifier that the environment names, whose encoder fails on one word."""
    monkeypatch.setenv("RECIPE_CORPUS", str(talks_folder))
    monkeypatch.delenv("RECIPE_SERVICE", raising=False)
    (tmp_path / "defaults.toml").touch()  # a name that no other test has
    monkeypatch.setenv("RECIPE_REWARD_CONFIG", str(tmp_path / "defaults.toml"))
    return Verifier(Corpus.open(talks_folder))


@pytest.fixture
def address(verifier: Verifier) -> Iterator[str]:
    """The service on a port."""
    theirs("uvicorn")
    with served(theirs("recipe_apps.service.app").create_app(verifier)) as url:
        yield f"{url}/get_reward"


def total(verifier: Verifier, row: Row) -> Any:
    return pytest.approx(
        verifier.score(history=row.history, continuations=[plan_steps(row.completion)], goal=row.goal)[0].total,
        abs=1e-6,
    )


def conversation(row: Row) -> list[dict[str, str]]:
    return [{"role": "user", "content": row.goal}, {"role": "assistant", "content": row.completion}]


@pytest.mark.thorough
def test_trl_scores_and_leaves_failed_rows_out(verifier: Verifier, tiny_model: Path, tmp_path: Path) -> None:
    trl, torch = theirs("trl"), theirs("torch")
    adapter = importlib.import_module("recipe.reward.trainers.trl")
    columns = [{"prompt": conversation(row)[:1], "goal": row.goal, "history": list(row.history)} for row in ROWS]
    trainer = trl.GRPOTrainer(
        model=str(tiny_model),
        reward_funcs=[adapter.alignment_reward],
        args=trl.GRPOConfig(
            output_dir=str(tmp_path / "run"),
            per_device_train_batch_size=4,
            num_generations=2,
            max_completion_length=4,
            max_steps=1,
            logging_steps=1,
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=theirs("datasets").Dataset.from_list([columns[0], columns[0] | {"history": ["unspeakable"]}]),
    )
    completions = [conversation(row)[1:] for row in ROWS]
    rewards = trainer._calculate_rewards(columns, [row["prompt"] for row in columns], completions, [[0]] * 4)[:, 0]
    assert rewards[:2].tolist() == [total(verifier, GOOD), total(verifier, EMPTY)]
    assert torch.isnan(rewards[2:]).all()
    trainer.train()
    step = next(row for row in trainer.state.log_history if "reward" in row)
    assert {"rho", "gated", "steps", "aligned_history", "aligned_full"} <= set(step)
    assert step["unscored"] == 0.5  # the group whose history fails, and the call above
    log = trainer._logs
    written = [reply[-1]["content"] for reply in log["completion"]]
    earned = log["rewards"]["alignment_reward"]
    for text, reward, credit in zip(written, earned, log["advantages"], strict=True):
        if math.isnan(reward):
            assert credit == 0.0
        else:
            assert reward == total(verifier, GOOD._replace(completion=text))
    assert sum(map(math.isnan, earned)) == 2


def verl_sample(row: Row) -> Any:
    verl, torch = theirs("verl"), theirs("torch")
    codes = torch.tensor([[ord(letter) for letter in row.completion] or [0]])
    fields = {
        "data_source": "recipe",
        "reward_model": {"ground_truth": ""},
        "extra_info": {"goal": row.goal, "history": np.array(row.history, object)},
    }
    columns = {name: np.array([value], object) for name, value in fields.items()}
    return verl.DataProto.from_dict({"responses": codes, "attention_mask": torch.ones_like(codes)}, columns)


def verl_manager(name: str, function: str) -> Any:
    reward, omegaconf = theirs("verl.trainer.ppo.reward"), theirs("omegaconf")
    chosen = {"path": "pkg://recipe.reward.trainers.verl", "name": function}
    config = {"custom_reward_function": chosen, "reward_manager": {"source": "register", "name": name}, "timeout": 20}
    tokenizer = SimpleNamespace(decode=lambda ids, **_: "".join(chr(code) for code in ids.tolist() if code))
    return reward.load_reward_manager(omegaconf.OmegaConf.create({"reward": config}), tokenizer)


@pytest.mark.parametrize("function", ["compute_score", "compute_score_sync"])
@pytest.mark.parametrize("name", ["naive", "rate_limited"])
def test_verl_scores_and_a_failure_stays_visible(
    verifier: Verifier, name: str, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    managers = theirs("verl.experimental.reward_loop.reward_manager")
    # Its limits are bound to the first event loop that they meet.
    monkeypatch.setattr(managers.RateLimitedRewardManager, "_class_initialized", False)

    async def run() -> tuple[list[Any], Any]:
        manager = verl_manager(name, function)
        scored = await asyncio.gather(*(manager.run_single(verl_sample(row)) for row in (GOOD, EMPTY)))
        [lost] = await asyncio.gather(manager.run_single(verl_sample(LOST)), return_exceptions=True)
        return scored, lost

    (good, empty), lost = asyncio.run(run())
    assert good["reward_score"] == good["reward_extra_info"]["score"] == total(verifier, GOOD)
    assert empty["reward_score"] == total(verifier, EMPTY)
    assert set(good["reward_extra_info"]) == set(empty["reward_extra_info"])  # verl asks every sample for each key
    assert good["reward_extra_info"]["steps"] == 2
    if name == "naive":
        assert isinstance(lost, ComputeError)
    else:  # verl's own choice, which the keys that are missing then bring to light
        assert lost["reward_score"] == 0.0
        assert lost["reward_extra_info"]["error"] == "the encoder is down"
        assert "score" not in lost["reward_extra_info"]
    assert source.reward_source().failures == 1


def openrlhf_rollout(agent: Any, remote: str, row: Row) -> dict[str, Any]:
    """One rollout by OpenRLHF, with letters for tokens."""
    torch = theirs("torch")
    prompt, written = f"<|user|>{row.goal}<|assistant|>", [ord(letter) for letter in row.completion + "<|end|>"]

    class Tokenizer:
        def __call__(self, text: str, **_: Any) -> Any:
            return {"input_ids": torch.tensor([[ord(letter) for letter in text]])}

        def decode(self, tokens: Sequence[int], **_: Any) -> str:
            return "".join(map(chr, tokens))

    class Engine:
        async def generate(self, *_: Any, **__: Any) -> Any:
            return SimpleNamespace(
                outputs=[SimpleNamespace(token_ids=written, finish_reason="stop", logprobs=None, text="")]
            )

    sampling = SimpleNamespace(max_tokens=64, logprobs=None)
    label = json.dumps({"goal": row.goal, "history": row.history})
    executor = agent.SingleTurnAgentExecutor([remote])
    result: dict[str, Any] = asyncio.run(executor.execute(prompt, label, sampling, 4096, Tokenizer(), Engine()))
    return result


@pytest.mark.parametrize("way", ["file", "service"])
def test_openrlhf_scores_and_a_failure_has_no_reward(
    verifier: Verifier, address: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = theirs("openrlhf.utils.agent")
    path = tmp_path / "reward.py"
    path.write_text("from recipe.reward.trainers.openrlhf import reward_func\n")
    remote = str(path) if way == "file" else address
    for row in (GOOD, EMPTY):
        result = openrlhf_rollout(agent, remote, row)
        assert result["reward"] == result["scores"] == [total(verifier, row)]
        assert result["extra_logs"]["steps"] == [len(plan_steps(row.completion))]
    rest = asyncio.sleep

    async def at_once(seconds: float) -> None:
        await rest(0)

    monkeypatch.setattr(agent.asyncio, "sleep", at_once)
    assert openrlhf_rollout(agent, remote, LOST)["reward"] is None


def test_verifiers_scores_and_a_failure_is_an_error_of_the_trace(verifier: Verifier) -> None:
    vf = theirs("verifiers.v1")
    adapter = importlib.import_module("recipe.reward.trainers.verifiers")

    class Data(vf.TaskData):  # type: ignore[misc]
        goal: str
        history: list[str]

    class Plugged(vf.Task[Data]):  # type: ignore[misc]
        pass

    class Written(vf.Task[Data]):  # type: ignore[misc]
        alignment = vf.reward(adapter.alignment)

    plugs = vf.TaskConfig(
        rewards={"alignment": {"fn": "recipe.reward.trainers.verifiers:alignment"}},
        metrics={"parts": {"fn": "recipe.reward.trainers.verifiers:alignment_parts"}},
    )
    config = {Plugged: plugs, Written: vf.TaskConfig()}
    for kind in (Plugged, Written):
        for row in (GOOD, EMPTY):
            trace = vf_trace(vf, row)
            task = kind(Data(prompt=row.goal, goal=row.goal, history=list(row.history)), config[kind])
            asyncio.run(task.score(trace))
            assert trace.reward == trace.rewards["alignment"].score == total(verifier, row)
            assert kind is Written or trace.metrics["steps"] == len(plan_steps(row.completion))
        trace = vf_trace(vf, LOST)
        task = kind(Data(prompt=LOST.goal, goal=LOST.goal, history=list(LOST.history)), config[kind])
        with pytest.raises(vf.TaskError, match="the encoder is down"):
            asyncio.run(task.score(trace))
        assert trace.rewards == {"alignment": None}


def vf_trace(vf: Any, row: Row) -> Any:
    node = vf.MessageNode(message=vf.AssistantMessage(content=row.completion), sampled=True)
    return vf.Trace.model_construct(nodes=[node])


def test_ms_swift_scores_and_a_failed_group_has_no_advantage(verifier: Verifier) -> None:
    theirs("swift.rewards")
    torch, core = theirs("torch"), theirs("swift.rl_core.grpo_algorithm")
    advantage, data = theirs("swift.rl_core.advantage"), theirs("swift.rl_core.data")
    adapter = importlib.import_module("recipe.reward.trainers.ms_swift")
    orms = theirs("swift.rewards").orms
    adapter.register(orms)
    samples = [
        data.GRPOSample(messages=conversation(row), extra={"goal": row.goal, "history": list(row.history)})
        for row in ROWS
    ]
    for name in ("alignment", "alignment_async"):
        rewards = core.compute_rewards_per_func(samples, [orms[name](args=None)], None, torch.device("cpu"))
        assert rewards[:2, 0].tolist() == [total(verifier, GOOD), total(verifier, EMPTY)]
        assert torch.isnan(rewards[2:]).all()
        advantages, _ = advantage.compute_advantages(rewards, torch.ones(1), num_generations=2)
        assert advantages[2:].tolist() == [0.0, 0.0]
        assert advantages[0] > 0 > advantages[1]
