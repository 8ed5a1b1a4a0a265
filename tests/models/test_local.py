"""The local engine on a tiny random model: the sampling law, and that batching changes nothing."""

import shutil
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tests.models.asking import texts_of  # noqa: E402

from recipe.config import SamplingConfig  # noqa: E402
from recipe.errors import ComputeError, InputError  # noqa: E402
from recipe.models.checkpoints import load_checkpoint  # noqa: E402
from recipe.models.decoding import SHARED_HEAD, complete, draws, token_log_likelihood  # noqa: E402
from recipe.models.local import LocalEngine  # noqa: E402
from recipe.models.protocol import Answer, ModelRequest, Refusal  # noqa: E402

WORDS = ["<pad>", "<end>", "user", "assistant", *(f"w{n}" for n in range(28))]
CHATS = [[{"role": "user", "content": " ".join(f"w{n % 28}" for n in range(k, 2 * k))}] for k in (1, 5, 2, 9)]


@pytest.fixture(scope="module")
def engine(tiny_model: Path) -> LocalEngine:
    return LocalEngine(tiny_model, device="cpu")


def sampling(**kept: object) -> SamplingConfig:
    return SamplingConfig.model_validate({"temperature": 1.0, "max_tokens": 20, **kept})


def test_the_seed_decides(engine: LocalEngine) -> None:
    first = texts_of(engine, CHATS, 3, sampling(seed=1))
    assert texts_of(engine, CHATS, 3, sampling(seed=1)) == first
    assert texts_of(engine, CHATS, 3, sampling(seed=2)) != first
    assert len({text for texts in first for text in texts}) > 6


@pytest.mark.parametrize("batch_size", [1, 5])
def test_a_completion_does_not_depend_on_its_batch(engine: LocalEngine, batch_size: int) -> None:
    whole = texts_of(engine, CHATS, 4, sampling(batch_size=7))
    assert texts_of(engine, CHATS, 4, sampling(batch_size=batch_size)) == whole
    alone = texts_of(engine, CHATS[3:], 4, sampling(batch_size=batch_size))
    assert alone == whole[3:]
    assert [texts[:2] for texts in whole] == texts_of(engine, CHATS, 2, sampling(batch_size=batch_size))


def test_greedy_is_what_transformers_writes(engine: LocalEngine, tiny_model: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model)
    written = texts_of(engine, CHATS, 1, sampling(temperature=0))
    for chat, [text] in zip(CHATS, written, strict=True):
        prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        output = model.generate(**prompt, max_new_tokens=20, do_sample=False)
        assert text == tokenizer.decode(output[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)


def test_answers_tell_what_they_took(engine: LocalEngine, tiny_model: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model)
    answers = engine.answers(CHATS, 3, sampling(max_tokens=4))
    assert [[one.text for one in group] for group in answers] == texts_of(engine, CHATS, 3, sampling(max_tokens=4))
    for chat, group in zip(CHATS, answers, strict=True):
        prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)["input_ids"]
        for one in group:
            assert (one.tokens_in, one.cached) == (len(prompt), False)
            # Special tokens, the end among them, are counted and leave no word.
            assert max(1, len(one.text.split())) <= one.tokens_out <= 4
            assert one.seconds >= 0


def test_first_tokens_follow_the_softmax(engine: LocalEngine, tiny_model: Path) -> None:
    count, chat = 4000, CHATS[:1]
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_model)
    with torch.inference_mode():
        logits = model(torch.tensor([[2, 5, 3]])).logits[0, -1]
    expected = torch.softmax(logits / 0.8, -1).numpy()
    [texts] = texts_of(engine, chat, count, sampling(max_tokens=1, temperature=0.8, batch_size=4000))
    counts = np.array([texts.count(word) for word in WORDS])
    shown = np.array([not word.startswith("<") for word in WORDS])
    chi_square = ((counts - count * expected) ** 2 / (count * expected))[shown].sum()
    assert chi_square < 60  # 99.9% point of 29 degrees of freedom is 58


def test_choosing_inverts_the_cumulative_softmax() -> None:
    logits = torch.log(torch.tensor([[0.2, 0.0, 0.5, 0.3]])).repeat(6, 1)
    uniform = torch.tensor([0.0, 0.19, 0.21, 0.69, 0.71, 1.0])
    choose = draws(uniform[:, None], 1.0)
    assert choose(logits, torch.arange(6), 0).tolist() == [0, 0, 2, 2, 3, 3]
    assert choose(logits[:2], torch.tensor([4, 1]), 0).tolist() == [3, 0]  # numbers go with completions, not places
    assert draws(uniform[:5, None], 1.0, banned=[0, 3])(logits[:5], torch.arange(5), 0).tolist() == [2] * 5
    impossible = torch.log(torch.tensor([[0.0, 1.0]]))
    assert draws(torch.tensor([[0.0]]), 1.0)(impossible, torch.tensor([0]), 0).tolist() == [1]
    with pytest.raises(ComputeError, match="not a number"):
        choose(logits * torch.nan, torch.arange(6), 0)


def test_completions_end_at_the_limit_and_at_the_context(engine: LocalEngine) -> None:
    [[short]] = texts_of(engine, CHATS[:1], 1, sampling(max_tokens=3))
    assert len(short.split()) <= 3
    texts = texts_of(engine, [CHATS[3]] * 2, 20, sampling(max_tokens=500))
    assert max(len(text.split()) for group in texts for text in group) <= 48 - 11


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("common", [SHARED_HEAD - 1, SHARED_HEAD + 1])
def test_a_common_head_is_read_once_and_changes_nothing(tiny_model: Path, common: int, temperature: float) -> None:
    """Likelihoods are sums of log softmax, and greedy completions those of transformers, whatever is shared."""
    model = load_checkpoint(str(tiny_model)).model.eval()
    head = [4 + n % 28 for n in range(common)]
    prompts = [[*head, *rest, 3] for rest in ([], [9, 11], [12], [12, 9])]
    said = [[5, 6, 7, 1], [1], [11, 1], [9, 9, 9, 9, 1]]
    read: list[int] = []
    hook = model.register_forward_pre_hook(lambda _, __, kept: read.append(kept["input_ids"].numel()), with_kwargs=True)
    with torch.no_grad():
        found = token_log_likelihood(model, prompts, said, temperature).sum(-1).tolist()
        assert read[:2] == [common, 4 * 3] if common >= SHARED_HEAD else read[0] == 4 * (common + 3)
        written = complete(model, prompts * 2, lambda logits, *_: logits.argmax(-1), ends=[1], longest=8)
    hook.remove()
    assert written[:4] == written[4:]
    for prompt, answer, total, completion in zip(prompts, said, found, written, strict=False):
        with torch.no_grad():
            nats = torch.log_softmax(model(torch.tensor([prompt + answer])).logits[0].double() / temperature, -1)
        expected = sum(nats[len(prompt) - 1 + place, token] for place, token in enumerate(answer))
        assert total == pytest.approx(float(expected), abs=1e-4)
        output = model.generate(torch.tensor([prompt]), max_new_tokens=8, do_sample=False)
        assert completion == output[0, len(prompt) :].tolist()


@pytest.mark.gpu
def test_a_gpu_completes_and_repeats_itself(tiny_model: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    engine = LocalEngine(tiny_model, device="cuda")
    first = texts_of(engine, CHATS, 3, sampling(seed=1))
    assert texts_of(engine, CHATS, 3, sampling(seed=1)) == first
    assert [len(texts) for texts in first] == [3] * len(CHATS)


def test_a_chat_that_is_too_long_is_refused_alone(engine: LocalEngine) -> None:
    full = [{"role": "user", "content": "w1 " * 60}]
    found = engine.outcomes([full, *CHATS, full], 2, sampling(), schema={"name": "plan", "schema": {}})
    assert [[type(one) for one in group] for group in (found[0], found[-1])] == [[Refusal] * 2] * 2
    assert "tokens leaves no room" in found[0][0].reason
    assert [[one.text for one in group] for group in found[1:-1]] == texts_of(engine, CHATS, 2, sampling())
    assert engine.outcomes([full], 1, sampling()) == [[found[0][0]]]
    with pytest.raises(InputError, match="leaves no room"):
        texts_of(engine, [full], 1, sampling())


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_log_probabilities_are_those_of_temperature_one(
    engine: LocalEngine, tiny_model: Path, temperature: float
) -> None:
    asked = sampling(temperature=temperature, batch_size=3, max_tokens=5)
    found = engine.outcomes(CHATS, 2, asked, logprobs=True)
    checkpoint = load_checkpoint(str(tiny_model))
    compared = 0
    for chat, answer in ((chat, answer) for chat, group in zip(CHATS, found, strict=True) for answer in group):
        # The words tell the tokens, unless one of the tokens that leave no word stands between them.
        tokens = [*map(WORDS.index, answer.text.split()), *([1] if answer.finish == "stop" else [])]
        if len(tokens) < answer.tokens_out:
            continue
        prompt = checkpoint.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        with torch.no_grad():
            nats = torch.log_softmax(checkpoint.model(torch.tensor([prompt + tokens])).logits[0].double(), -1)
        mean = sum(float(nats[len(prompt) - 1 + at, token]) for at, token in enumerate(tokens)) / len(tokens)
        assert answer.logprob == pytest.approx(mean, abs=1e-4)
        compared += 1
    assert compared > 1
    plain = engine.outcomes(CHATS, 2, asked)
    assert [[one.logprob for one in group] for group in plain] == [[None] * 2] * len(CHATS)
    assert [[one.text for one in group] for group in plain] == [[one.text for one in group] for group in found]


def test_completions_written_side_by_side_are_those_of_answer(engine: LocalEngine) -> None:
    asked = [ModelRequest(chat, sampling(seed=seed), at) for seed in (1, 2) for chat in CHATS for at in range(2)]
    whole = [outcome for one in asked for outcome in engine.answer([one])]
    written: dict[int, list[str]] = {place: [] for place in range(len(asked))}
    ended: dict[int, Answer | Refusal] = {}
    for place, piece in engine.stream_all(asked):
        assert place not in ended
        if isinstance(piece, str):
            written[place].append(piece)
        else:
            ended[place] = piece
    for place, answer in enumerate(whole):
        assert isinstance(answer, Answer)
        assert "".join(written[place]) == answer.text
        last = ended[place]
        assert isinstance(last, Answer)
        assert (last.text, last.tokens_in, last.tokens_out) == (answer.text, answer.tokens_in, answer.tokens_out)


def test_a_completion_that_is_stopped_gets_no_further_token(engine: LocalEngine) -> None:
    asked = [ModelRequest(CHATS[0], sampling(seed=5), at) for at in range(4)]
    whole = [answer.text for answer in engine.answers([CHATS[0]], 4, sampling(seed=5))[0]]
    stopped, ended, late = set[int](), set[int](), list[object]()
    for place, piece in engine.stream_all(asked, lambda at: at in stopped):
        if place in stopped:
            late.append(piece)
        elif not isinstance(piece, str):
            ended.add(place)
        elif place == 1:
            stopped.add(1)
    assert 1 in stopped
    assert late == []
    assert ended == {0, 2, 3}
    assert len({len(text) for text in whole}) > 1


def test_a_chat_that_the_template_refuses_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_model, tmp_path / "m")
    only = "{% for m in messages %}{% if m.role != 'user' %}{{ raise_exception('users only') }}{% endif %}{% endfor %}"
    (folder / "chat_template.jinja").write_text(only + (tiny_model / "chat_template.jinja").read_text())
    engine = LocalEngine(folder)
    assert texts_of(engine, [[{"role": "user", "content": "w1"}]], 1, SamplingConfig(max_tokens=2))
    with pytest.raises(InputError, match=f"'{folder}'.*'users only'"):
        texts_of(engine, [[{"role": "system", "content": "w1"}]], 1, SamplingConfig(max_tokens=2))


@pytest.mark.parametrize("device", ["nowhere", "cuda:99"])
def test_a_device_that_is_not_there_is_one_sentence(tiny_model: Path, device: str) -> None:
    with pytest.raises(InputError, match=f"device '{device}' is not on this machine; give one of .*cpu"):
        LocalEngine(tiny_model, device=device)
