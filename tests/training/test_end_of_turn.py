"""A base model whose `eos_token` is not what its chat template writes after a turn: everything ends where turns end."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recipe.artifacts import read_json, read_jsonl
from recipe.config import BestOfNConfig, GRPOConfig, ModelConfig, SamplingConfig, SFTConfig
from recipe.errors import InputError
from recipe.models.checkpoints import load_checkpoint
from recipe.models.model import open_model
from recipe.models.protocol import Answer, ModelRequest
from recipe.text import format_plan, planner_messages
from recipe.training.best_of_n import train_best_of_n
from recipe.training.grpo import train_grpo
from recipe.training.loop import quiet
from recipe.training.policy import load_policy
from recipe.training.runs import open_run
from recipe.training.sft import sft_trainer
from recipe.training.video import VideoPrompts
from recipe.types import Example

PAD, END = "<|endoftext|>", "<|im_end|>"
ENDLESS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""A chat template that ends no turn."""
CHATS = [planner_messages(goal, done) for goal in ("make tea", "plant a tree") for done in ((), ("boil the water",))]


def misnamed(model: Path, target: Path, **changes: str) -> Path:
    """A copy of a model whose `eos_token` is the padding's, as in a base model of Qwen2.5, or as in `changes`."""
    folder = Path(shutil.copytree(model, target))
    named = {"eos_token": PAD, **changes}
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(read_json(path) | named), encoding="utf-8")
    eos = load_checkpoint(str(model)).tokenizer.convert_tokens_to_ids(named["eos_token"])
    for name in ("config.json", "generation_config.json"):
        path = folder / name
        settings = read_json(path) | {"eos_token_id": eos}
        if "text_config" in settings:
            settings["text_config"]["eos_token_id"] = eos
        path.write_text(json.dumps(settings), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def base(base_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return misnamed(base_model, tmp_path_factory.mktemp("misnamed") / "base")


@pytest.fixture(scope="session")
def seeing(video_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return misnamed(video_model, tmp_path_factory.mktemp("misnamed") / "seeing")


def answers(model: Path, engine: str, sampling: SamplingConfig, *, stream: bool) -> list[Answer]:
    """An answer to each chat, without its seconds."""
    requests = [ModelRequest(chat, sampling) for chat in CHATS]
    with open_model(ModelConfig(model=str(model), engine=engine)) as opened:
        if stream:
            pieces = list(opened.stream_all(requests))
            whole = {place: piece for place, piece in pieces if not isinstance(piece, str)}
            written = [whole[place] for place in range(len(requests))]
        else:
            written = list(opened.answer(requests))
    return [answer._replace(seconds=0.0) for answer in written if isinstance(answer, Answer)]


@pytest.mark.thorough
@pytest.mark.usefixtures("vllm")
@pytest.mark.parametrize("engine", ["transformers", "vllm"])
@pytest.mark.parametrize(("temperature", "stream"), [(0.0, False), (1.0, True)])
def test_a_plan_ends_with_its_turn(base: Path, base_model: Path, engine: str, temperature: float, stream: bool) -> None:
    sampling = SamplingConfig(temperature=temperature, max_tokens=96)
    written = answers(base, engine, sampling, stream=stream)
    assert written == answers(base_model, engine, sampling, stream=stream)
    assert len(written) == len(CHATS)
    assert any(answer.tokens_out < 96 for answer in written)


def records(folder: Path) -> list[dict[str, Any]]:
    return [row for path in sorted((folder / "completions").glob("*.jsonl")) for _, row in read_jsonl(path)]


@pytest.fixture
def of_both(base: Path, base_model: Path, seeing: Path, video_model: Path, scorer: Any) -> Callable[..., list[Path]]:
    """The folders of two runs, of the model whose eos is another and of the one whose eos ends a turn."""

    def run(settings: dict[str, Any], kind: Any, train: Any, **given: Any) -> list[Path]:
        models = (seeing, video_model) if settings.get("input") == "video" else (base, base_model)
        folders = [settings["output"].with_name(name) for name in ("other", "same")]
        for model, folder in zip(models, folders, strict=True):
            train(kind(**settings | {"model": str(model), "output": folder}), scorer, **given)
        return folders

    return run


@pytest.mark.thorough
@pytest.mark.usefixtures("vllm")
@pytest.mark.parametrize("rollouts", ["transformers", "vllm"])
def test_grpo_ends_where_turns_end(of_both: Any, grpo_settings: dict[str, Any], held_out: Path, rollouts: str) -> None:
    further = {"max_completion_tokens": 48, "rollouts": rollouts, "truncated": "mask"}
    settings = grpo_settings | further
    if rollouts == "transformers":  # which writes the plans of validation, whoever writes those of training
        settings |= {"validation": {"examples": held_out, "every": 2, "samples": 1}}
    other, same = of_both(settings, GRPOConfig, train_grpo)
    assert records(other) == records(same)
    assert not all(row["clipped"] for row in records(other))
    tables = [[row for _, row in read_jsonl(folder / "metrics.jsonl")] for folder in (other, same)]
    for name in ("clipped_ratio", "completion_tokens", "kl_plan", "loss"):
        assert [row[name] for row in tables[0]] == [row[name] for row in tables[1]]
    # What was cut is cut in the record and in the trainer's figure alike.
    shares = [sum(row["clipped"] for row in records(other)[at : at + 8]) / 8 for at in (0, 8)]
    assert [row["clipped_ratio"] for row in tables[0]] == pytest.approx(shares)
    if rollouts == "transformers":
        plans = [[row for _, row in read_jsonl(folder / "validation.jsonl")] for folder in (other, same)]
        assert plans[0] == plans[1]


@pytest.mark.thorough
def test_grpo_from_video_ends_where_turns_end(of_both: Any, grpo_settings: dict[str, Any], paintings: Any) -> None:
    settings = grpo_settings | {"max_completion_tokens": 48, "input": "video", "steps": 1}
    other, same = of_both(settings, GRPOConfig, train_grpo, histories=paintings)
    assert records(other) == records(same)


@pytest.mark.thorough
def test_best_of_n_ends_where_turns_end(
    of_both: Any, examples_file: Path, held_out: Path, other_corpus: Path, tmp_path: Path
) -> None:
    settings = {
        "examples": examples_file, "output": tmp_path / "run", "corpus": other_corpus, "metrics": (), "n": 2,
        "rounds": 1, "epochs": 1, "batch_size": 6, "max_completion_tokens": 48,
        "validation": {"examples": held_out, "every": 2, "samples": 1},
    }  # fmt: skip
    other, same = of_both(settings, BestOfNConfig, train_best_of_n)
    assert records(other) == records(same)
    assert not all(row["clipped"] for row in records(other))


def test_a_trained_model_says_where_it_ends(
    base: Path, grpo_settings: dict[str, Any], scorer: Any, base_model: Path
) -> None:
    config = GRPOConfig(**grpo_settings | {"model": str(base), "steps": 1})
    model = train_grpo(config, scorer)
    ends = read_json(model / "generation_config.json")["eos_token_id"]
    tokenizer = load_checkpoint(str(base_model)).tokenizer
    assert set(ends) == set(tokenizer.convert_tokens_to_ids([END, PAD]))


def taught(folder: Path, examples: list[Example], examples_file: Path, output: Path) -> list[str]:
    """What the loss of SFT is on, as text, of each row of a batch."""
    config = SFTConfig(model=str(folder), examples=examples_file, output=output, batch_size=4, metrics=())
    policy = load_policy(config.model)
    with quiet():
        trainer = sft_trainer(config, policy, examples, open_run("sft", config, config.output, {}))
        batch = next(iter(trainer.get_train_dataloader()))
    rows = zip(batch["input_ids"], batch["labels"], strict=True)
    return [policy.tokenizer.decode(ids[labels != -100]) for ids, labels in rows]


@pytest.mark.parametrize("pad", [PAD, END, "<|box_end|>"])
@pytest.mark.parametrize("eos", [PAD, END])
def test_sft_teaches_the_end_of_a_turn(
    base_model: Path, examples: list[Example], examples_file: Path, tmp_path: Path, pad: str, eos: str
) -> None:
    folder = misnamed(base_model, tmp_path / "model", pad_token=pad, eos_token=eos)
    plans = {format_plan(example.continuation) + END for example in examples}
    assert {text.rstrip("\n") for text in taught(folder, examples, examples_file, tmp_path / "run")} <= plans


def test_where_the_template_ends_no_turn_sft_teaches_the_eos_token(
    base_model: Path, video_model: Path, examples: list[Example], examples_file: Path, tmp_path: Path, paintings: Any
) -> None:
    folder = misnamed(base_model, tmp_path / "model")
    (folder / "chat_template.jinja").write_text(ENDLESS, encoding="utf-8")
    plans = {format_plan(example.continuation) + PAD for example in examples}
    assert set(taught(folder, examples, examples_file, tmp_path / "run")) <= plans
    policy = load_policy(str(video_model))
    policy.tokenizer.chat_template = ENDLESS
    reply = VideoPrompts("model", policy, paintings).reply(examples[0])
    assert policy.tokenizer.decode(reply) == format_plan(examples[0].continuation) + END


@pytest.mark.parametrize("kind", [SFTConfig, GRPOConfig, BestOfNConfig])
def test_the_check_names_the_token_that_ends_a_turn(
    kind: Any, base: Path, base_model: Path, examples_file: Path, tmp_path: Path, check: Callable[..., Any]
) -> None:
    endless = misnamed(base_model, tmp_path / "endless")
    (endless / "chat_template.jinja").write_text(ENDLESS, encoding="utf-8")
    further = {} if kind is SFTConfig else {"corpus": tmp_path / "corpus"}
    stage: Any = {SFTConfig: "sft", GRPOConfig: "grpo", BestOfNConfig: "best-of-n"}[kind]
    expected = {base_model: ("ok", {END}), base: ("note", {END, PAD}), endless: ("note", {PAD})}
    for model, (state, named) in expected.items():
        config = kind(model=str(model), examples=examples_file, output=tmp_path / "run", **further)
        said = check(stage, config)["end of turn"]
        assert said["state"] == state
        assert {token for token in (PAD, END) if token in said["sentence"]} == named


def test_a_template_that_refuses_the_turns_of_a_planner_is_refused(
    base_model: Path, examples_file: Path, tmp_path: Path, check: Callable[..., Any]
) -> None:
    folder = Path(shutil.copytree(base_model, tmp_path / "model"))
    refusal = "{% if messages[0].role == 'system' %}{{ raise_exception('no system turn') }}{% endif %}"
    template = folder / "chat_template.jinja"
    template.write_text(refusal + template.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(InputError, match=f"'{folder}'.*'no system turn'"):
        load_policy(str(folder))
    config = SFTConfig(model=str(folder), examples=examples_file, output=tmp_path / "run")
    assert {one["subject"] for one in check("sft", config)["findings"] if one["state"] == "missing"} == {"model"}
