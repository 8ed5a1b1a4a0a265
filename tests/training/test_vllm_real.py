"""Roll-outs and answers of vLLM itself, on a CPU in float32. `make vllm` runs it; CONTRIBUTING.md says how."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("vllm")

import torch
from safetensors.torch import load_file

from recipe.artifacts import read_jsonl
from recipe.config import BaseModelConfig, GRPOConfig, ModelConfig, SamplingConfig, parse_config
from recipe.models.checkpoints import load_checkpoint
from recipe.models.local import LocalEngine
from recipe.models.model import open_model
from recipe.models.protocol import Answer, ModelRequest
from recipe.text import planner_messages, video_messages
from recipe.training import policy
from recipe.training.base import train_base
from recipe.training.grpo import train_grpo
from recipe.training.loop import quiet
from recipe.training.policy import save_model
from recipe.types import Frames
from recipe_studies.vision.video_model import VisionShape, build_video_model

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def text_model(examples_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the other tests' miniature, with heads as wide as vLLM's attention on a CPU needs them."""
    config = BaseModelConfig(
        examples=examples_file,
        output=tmp_path_factory.mktemp("base"),
        hidden_size=64,
        layers=2,
        head_size=32,
        vocabulary=512,
        context=512,
        steps=60,
        learning_rate=2e-2,
        batch_tokens=256,
    )
    return train_base(config)


@pytest.fixture(scope="module")
def seeing_model(text_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = VisionShape(depth=2, hidden_size=32, heads=2, intermediate_size=64)
    built = build_video_model(load_checkpoint(str(text_model)), shape, seed=0)
    folder = tmp_path_factory.mktemp("seeing") / "model"
    with quiet():
        save_model(built.model, built.tokenizer, folder, built.video)
    return folder


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU vLLM packs weights and drops the parameters, into which TRL pushes: keep them. A GPU needs no such."""
    from vllm.model_executor.layers import utils

    def plain(layer: Any, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    if not torch.cuda.is_available():
        monkeypatch.setattr(utils, "dispatch_cpu_unquantized_gemm", plain)
        monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", os.environ.get("VLLM_CPU_KVCACHE_SPACE", "1"))


def report(line: str) -> None:
    print(f"\n{line}", end="")  # noqa: T201 - the figures are what the job is run for


@pytest.fixture
def config(text_model: Path, grpo_settings: dict[str, Any]) -> GRPOConfig:
    longer = {"steps": 4, "max_completion_tokens": 24}
    return GRPOConfig(**grpo_settings | longer | {"model": str(text_model), "rollouts": "vllm", "bf16": False})


def changed(config: GRPOConfig, **settings: Any) -> GRPOConfig:
    return parse_config(config.model_dump(exclude_defaults=True) | settings, GRPOConfig, "the test")


def rows(config: GRPOConfig) -> list[dict[str, Any]]:
    return [row for _, row in read_jsonl(config.output / "metrics.jsonl")]


def trained(config: GRPOConfig, scorer: Any, histories: Any) -> list[list[list[int]]]:
    """Train with vLLM; returns the completions of each step, and reports what it took."""
    from trl.generation.vllm_generation import VLLMGeneration

    from recipe.training.vllm import VllmRollOuts

    batches: list[list[list[int]]] = []
    pushes: list[float] = []
    push, write = VLLMGeneration.sync_weights, VllmRollOuts.__call__

    def timed(generation: Any) -> None:
        began = time.monotonic()
        push(generation)
        pushes.append(time.monotonic() - began)

    def kept(self: Any, prompts: Any, trainer: Any) -> Any:
        made = write(self, prompts, trainer)
        batches.append(made["completion_ids"])
        return made

    began = time.monotonic()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(VLLMGeneration, "sync_weights", timed)
        patched.setattr(VllmRollOuts, "__call__", kept)
        train_grpo(config, scorer, histories=histories)
    found = rows(config)
    means = [row["engine_gap"] for row in found if "engine_gap" in row]
    mean, most = np.mean(means or [np.nan]), max((row["engine_gap_max"] for row in found if means), default=np.nan)
    report(
        f"{config.input}: gap mean {mean:.1e}, max {most:.1e}; push {1e3 * np.median(pushes):.0f} ms; "
        f"{len(found)} steps in {time.monotonic() - began:.1f} s with the start of vLLM"
    )
    return batches


@pytest.mark.parametrize("seeing", [False, True])
@pytest.mark.parametrize("correction", ["off", "token_truncate"])
def test_four_steps_train_what_our_own_loop_trains_on_the_same_completions(
    config: GRPOConfig,
    seeing_model: Path,
    seeing: bool,
    correction: str,
    scorer: Any,
    paintings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # vLLM seeds torch's generator, from which dropout is drawn.
    # Adam makes steps of the learning rate even of gradients that are mere rounding.
    config = changed(config, lora={"dropout": 0.0}, learning_rate=1e-3, vllm={"correction": correction})
    if seeing:
        # At a low temperature the tokens that are never sampled have almost no probability to leave to the others.
        config = changed(config, model=str(seeing_model), input="video", temperature=0.4)
    histories = paintings if seeing else None
    batches = iter(trained(config, scorer, histories))
    for row in rows(config):
        assert correction == "off" or row["engine_gap"] < 2e-6, row["step"]
    own = changed(config, rollouts="transformers", vllm={}, output=config.output.with_name("own"))
    monkeypatch.setattr(policy, "sample", lambda *_, **__: next(batches))
    train_grpo(own, scorer, histories=histories)
    theirs, ours, before = (
        load_file(folder / "model.safetensors")
        for folder in (config.output / "model", own.output / "model", Path(config.model))
    )
    size = sum(float(ours[name].square().sum()) for name in ours) ** 0.5
    moved = sum(float((before[name] - ours[name]).square().sum()) for name in ours) ** 0.5 / size
    apart = sum(float((theirs[name] - ours[name]).square().sum()) for name in ours) ** 0.5 / size
    report(f"{config.input}, {correction}: weights moved by {moved:.1e}, within {apart:.1e} of our own loop's")
    assert apart < 1e-5 < 1e-3 < moved


def test_seeds_decide(config: GRPOConfig, scorer: Any) -> None:
    first = trained(changed(config, steps=2), scorer, None)
    assert trained(changed(config, steps=2, output=config.output.with_name("b")), scorer, None) == first
    other = changed(config, steps=1, seed=1, output=config.output.with_name("c"))
    assert trained(other, scorer, None)[0] != first[0]
    assert len({tuple(ids) for ids in first[0]}) > 2


def test_old_features_of_a_trained_merger_would_be_used(
    config: GRPOConfig, seeing_model: Path, scorer: Any, paintings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.v1.engine.llm_engine import LLMEngine

    monkeypatch.setattr(LLMEngine, "reset_encoder_cache", lambda _: None)
    # Few prompts, so that a clip comes again.
    config = changed(config, model=str(seeing_model), input="video", steps=8, prompts_per_step=4, learning_rate=2e-2)
    trained(config, scorer, paintings)
    gaps = [row["engine_gap"] for row in rows(config)]
    report(f"without a reset of the encoder's cache: gaps {', '.join(f'{gap:.1e}' for gap in gaps)}")
    assert gaps[0] < 1e-4
    assert max(gaps) > 1e-3


def test_answers_are_those_of_the_local_engine(text_model: Path, seeing_model: Path) -> None:
    sampling = SamplingConfig(temperature=0, max_tokens=24)
    chats = [planner_messages("make tea", ["boil the water"]), planner_messages("plant a tree", [])]
    shown = []
    for seed, (size, rate, count) in enumerate((((90, 130), 3.0, 5), ((56, 56), 2.0, 4), ((200, 100), 1.7, 7))):
        images = np.random.default_rng(seed).integers(0, 256, (count, *size, 3), dtype=np.uint8)
        shown.append(video_messages("make tea", Frames(images, np.arange(count) / rate, rate)))
    schema = {"name": "n", "schema": {"type": "object", "properties": {"n": {"type": "boolean"}}, "required": ["n"]}}
    for folder, asked in ((text_model, chats), (seeing_model, [*chats, *shown])):
        requests = [ModelRequest(chat, sampling, logprobs=True) for chat in asked]
        expected = LocalEngine(folder).answer(requests)
        with open_model(ModelConfig(model=str(folder), engine="vllm", engine_memory=0.3)) as model:
            answers = model.answer(requests)
            [held] = model.answer([ModelRequest(chats[0], sampling, schema=schema)])
            sampled = model.generate(asked, 4, SamplingConfig(temperature=1.0, max_tokens=24))
            assert model.generate(asked, 4, SamplingConfig(temperature=1.0, max_tokens=24)) == sampled
        assert [(one.text, one.tokens_in) for one in answers] == [(one.text, one.tokens_in) for one in expected]
        gap = max(abs(one.logprob - other.logprob) for one, other in zip(answers, expected, strict=True))
        report(f"{len(asked)} answers of {folder.name}: mean log-probabilities differ by {gap:.1e} at most")
        assert gap < 1e-5
        assert held.structured == "json_schema"
        assert held.text.lstrip().startswith("{")


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """`vllm serve` of a model as its documentation begins it, without `--generation-config`; the root of its API."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [Path(sys.executable).with_name("vllm"), "serve", folder, "--served-model-name", "m", "--port", str(port)]
    options = ["--host", "127.0.0.1", "--dtype", "float32", "--enforce-eager", "--max-model-len", "512"]
    log = folder.with_name("serve.log")
    with log.open("wb") as written, subprocess.Popen([*command, *options], stdout=written, stderr=written) as server:
        try:
            while server.poll() is None:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as answer:
                        assert answer.status == 200
                    break
                except (urllib.error.URLError, ConnectionError):
                    time.sleep(0.5)
            assert server.poll() is None, log.read_text(errors="replace")[-3000:]
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()


def test_a_server_samples_as_the_engines_of_this_machine(text_model: Path, tmp_path: Path) -> None:
    pytest.importorskip("openai")
    folder = tmp_path / "model"
    shutil.copytree(text_model, folder)
    file = folder / "generation_config.json"
    own = {"do_sample": True, "temperature": 1.5, "top_k": 3, "top_p": 0.5, "repetition_penalty": 3.0}
    file.write_text(json.dumps(json.loads(file.read_text()) | own))
    chats = [planner_messages("make tea", ["boil the water"]), planner_messages("plant a tree", [])]

    def asked(model: Any, sampling: SamplingConfig) -> list[tuple[str, Any]]:
        outcomes = model.answer([ModelRequest(chat, sampling, sample) for chat in chats for sample in range(2)])
        assert all(isinstance(one, Answer) for one in outcomes)
        return [(one.text, one.decoding) for one in outcomes]

    plain, imitating = (
        SamplingConfig.model_validate({"temperature": 0, "max_tokens": 24, "imitate": kind})
        for kind in ("none", "checkpoint")
    )
    local = {sampling: asked(LocalEngine(folder), sampling) for sampling in (plain, imitating)}
    with open_model(ModelConfig(model=str(folder), engine="vllm", engine_memory=0.3)) as model:
        assert {sampling: asked(model, sampling) for sampling in (plain, imitating)} == local
    with served(folder) as url, open_model(ModelConfig(model="m", endpoint=url)) as model:
        assert asked(model, plain) == local[plain]
        texts = [text for text, _ in asked(model, imitating)]
        assert texts == [text for text, _ in local[imitating]]
        warm = plain.model_copy(update={"temperature": 0.7})
        assert {card for _, card in asked(model, warm)} == {card for _, card in asked(LocalEngine(folder), warm)}
    assert [text for text, _ in local[plain]] != texts  # the penalty makes a difference
