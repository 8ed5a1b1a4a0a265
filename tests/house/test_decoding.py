"""The decoding loop, on a model whose every answer is known, and likelihoods against their enumeration."""

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from recipe.models import decoding  # noqa: E402
from recipe.models.checkpoints import load_checkpoint  # noqa: E402
from recipe.models.decoding import complete, token_log_likelihood  # noqa: E402


class Counting(torch.nn.Module):  # type: ignore[misc]
    """The token after n is n + 1; keeps the batch sizes and the pasts that it saw."""

    device = torch.device("cpu")
    config = transformers.Qwen2Config(num_hidden_layers=1)

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []
        self.pasts: set[tuple[int, ...]] = set()

    def forward(self, input_ids: Any, attention_mask: Any, position_ids: Any, past_key_values: Any, **_: Any) -> Any:
        keys = input_ids[:, None, :, None].float()
        kept, _ = past_key_values.update(keys, keys, 0)
        for row, mask in zip(kept[:, 0, :, 0].long().tolist(), attention_mask.bool().tolist(), strict=True):
            seen = [token for token, shown in zip(row, mask, strict=True) if shown]
            self.pasts.add(tuple(seen))
        assert position_ids[:, -1].tolist() == (attention_mask.sum(1) - 1).tolist()
        self.batches.append(len(input_ids))
        return SimpleNamespace(logits=torch.nn.functional.one_hot(input_ids[:, -1:] + 1, 40).float())


@pytest.fixture
def model() -> Counting:
    return Counting()


def likeliest(logits: Any, _rows: Any, _step: int) -> Any:
    return logits.argmax(-1)


PROMPTS = [[1, 2, 3, 4, 5], [7], [0], [7]]


@pytest.mark.parametrize("room", [1, 32])
def test_ended_completions_leave_and_others_go_on(room: int, model: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "CACHE_ROOM", room)
    written = complete(model, PROMPTS, likeliest, ends=[9], longest=6)
    assert written == [[6, 7, 8, 9], [8, 9], [1, 2, 3, 4, 5, 6], [8, 9]]
    assert model.batches == [3, 4, 2, 2, 1, 1]  # equal prompts are read once
    assert {(1, 2, 3, 4, 5, 6, 7, 8), (7, 8), (0, 1, 2, 3, 4, 5)} <= model.pasts


def test_rows_wait_in_the_cache_until_many_have_ended(model: Counting) -> None:
    prompts = [[n] for n in (6, 5, 0, 1, 2, 0, 1, 2, 0, 1)]
    written = complete(model, prompts, likeliest, ends=[9], longest=7)
    assert [len(row) for row in written] == [3, 4, 7, 7, 7, 7, 7, 7, 7, 7]
    assert model.batches == [5, 10, 10, 10, 8, 8, 8]


def test_the_caller_is_asked_for_live_completions_only(model: Counting) -> None:
    asked = []

    def choose(logits: Any, rows: Any, step: int) -> Any:
        asked.append((step, rows.tolist()))
        assert len(logits) == len(rows)
        return logits.argmax(-1)

    complete(model, [[n] for n in (6, 5, 0, 1, 2, 0)], choose, ends=[9], longest=5)
    six = [0, 1, 2, 3, 4, 5]
    assert asked == [(0, six), (1, six), (2, six), (3, six[1:]), (4, six[2:])]


def test_the_callers_choice_is_what_is_read_next(model: Counting) -> None:
    def skip(logits: Any, rows: Any, _step: int) -> Any:
        return logits.argmax(-1) + rows

    assert complete(model, [[0], [0], [0]], skip, ends=[39], longest=3) == [[1, 2, 3], [2, 4, 6], [3, 6, 9]]


@pytest.mark.parametrize(("context", "lengths"), [(6, [1, 5, 5, 5]), (8, [3, 7, 7, 7]), (None, [9, 9, 9, 9])])
def test_a_completion_stops_where_the_context_ends(model: Counting, context: int | None, lengths: list[int]) -> None:
    written = complete(model, PROMPTS, likeliest, ends=[], longest=9, context=context)
    assert [len(row) for row in written] == lengths


END = 1
WORDS = [word for word in range(32) if word != END]


def weigh(folder: Path, prompt: list[int], completions: list[tuple[int, ...]]) -> Any:
    model = load_checkpoint(str(folder)).model.eval()
    with torch.no_grad():
        return token_log_likelihood(model, [prompt] * len(completions), completions).sum(-1)


def test_all_that_can_be_written_has_probability_one(tiny_model: Path) -> None:
    every = [(END,), *((word, END) for word in WORDS), *itertools.product(WORDS, WORDS)]
    assert weigh(tiny_model, [5, 9, 3], every).exp().sum().item() == pytest.approx(1, abs=1e-5)


def test_a_completion_without_tokens_is_certain(tiny_model: Path) -> None:
    assert weigh(tiny_model, [5], [(), (3,)])[0] == 0
    assert weigh(tiny_model, [5], [()]).tolist() == [0]


@pytest.mark.parametrize("places", [1, 5, 9])
def test_a_large_vocabulary_is_weighed_in_parts(places: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    words = 151_936  # of Qwen2.5
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = transformers.Qwen2Config(vocab_size=words, num_hidden_layers=2, initializer_range=0.3, **shape)
    large = transformers.Qwen2ForCausalLM(config).eval()
    held: list[int] = []
    large.lm_head.register_forward_hook(lambda _module, _read, logits: held.append(logits.numel()))
    prompts = [[3, 150_000, 7], [5], [5], [151_000, 2]]
    said = [[9, 151_935, 4, 8, 1, 2], [0], [], [77, 150_123, 6]]
    with torch.no_grad():
        whole = token_log_likelihood(large, prompts, said, temperature=0.7)
        assert max(held) == 4 * 5 * words
        monkeypatch.setattr(decoding, "LOGITS_AT_ONCE", places * words)
        held.clear()
        parts = token_log_likelihood(large, prompts, said, temperature=0.7)
    assert max(held) <= places * words
    torch.testing.assert_close(parts, whole, rtol=1e-6, atol=1e-6)
    assert ((whole == 0) == torch.tensor([[at >= len(row) for at in range(6)] for row in said])).all()
