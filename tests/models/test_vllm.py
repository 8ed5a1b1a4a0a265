"""The engine of vLLM, on a stand-in for its package: what is asked for, what comes back, what is refused."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import fake_vllm  # noqa: E402
from tests.models.asking import texts_of  # noqa: E402

from recipe.config import ModelConfig, SamplingConfig  # noqa: E402
from recipe.errors import InputError, MissingExtra  # noqa: E402
from recipe.models.local import LocalEngine  # noqa: E402
from recipe.models.model import Model, open_model  # noqa: E402
from recipe.models.protocol import Answer, ModelRequest, Refusal  # noqa: E402
from recipe.text import video_messages  # noqa: E402
from recipe.types import Frames  # noqa: E402

CHATS = [[{"role": "user", "content": " ".join(f"w{n % 28}" for n in range(k, 2 * k))}] for k in (1, 5, 2, 9)]
SCHEMA = {"name": "score", "schema": {"type": "object"}}


@pytest.fixture(autouse=True)
def vllm() -> Iterator[type[fake_vllm.LLM]]:
    with fake_vllm.installed() as llm:
        yield llm


def opened(model: Path, **settings: Any) -> Model:
    return open_model(ModelConfig(model=str(model), engine="vllm", **settings))


def sampling(**kept: object) -> SamplingConfig:
    return SamplingConfig.model_validate({"temperature": 1.0, "max_tokens": 8, **kept})


def test_every_completion_has_a_seed_of_its_own(tiny_model: Path, vllm: type[fake_vllm.LLM]) -> None:
    with opened(tiny_model) as model:
        whole = texts_of(model, CHATS, 3, sampling(batch_size=64))
        assert texts_of(model, CHATS[2:], 3, sampling(batch_size=2)) == whole[2:]
        assert texts_of(model, CHATS, 3, sampling(seed=1)) != whole
    [llm] = vllm.made
    assert len({one.seed for one in llm.parameters}) == 24
    assert llm.calls == ["shutdown"]
    assert {one.top_p for one in llm.parameters} == {1.0}


def test_answers_are_kept_as_they_arrive_and_what_runs_is_ended(
    tiny_model: Path, tmp_path: Path, vllm: type[fake_vllm.LLM]
) -> None:
    requests = [ModelRequest(chat, sampling(max_tokens=2 + 3 * n)) for n, chat in enumerate(CHATS)]

    def interrupt(_place: int, _answer: Answer) -> None:
        raise KeyboardInterrupt

    with opened(tiny_model, cache=tmp_path) as model:
        with pytest.raises(KeyboardInterrupt):
            model.answer(requests, on_answer=interrupt)
        engine = vllm.made[0].llm_engine
        left = len(engine.aborted)
        answers = model.answer(requests)
        assert (model.ledger.answers, model.ledger.cached) == (4, 1)
        assert left >= 1
        assert [type(one) for one in answers] == [Answer] * 4
    with opened(tiny_model, cache=tmp_path, replay=True) as model:
        assert [one.text for one in model.answer(requests)] == [one.text for one in answers]
    with (
        open_model(ModelConfig(model=str(tiny_model), cache=tmp_path, replay=True)) as other,
        pytest.raises(InputError),
    ):
        other.answer(requests)


def test_streams_what_it_answers(tiny_model: Path) -> None:
    with opened(tiny_model) as model:
        [[answer]] = model.answers(CHATS[:1], 1, sampling())
        *pieces, last = (piece for _, piece in model.stream_all([ModelRequest(CHATS[0], sampling())]))
    assert isinstance(last, Answer)
    assert "".join(map(str, pieces)) == answer.text == last.text
    assert (last.tokens_in, last.tokens_out) == (answer.tokens_in, answer.tokens_out)


def test_log_probabilities_are_those_of_temperature_1(tiny_model: Path) -> None:
    requests = [ModelRequest(CHATS[1], sampling(temperature=0), logprobs=True)]
    with opened(tiny_model) as model:
        [answer] = model.answer(requests)
    [expected] = LocalEngine(tiny_model).answer(requests)
    assert answer.logprob == pytest.approx(expected.logprob, abs=1e-5)


@pytest.mark.parametrize(
    ("structured", "held", "called"),
    [
        ("auto", {"json": SCHEMA["schema"]}, "json_schema"),
        ("json_object", {"json_object": True}, "json_object"),
        ("off", None, "off"),
    ],
)
def test_a_schema_is_held_as_the_settings_say(
    tiny_model: Path, vllm: type[fake_vllm.LLM], structured: str, held: Any, called: str
) -> None:
    with opened(tiny_model, structured=structured) as model:
        [answer] = model.answer([ModelRequest(CHATS[0], sampling(), schema=SCHEMA)])
    [given] = vllm.made[0].parameters
    assert answer.structured == called
    assert (None if given.structured_outputs is None else vars(given.structured_outputs)) == held


def test_a_video_is_one_token_and_frames_of_the_size_that_is_read(
    tiny_video_model: Path, vllm: type[fake_vllm.LLM]
) -> None:
    images = np.random.default_rng(0).integers(0, 256, (5, 90, 130, 3), dtype=np.uint8)
    chat = video_messages("tea", Frames(images, np.arange(5) / 3, 3.0))
    with opened(tiny_video_model) as model:
        [[answer]] = model.answers([chat], 1, sampling(temperature=0))
    [[expected]] = LocalEngine(tiny_video_model).answers([chat], 1, sampling(temperature=0))
    assert (answer.text, answer.tokens_in) == (expected.text, expected.tokens_in)
    [llm] = vllm.made
    [prompt] = llm.prompts
    assert prompt["prompt_token_ids"].count(llm.model.config.video_token_id) == 1
    [(shown, times)] = prompt["multi_modal_data"]["video"]
    assert shown.dtype == np.uint8
    assert shown.shape[1] % 28 == shown.shape[2] % 28 == 0
    assert (times["fps"], times["total_num_frames"]) == (3.0, 5)
    assert llm.options["limit_mm_per_prompt"] == {"image": 0, "video": 1}


def test_what_cannot_be_answered_is_refused(tiny_model: Path) -> None:
    long = [{"role": "user", "content": "w1 " * 60}]
    with opened(tiny_model) as model:
        good, bad = model.answer([ModelRequest(CHATS[0], sampling()), ModelRequest(long, sampling())])
        assert isinstance(good, Answer)
        assert isinstance(bad, Refusal)
        assert "48" in bad.reason
        with pytest.raises(InputError, match="48"):
            model.answers([long], 1, sampling())
    with pytest.raises(InputError, match="CUDA_VISIBLE_DEVICES"):
        opened(tiny_model, device="cuda:1")


def test_without_the_package_the_extra_is_named(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(MissingExtra, match=r"\[vllm\]'"):
        opened(tiny_model)
