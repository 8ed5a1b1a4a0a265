"""How an answer was sampled: what is sent, what the sampler does, and the card that says it."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from endpoint_server import Reply, completion, opened, serving

from recipe.artifacts import to_json
from recipe.config import ModelConfig, SamplingConfig
from recipe.errors import InputError
from recipe.models.protocol import Answer, ModelRequest
from recipe.models.sampling import Decoding, Setting, decoding_note, decoding_of, distinct_decodings, read_decoding

pytest.importorskip("openai")

CHAT = [{"role": "user", "content": "w1 w2 w3"}]
SAMPLING = SamplingConfig(temperature=0.7, max_tokens=6)
FILE = {"temperature": 0.6, "top_k": 3, "top_p": 0.9, "min_p": 0.05, "repetition_penalty": 1.3, "do_sample": True}


def refusing(*names: str, form: str = "openai") -> Any:
    """A host that takes none of these fields, and says so in the words of a kind of host."""

    def answer(body: dict[str, Any], _: int) -> Reply:
        wrong = [name for name in names if name in body]
        if not wrong:
            return completion("1. stir")
        messages: dict[str, Any] = {
            "openai": {"error": {"message": f"Unrecognized request arguments supplied: {', '.join(wrong)}"}},
            "one": {"error": {"message": f"property '{wrong[0]}' is unsupported"}},
            "fastapi": {"detail": [{"type": "extra_forbidden", "loc": ["body", wrong[0]], "input": body}]},
        }
        return Reply(422 if form == "fastapi" else 400, json.dumps(messages[form]))

    return answer


def asked(url: str, cache: Path | None = None, sampling: SamplingConfig = SAMPLING, **settings: Any) -> Answer:
    with opened(ModelConfig(model="m", endpoint=url, concurrency=2, **settings), cache) as model:
        [outcome] = model.answer([ModelRequest(CHAT, sampling)])
        assert isinstance(outcome, Answer), outcome
        return outcome


def test_every_field_is_sent_so_that_no_host_fills_in_its_own() -> None:
    with serving(refusing()) as server:
        card = asked(server.url).decoding
    [body] = server.requests
    wanted = {"temperature": 0.7, "max_tokens": 6, "top_p": 1, "top_k": -1, "min_p": 0, "repetition_penalty": 1}
    assert {name: body.get(name) for name in wanted} == wanted
    assert (body["presence_penalty"], body["frequency_penalty"]) == (0, 0)
    assert card == decoding_of(SAMPLING)
    assert {setting.by for setting in (getattr(card, field.name) for field in fields(Decoding))} == {"ours"}


@pytest.mark.parametrize("form", ["openai", "one", "fastapi"])
def test_a_refused_field_is_left_out_and_unknown(form: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lacking = ("top_k", "min_p", "repetition_penalty")
    with (
        serving(refusing(*lacking, form=form)) as server,
        opened(ModelConfig(model="m", endpoint=server.url), tmp_path) as model,
    ):
        for sample in range(3):
            [answer] = model.answer([ModelRequest(CHAT, SAMPLING, sample)])
        again = model.answer([ModelRequest(CHAT, SAMPLING)])[0]
    assert isinstance(answer, Answer)
    assert answer.decoding is not None
    assert [name for name in to_json(answer.decoding) if getattr(answer.decoding, name).by == "host"] == [
        "top_k", "min_p", "repetition_penalty"
    ]  # fmt: skip
    assert isinstance(again, Answer)
    assert again.cached
    assert again.decoding == answer.decoding
    named = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert all(sum(name in line for line in named) == 1 for name in lacking)
    assert len(named) == 3
    # One refusal for each field that is named alone, and one for all that are named at once.
    assert len(server.requests) == 3 + (1 if form == "openai" else 3)
    assert set(lacking).isdisjoint(server.requests[-1])
    assert server.requests[-1]["top_p"] == 1


def test_the_limit_of_tokens_is_sent_by_the_name_that_the_host_wants(caplog: pytest.LogCaptureFixture) -> None:
    def newer(body: dict[str, Any], _: int) -> Reply:
        if "max_tokens" in body:
            message = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
            return Reply(400, json.dumps({"error": {"message": message, "param": "max_tokens"}}))
        return completion("1. stir")

    with serving(newer) as server, opened(ModelConfig(model="m", endpoint=server.url)) as model:
        for sample in range(2):
            [answer] = model.answer([ModelRequest(CHAT, SAMPLING, sample)])
    assert [body.get("max_completion_tokens") for body in server.requests] == [None, 6, 6]
    assert isinstance(answer, Answer)
    assert answer.decoding == decoding_of(SAMPLING)
    [line] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "max_completion_tokens" in line


def test_a_chat_that_is_too_long_drops_no_field() -> None:
    said = "'max_tokens' or 'max_completion_tokens' is too large: 6. The model's maximum context length is 4 (top_p 1)."
    with (
        serving(lambda *_: Reply(400, json.dumps({"error": {"message": said}}))) as server,
        opened(ModelConfig(model="m", endpoint=server.url)) as model,
    ):
        model.answer([ModelRequest(CHAT, SAMPLING)])
    assert len(server.requests) == 1


def test_the_users_field_wins_and_stays(tmp_path: Path) -> None:
    with serving(refusing("min_p")) as server:
        own = asked(server.url, tmp_path, extra_body={"top_k": 20, "temperature": 0.1}).decoding
        assert own is not None
        assert (own.top_k, own.temperature) == (Setting(20, "user"), Setting(0.1, "user"))
        with (
            pytest.raises(InputError, match="min_p"),
            opened(ModelConfig(model="m", endpoint=server.url, extra_body={"min_p": 0.2})) as model,
        ):
            model.answers([CHAT], 1, SAMPLING)
        with pytest.raises(InputError, match="top_k"):
            asked(server.url, extra_body={"top_k": "many"})
    assert server.requests[-1]["min_p"] == 0.2


def test_another_card_is_another_answer(tmp_path: Path) -> None:
    with serving(refusing()) as server:
        for sampling in (SAMPLING, SamplingConfig(temperature=0.7, max_tokens=6, imitate="checkpoint")):
            assert not asked(server.url, tmp_path, sampling).cached
            assert asked(server.url, tmp_path, sampling).cached
    assert len(server.requests) == 2
    assert {"top_p", "top_k", "min_p", "repetition_penalty"}.isdisjoint(server.requests[1])


def test_cards_are_read_back_and_others_are_refused() -> None:
    card = decoding_of(SAMPLING, extra_body={"top_k": -1})
    assert read_decoding(json.loads(json.dumps(to_json(card)))) == card
    assert card.top_k == Setting(0, "user")
    for wrong in ({}, to_json(card) | {"best_of": [1, "ours"]}, to_json(card) | {"top_p": ["1", "ours"]}, None):
        with pytest.raises(InputError):
            read_decoding(wrong)


def test_a_note_names_the_fields_in_which_systems_differ() -> None:
    plain, names = decoding_of(SAMPLING), ("a", "b")
    wide = decoding_of(SAMPLING, extra_body={"top_p": 1.0})
    narrow = decoding_of(SAMPLING, extra_body={"top_p": 0.8})
    unknown = decoding_of(SamplingConfig(temperature=0.7, max_tokens=6, imitate="checkpoint"))
    assert decoding_note((plain,), (wide,), names) is None
    differing = decoding_note((plain,), (narrow,), names)
    assert differing is not None
    assert "top_p" in differing
    assert "top_k" not in differing
    assert "0.8" in differing
    open_fields = decoding_note((plain,), (unknown,), names)
    assert open_fields is not None
    assert "repetition_penalty" in open_fields
    foreign = decoding_note((plain,), distinct_decodings([plain, None]), names)
    assert foreign is not None
    assert "not known" in foreign
    assert distinct_decodings([plain, narrow, plain]) == (plain, narrow)


torch = pytest.importorskip("torch")


def local_card(folder: Path, file: dict[str, Any], **settings: Any) -> Decoding:
    from recipe.models.checkpoints import sampling_settings

    (folder / "generation_config.json").write_text(json.dumps(file))
    return decoding_of(SamplingConfig(imitate="checkpoint", **settings), lambda: sampling_settings(str(folder)))


def test_a_checkpoint_is_imitated_by_its_file(tmp_path: Path) -> None:
    from recipe.models.checkpoints import sampling_settings

    card = local_card(tmp_path, FILE)
    assert {name: getattr(card, name).value for name in FILE if name != "do_sample"} == {
        name: value for name, value in FILE.items() if name != "do_sample"
    }
    assert card.max_tokens.by == card.frequency_penalty.by == "ours"
    assert local_card(tmp_path, FILE, temperature=0.9).temperature == Setting(0.9, "ours")
    silent = local_card(tmp_path, {"top_k": -1, "top_p": None})
    assert (silent.top_k, silent.top_p) == (Setting(0, "checkpoint"), Setting(1.0, "ours"))
    assert silent.temperature == Setting(0.7, "ours")
    for wrong in ({"top_p": 0}, {"top_k": 2.5}, {"temperature": "warm"}, {"repetition_penalty": -1}, {"min_p": True}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            local_card(tmp_path, wrong)
    (tmp_path / "generation_config.json").unlink()
    with pytest.raises(InputError, match="imitate"):
        sampling_settings(str(tmp_path))


@pytest.mark.parametrize(
    "file",
    [
        {},
        {"temperature": 1.7},
        {"top_k": 3},
        {"top_p": 0.6},
        {"min_p": 0.3},
        {"repetition_penalty": 1.8},
        {"top_k": 1},
        {"top_p": 1e-6},
        FILE,
        FILE | {"top_k": 5, "top_p": 0.5, "min_p": 0.4, "repetition_penalty": 0.6},
    ],
    ids=str,
)
def test_the_sampler_draws_what_the_definitions_say(file: dict[str, Any], tmp_path: Path) -> None:
    """Every token's share of 4,000 even numbers, against probabilities by the definitions and by transformers."""
    from transformers import GenerationConfig, LogitsProcessorList
    from transformers.generation import logits_process as hf

    from recipe.models.decoding import draws

    card = local_card(tmp_path, file)
    temperature = float(card.temperature.value or 0)
    generator = torch.Generator().manual_seed(len(str(file)))
    logits, prompt = 2 * torch.randn(7, generator=generator), [1, 4, 4]
    at = {name: setting[0] for name, setting in to_json(card).items()}
    whole = GenerationConfig(**{name: at[name] for name in FILE if name in at}, do_sample=True)
    theirs = LogitsProcessorList([hf.RepetitionPenaltyLogitsProcessor(whole.repetition_penalty)])
    theirs.append(hf.TemperatureLogitsWarper(whole.temperature))
    theirs += [hf.TopKLogitsWarper(whole.top_k)] if whole.top_k else []
    theirs += [hf.TopPLogitsWarper(whole.top_p), hf.MinPLogitsWarper(whole.min_p)]
    even = (torch.arange(4000) + 0.5) / 4000
    choose = draws(even[:, None].expand(-1, 2).contiguous(), temperature, card=card, prompts=[prompt] * 4000)
    chosen = choose(logits.expand(4000, -1), torch.arange(4000), 0)
    expected = theirs(torch.tensor([prompt]), logits[None].clone()).softmax(-1)[0]
    assert torch.equal(expected > 0, torch.tensor(by_definition(logits.tolist(), prompt, at)) > 0)
    torch.testing.assert_close(expected, torch.tensor(by_definition(logits.tolist(), prompt, at)))
    shares = torch.bincount(chosen, minlength=7) / 4000
    torch.testing.assert_close(shares, expected, atol=2 / 4000, rtol=0)
    # The token that was drawn is penalised from now on, in its own completion alone.
    second = choose(logits.expand(4000, -1), torch.arange(4000), 1)
    for first in chosen.unique().tolist():
        rows = (chosen == first).nonzero().squeeze(-1)
        after = theirs(torch.tensor([[*prompt, first]]), logits[None].clone()).softmax(-1)[0]
        mass = after.double().cumsum(0)
        numbers = even[rows].double() * mass[-1]
        picked = mass[second[rows]]
        assert bool((after[second[rows]] > 0).all())
        assert bool((picked >= numbers - 1e-6).all())
        assert bool((picked - after.double()[second[rows]] <= numbers + 1e-6).all())


def by_definition(logits: list[float], prompt: list[int], at: dict[str, float]) -> list[float]:
    """The probabilities, in plain Python."""
    import math

    penalty = at["repetition_penalty"]
    raw = [
        (value / penalty if value > 0 else value * penalty) if token in prompt else value
        for token, value in enumerate(logits)
    ]
    weights = {token: math.exp(value / at["temperature"]) for token, value in enumerate(raw)}

    def shares() -> dict[int, float]:
        total = sum(weights.values())
        return {token: weight / total for token, weight in weights.items()}

    ranked = sorted(weights, key=lambda token: -weights[token])
    if at["top_k"]:
        weights = {token: weights[token] for token in ranked[: int(at["top_k"])]}
    before, kept = 0.0, {}
    for token, share in sorted(shares().items(), key=lambda item: -item[1]):
        if before < at["top_p"] or not kept:
            kept[token] = weights[token]
        before += share
    weights = kept
    most = max(shares().values())
    weights = {token: weights[token] for token, share in shares().items() if share >= at["min_p"] * most}
    found = shares()
    return [found.get(token, 0.0) for token in range(len(logits))]


def test_local_vllm_and_endpoint_hold_one_card(tiny_model: Path, tmp_path: Path) -> None:
    import fake_vllm

    from recipe.models.local import LocalEngine
    from recipe.models.model import open_model

    file = tiny_model / "generation_config.json"
    kept = file.read_text()
    file.write_text(json.dumps(json.loads(kept) | {"top_k": 4, "repetition_penalty": 1.9, "top_p": 0.9}))
    try:
        for sampling, known in ((SAMPLING, True), (SAMPLING.model_copy(update={"imitate": "checkpoint"}), False)):
            greedy = sampling.model_copy(update={"temperature": 0.0})
            requests = [ModelRequest(CHAT, one) for one in (sampling, greedy)]
            local = LocalEngine(tiny_model).answer(requests)
            with fake_vllm.installed() as llm, open_model(ModelConfig(model=str(tiny_model), engine="vllm")) as engine:
                held = engine.answer(requests)
                assert {one.top_k for one in llm.made[0].parameters} == ({0} if known else {4})
            assert isinstance(local[1], Answer)
            assert isinstance(held[1], Answer)
            assert held[1].text == local[1].text
            with serving(refusing()) as server:
                far = asked(server.url, sampling=sampling).decoding
            assert isinstance(local[0], Answer)
            assert isinstance(held[0], Answer)
            assert local[0].decoding == held[0].decoding
            assert (far == local[0].decoding) is known
            last = [piece for _, piece in LocalEngine(tiny_model).stream_all(requests) if isinstance(piece, Answer)]
            assert [one.text for one in last] == [one.text for one in local if isinstance(one, Answer)]
            assert last[0].decoding == local[0].decoding
    finally:
        file.write_text(kept)
