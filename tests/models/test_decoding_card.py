"""How an answer was sampled: what is sent, what the sampler does, and the card that says it."""

import json
import math
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


def taking_no(*names: str) -> Any:
    """A host that takes none of these fields, and says so."""

    def answer(body: dict[str, Any], _: int) -> Reply:
        wrong = [name for name in names if name in body]
        if not wrong:
            return completion("1. stir")
        message = f"Unrecognized request arguments supplied: {', '.join(wrong)}"
        return Reply(400, json.dumps({"error": {"message": message}}))

    return answer


def asked(url: str, cache: Path | None = None, sampling: SamplingConfig = SAMPLING, **settings: Any) -> Answer:
    with opened(ModelConfig(model="m", endpoint=url, concurrency=2, **settings), cache) as model:
        [outcome] = model.answer([ModelRequest(CHAT, sampling)])
        assert isinstance(outcome, Answer), outcome
        return outcome


def test_every_field_is_sent_so_that_no_host_fills_in_its_own_unless_it_is_imitated(tmp_path: Path) -> None:
    with serving(taking_no()) as server:
        card = asked(server.url, tmp_path).decoding
        imitating = asked(server.url, tmp_path, SAMPLING.model_copy(update={"imitate": "checkpoint"}))
    assert not imitating.cached
    body, other = server.requests
    assert {"top_p", "top_k", "min_p", "repetition_penalty"}.isdisjoint(other)
    wanted = {"temperature": 0.7, "max_tokens": 6, "top_p": 1, "top_k": -1, "min_p": 0, "repetition_penalty": 1}
    assert {name: body.get(name) for name in wanted} == wanted
    assert (body["presence_penalty"], body["frequency_penalty"]) == (0, 0)
    assert card == decoding_of(SAMPLING)
    assert {setting.by for setting in (getattr(card, field.name) for field in fields(Decoding))} == {"ours"}


def test_the_users_field_wins_and_stays(tmp_path: Path) -> None:
    with serving(taking_no("min_p")) as server:
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
    """Every token's share of 4,000 even numbers, against probabilities by the definitions."""
    from recipe.models.decoding import draws

    card = local_card(tmp_path, file)
    temperature = float(card.temperature.value or 0)
    generator = torch.Generator().manual_seed(len(str(file)))
    logits, prompt = 2 * torch.randn(7, generator=generator), [1, 4, 4]
    at = {name: setting.value for name, setting in card.settings().items()}
    even = (torch.arange(4000) + 0.5) / 4000
    choose = draws(even[:, None].expand(-1, 2).contiguous(), temperature, card=card, prompts=[prompt] * 4000)
    chosen = choose(logits.expand(4000, -1), torch.arange(4000), 0)
    shares = torch.bincount(chosen, minlength=7) / 4000
    expected = torch.tensor(by_definition(logits.tolist(), prompt, at))
    torch.testing.assert_close(shares, expected, atol=2 / 4000, rtol=0)
    # The token that was drawn is penalised from now on, in its own completion alone.
    second = choose(logits.expand(4000, -1), torch.arange(4000), 1)
    for first in chosen.unique().tolist():
        rows = (chosen == first).nonzero().squeeze(-1)
        after = torch.tensor(by_definition(logits.tolist(), [*prompt, first], at), dtype=torch.float64)
        mass, numbers = after.cumsum(0)[second[rows]], even[rows].double()
        assert bool((after[second[rows]] > 0).all())
        assert bool((mass >= numbers - 1e-6).all())
        assert bool((mass - after[second[rows]] <= numbers + 1e-6).all())


def by_definition(logits: list[float], prompt: list[int], at: dict[str, Any]) -> list[float]:
    """The probabilities, in plain Python."""
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
            with serving(taking_no()) as server:
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
