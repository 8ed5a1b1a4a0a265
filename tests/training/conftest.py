"""A miniature of every training artefact: examples, a base model of two layers, and a scorer without a
corpus.
"""

import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recipe.config import BaseModelConfig, CorpusConfig, EncoderConfig, Settings
from recipe.corpus.build import build_corpus
from recipe.data.examples import write_examples
from recipe.errors import ComputeError
from recipe.models.checkpoints import load_checkpoint
from recipe.reward.scorer import Outcome, PromptGroup
from recipe.training.base import train_base
from recipe.training.loop import quiet
from recipe.training.policy import save_model
from recipe.types import Example, Frames, Narration, Reward, Segment
from recipe.world.examples import draw_examples
from recipe.world.load import load_world
from recipe.world.narrator import narrate
from recipe_studies.vision.video_model import VisionShape, build_video_model

GOALS = ("make tea", "plant a tree", "change a tyre")

# To load the packages of training takes longer than most tests: one process does, and code that may be killed runs in
# children of it.
LOADED = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import conftest, recipe.training.best_of_n, recipe.training.grpo, recipe.training.sft
for line in sys.stdin:
    code, words = json.loads(line)
    child = os.fork()
    if child == 0:
        os.dup2(2, 1)
        sys.argv[1:] = words
        exec(code, {})
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="session")
def in_child() -> Iterator[Callable[..., int]]:
    """Runs code with words as its arguments in a process of its own, and returns its exit status."""
    command = [sys.executable, "-c", LOADED, str(Path(__file__).parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def run(code: str, *words: str) -> int:
            print(json.dumps([code, words]), file=process.stdin, flush=True)
            return int(process.stdout.readline())

        yield run
        process.stdin.close()


class LengthScorer:
    """Rewards plans of three steps, and of equal ones the first; fails, as an encoder may, for one goal.

    No two plans of a prompt have one reward, so that every group teaches something, whatever the model writes.
    """

    def __init__(self, broken_goal: str = "") -> None:
        self.broken_goal = broken_goal
        self.calls = 0

    def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Outcome]]:
        self.calls += len(groups)
        return [
            [self._outcome(group.goal, len(plan), place) for place, plan in enumerate(group.plans)] for group in groups
        ]

    def _outcome(self, goal: str, steps: int, place: int) -> Outcome:
        if goal == self.broken_goal:
            return ComputeError("The encoder is down.")
        return Reward(-abs(steps - 3.0) - place / 100, 0.1, 0.2, 0.1, steps == 0, steps, (), None)


@pytest.fixture(scope="session")
def new_scorer() -> type[LengthScorer]:
    return LengthScorer


@pytest.fixture
def scorer(new_scorer: type[LengthScorer]) -> LengthScorer:
    return new_scorer()


@pytest.fixture(scope="session")
def examples() -> list[Example]:
    steps = ("boil the water", "dig a hole", "raise the car", "wait a while", "clean up")
    return [
        Example(f"e{n}", "toy", f"v{n}", GOALS[n % 3], (steps[n % 5],), tuple(steps[: 2 + n % 3]), 1, "train")
        for n in range(12)
    ]


@pytest.fixture(scope="session")
def examples_file(examples: list[Example], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("examples") / "examples.jsonl"
    write_examples(path, examples)
    return path


@pytest.fixture(scope="session")
def held_out(examples: list[Example], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of three examples of other videos, to validate with."""
    path = tmp_path_factory.mktemp("held-out") / "held-out.jsonl"
    others = [replace(one, example_id=f"h{one.example_id}", video_id=f"h{one.video_id}") for one in examples[:3]]
    write_examples(path, others)
    return path


@pytest.fixture(scope="session")
def base_config(examples_file: Path, tmp_path_factory: pytest.TempPathFactory) -> BaseModelConfig:
    return BaseModelConfig(
        examples=examples_file,
        output=tmp_path_factory.mktemp("base"),
        hidden_size=32,
        layers=2,
        head_size=16,
        vocabulary=512,
        context=256,
        steps=60,
        learning_rate=2e-2,
        batch_tokens=256,
        bf16=False,
    )


@pytest.fixture(scope="session")
def base_model(base_config: BaseModelConfig) -> Path:
    """A trained miniature base model, as any other model a folder in the standard layout."""
    return train_base(base_config)


@pytest.fixture(scope="session")
def other_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus that holds none of the examples' videos; what scores plans does not read it."""
    folder = tmp_path_factory.mktemp("other") / "corpus"
    talk = Narration("radio", (Segment("turn the dial until a station is heard"),))
    return build_corpus([talk], folder, CorpusConfig(encoder=EncoderConfig(name="hash:16")))


@pytest.fixture
def grpo_settings(examples_file: Path, other_corpus: Path, tmp_path: Path) -> dict[str, Any]:
    """Settings of two steps of GRPO by a scorer without a corpus; the model is missing."""
    return {
        "examples": examples_file,
        "output": tmp_path / "grpo",
        "corpus": other_corpus,
        "steps": 2,
        "prompts_per_step": 2,
        "max_completion_tokens": 12,
        "learning_rate": 1e-2,
        "metrics": (),
    }


@pytest.fixture(scope="session")
def video_model(base_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The miniature base with a visual tower that knows nothing yet: 4 tokens for two frames of 56 x 56 pixels."""
    shape = VisionShape(depth=2, hidden_size=32, heads=2, intermediate_size=64)
    built = build_video_model(load_checkpoint(str(base_model)), shape, seed=0)
    folder = tmp_path_factory.mktemp("seeing") / "model"
    with quiet():
        save_model(built.model, built.tokenizer, folder, built.video)
    return folder


@pytest.fixture(scope="session")
def world_run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Settings of a short run whose corpus, examples and base model come from two goals of the world."""
    folder = tmp_path_factory.mktemp("world-run")
    world = load_world()
    goals = [graph.goal for graph in world.goals.values() if not graph.held_out][:2]
    examples = [e for e in draw_examples(world, "train", 200) if e.goal in goals]
    write_examples(folder / "examples.jsonl", examples)
    corpus = CorpusConfig(encoder=EncoderConfig(name="hash:64"))
    build_corpus(narrate(world, 16, goals=goals), folder / "corpus", corpus)
    base = BaseModelConfig(
        examples=folder / "examples.jsonl", output=folder / "base", hidden_size=32, layers=2, head_size=16,
        context=256, steps=20, learning_rate=2e-2, bf16=False,
    )  # fmt: skip
    return {
        "model": str(train_base(base)),
        "examples": folder / "examples.jsonl",
        "corpus": folder / "corpus",
        "steps": 2,
        "prompts_per_step": 2,
        "max_completion_tokens": 32,
        "learning_rate": 1e-2,
        "metrics": (),
    }


class Paintings:
    """Shows a history as frames of noise, as many as the example's name says; counts how often it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, example: Example) -> Frames:
        self.asked.append(example.example_id)
        seed = zlib.crc32(example.example_id.encode())
        count = 2 + 2 * (seed % 3)
        images = np.random.default_rng(seed).integers(0, 256, (count, 56, 56, 3), dtype=np.uint8)
        return Frames(images, np.arange(count) / 2, 2.0)


def toml(value: Any) -> str:
    """A value of settings, where tables are inline."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {toml(own)}' for key, own in value.items())} }}"
    return f"[{', '.join(map(toml, value))}]" if isinstance(value, list) else json.dumps(value)


@pytest.fixture
def check(recipe: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """What `recipe train check` finds for settings, with the finding of each subject under its name."""

    def checked(stage: str, config: Settings, *words: str) -> Any:
        file = tmp_path_factory.mktemp("settings") / "settings.toml"
        values = config.model_dump(mode="json", exclude_unset=True, exclude_none=True)
        file.write_text("".join(f"{key} = {toml(value)}\n" for key, value in values.items()))
        outcome = recipe("train", "check", file, "--stage", stage, *words, "--json")
        found = json.loads(outcome.out)
        assert outcome.code == (0 if found["ready"] else 1)
        return found | {one["subject"]: one for one in found["findings"]}

    return checked


@pytest.fixture
def sampled_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., list[list[int]]]], None]:
    """Says what writes the completions of a run, in place of the model."""

    def take(sample: Callable[..., list[list[int]]]) -> None:
        for module in ("policy", "best_of_n"):
            monkeypatch.setattr(f"recipe.training.{module}.sample", sample)

    return take


@pytest.fixture
def vllm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A package vllm that samples with the model itself, as TRL finds it; a parameter holds its faults."""
    import fake_vllm  # not where a process of its own loads this file

    vllm_generation = pytest.importorskip("trl.generation.vllm_generation")
    with fake_vllm.installed(**getattr(request, "param", {})) as llm:
        monkeypatch.setattr(vllm_generation, "is_vllm_available", lambda: True)
        monkeypatch.setattr(vllm_generation, "LLM", llm, raising=False)
        yield llm


@pytest.fixture
def paintings() -> Paintings:
    return Paintings()
