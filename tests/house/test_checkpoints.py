"""Loading language models: what is no model is said plainly, and nothing is written on the screen."""

import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

from recipe.errors import InputError  # noqa: E402
from recipe.models.checkpoints import (  # noqa: E402
    decode_completions,
    end_of_turn,
    end_tokens,
    load_checkpoint,
    thought_opening,
)
from recipe.plan_text import plan_steps  # noqa: E402


def without(model: Path, target: Path, name: str) -> str:
    shutil.copytree(model, target, ignore=shutil.ignore_patterns(name))
    return str(target)


def test_a_folder_is_loaded_in_silence(tiny_model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    checkpoint = load_checkpoint(str(tiny_model), dtype=torch.bfloat16, attention="eager")
    assert checkpoint.model.dtype == torch.bfloat16
    assert checkpoint.model.config._attn_implementation == "eager"
    assert checkpoint.tokenizer.padding_side == "left"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["runs/no/such/model", "./model", "/no/such/model"])
def test_a_missing_folder_is_not_looked_for_on_the_hub(name: str) -> None:
    with pytest.raises(InputError, match="does not exist; check the path, or train the model first"):
        load_checkpoint(name)


def test_a_folder_around_the_model_names_the_one_inside(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no model in this folder; give a folder with config\.json"):
        load_checkpoint(str(tmp_path))
    (tmp_path / "model").symlink_to(tiny_model)
    with pytest.raises(InputError, match=rf"there is no model in this folder; give {tmp_path / 'model'}\."):
        load_checkpoint(str(tmp_path))


def test_a_folder_without_weights_says_what_belongs_there(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no complete model .*model\.safetensors"):
        load_checkpoint(without(tiny_model, tmp_path / "m", "*.safetensors"))


def test_a_model_without_a_chat_template_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no chat template"):
        load_checkpoint(without(tiny_model, tmp_path / "m", "chat_template.jinja"))


@pytest.mark.parametrize(
    ("offline", "message"),
    [("1", "HF_HUB_OFFLINE and the model is not in the local cache"), ("0", r"from the hub \(nothing of that name\)")],
)
def test_what_the_hub_does_not_give_is_named(offline: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object, **__: object) -> None:
        raise OSError("nothing of that name\nand more")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", absent)
    monkeypatch.setenv("HF_HUB_OFFLINE", offline)
    with pytest.raises(InputError, match=rf"'nobody/nothing': .*{message}.*download the model once while online"):
        load_checkpoint("nobody/nothing")


def test_a_model_that_sees_comes_with_its_processor(tiny_video_model: Path, tiny_model: Path) -> None:
    checkpoint = load_checkpoint(str(tiny_video_model), attention="eager")
    assert checkpoint.model.config.model_type == "qwen2_5_vl"
    assert checkpoint.model.config.vision_config._attn_implementation == "eager"
    assert checkpoint.video is not None
    assert checkpoint.video.max_pixels == 84 * 84
    assert load_checkpoint(str(tiny_model)).video is None


def test_a_model_that_sees_needs_the_settings_of_its_processor(tiny_video_model: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no settings of a video processor; add the video_preprocessor_config\.json"):
        load_checkpoint(without(tiny_video_model, tmp_path / "m", "*preprocessor_config.json"))


def test_a_chat_template_may_lie_apart(tiny_video_model: Path, tmp_path: Path) -> None:
    folder = Path(without(tiny_video_model, tmp_path / "m", "*.jinja"))
    (folder / "chat_template.json").write_text('{"chat_template": "{{ messages }}"}')
    assert load_checkpoint(str(folder)).tokenizer.chat_template == "{{ messages }}"
    (folder / "chat_template.json").write_text("{}")
    with pytest.raises(InputError, match=r"chat_template\.json: it holds no template; restore"):
        load_checkpoint(str(folder))


CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
ASK = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
GEMMA = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('no system turn') }}{% endif %}"
    "{% for m in messages %}<start_of_turn>{{ m.role }}\n{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
)
STRICT = "{% if messages[0].role != 'system' %}{{ raise_exception('a system turn first') }}{% endif %}" + CHATML
LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}"
)
MISTRAL = (
    "{{ bos_token }}{% for m in messages if m.role != 'system' %}{% if m.role == 'user' %}[INST] {{ m.content }} "
    "[/INST]{% else %} {{ m.content }} {{ eos_token }}{% endif %}{% endfor %}"
)
PHI3 = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}"
)
COHERE = "{% for m in messages %}<|start|>{{ m.content }}<|end_response|><|end_of_turn|>{% endfor %}"
THINKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}<think>\n\n</think>\n\n{% endif %}"
    "{{ m.content.split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
)
ALPACA = "{% for m in messages %}### {{ m.role }}:\n{{ m.content }}\n\n{% endfor %}"
"""Ends a turn with whitespace."""
GLM = "[gMASK]{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}"
"""Ends no turn: the next one begins."""


def spelled(template: str, special: tuple[str, ...], eos: str | None, plain: tuple[str, ...] = ()) -> Any:
    """A tokenizer of bytes with this template, these special tokens, and added ones that are not special."""
    bytes_ = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    core = tokenizers.Tokenizer(tokenizers.models.BPE({letter: n for n, letter in enumerate(sorted(bytes_))}, []))
    core.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = tokenizers.decoders.ByteLevel()
    core.add_tokens(list(plain))
    named = {} if eos is None else {"eos_token": eos}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", additional_special_tokens=list(special), chat_template=template, **named
    )


CHAT = ("<|im_start|>", "<|im_end|>")
FORMS = {
    "qwen base": (CHATML + ASK, CHAT, "<|endoftext|>", "<|im_end|>"),
    "qwen instruct": (CHATML + ASK, CHAT, "<|im_end|>", "<|im_end|>"),
    "without an eos": (CHATML + ASK, CHAT, None, "<|im_end|>"),
    "always asks": (CHATML + "<|im_start|>assistant\n", CHAT, "<|endoftext|>", "<|im_end|>"),
    "thinking": (THINKING, (*CHAT, "<think>", "</think>"), "<|endoftext|>", "<|im_end|>"),
    "system first": (STRICT, CHAT, "<|endoftext|>", "<|im_end|>"),
    "gemma": (GEMMA, ("<start_of_turn>", "<end_of_turn>"), "<eos>", "<end_of_turn>"),
    "llama 3": (LLAMA3, ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"), "<|end_of_text|>", "<|eot_id|>"),
    "mistral": (MISTRAL, ("[INST]", "[/INST]"), "</s>", "</s>"),
    "phi 3": (PHI3, ("<|user|>", "<|assistant|>", "<|end|>"), "<|endoftext|>", "<|end|>"),
    "two tokens": (COHERE, ("<|start|>", "<|end_response|>", "<|end_of_turn|>"), "<eos>", "<|end_response|>"),
}
WITHOUT = {
    "whitespace": (ALPACA, (), "</s>"),
    "nothing": (GLM, ("<|user|>", "<|assistant|>", "<|system|>"), "<|endoftext|>"),
    "no eos either": (ALPACA, (), None),
    "no token of the tokenizer": (CHATML + ASK, (), "<|endoftext|>"),
    "the messages themselves": ("{{ messages }}", (), "</s>"),
    "no turn of an assistant": ("{{ messages[0].content }}<|im_end|>", CHAT, "</s>"),
    "broken": ("{{ raise_exception('no') }}", CHAT, "</s>"),
}


@pytest.mark.parametrize(("template", "special", "eos", "token"), FORMS.values(), ids=FORMS)
def test_what_the_template_writes_after_a_turn_ends_it(
    template: str, special: tuple[str, ...], eos: str | None, token: str
) -> None:
    tokenizer = spelled(template, special, eos)
    end = tokenizer.convert_tokens_to_ids(token)
    assert end is not None
    found = end_of_turn(tokenizer)
    assert (found.id, found.token, found.written) == (end, token, True)
    other = tokenizer.eos_token_id
    for listed in (None, 7, [7, end], [end]):
        settings = transformers.GenerationConfig(eos_token_id=listed)
        known = listed if isinstance(listed, list) else [listed]
        assert set(end_tokens(settings, tokenizer)) == {end, other, *known} - {None}


@pytest.mark.parametrize(("template", "special", "eos"), WITHOUT.values(), ids=WITHOUT)
def test_without_a_token_after_a_turn_the_eos_token_ends_it(
    template: str, special: tuple[str, ...], eos: str | None
) -> None:
    tokenizer = spelled(template, special, eos)
    found = end_of_turn(tokenizer)
    assert (found.id, found.token, found.written) == (tokenizer.eos_token_id, eos or "", False)
    settings = transformers.GenerationConfig(eos_token_id=[7, 9])
    assert set(end_tokens(settings, tokenizer)) == {7, 9, tokenizer.eos_token_id} - {None}


def test_an_end_that_is_not_special_is_in_no_text(tiny_model: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_model, tmp_path / "m")
    tokenizer = spelled(CHATML + ASK, (), "<|endoftext|>", plain=("<|im_start|>", "<|im_end|>"))
    assert end_of_turn(tokenizer).token == "<|im_end|>"
    tokenizer.save_pretrained(folder)
    checkpoint = load_checkpoint(str(folder))
    ids = checkpoint.tokenizer("1. pour<|im_end|>")["input_ids"]
    assert ids[-1] == tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert checkpoint.tokenizer.decode(ids, skip_special_tokens=True) == "1. pour"
    assert ids[-1] in checkpoint.model.generation_config.eos_token_id


@pytest.mark.parametrize(
    ("template", "named"), [(CHATML + ASK, ["<|im_end|>", "<|endoftext|>"]), (ALPACA, []), (GLM, [])]
)
def test_an_end_that_is_no_token_is_named(
    tiny_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, template: str, named: list[str]
) -> None:
    folder = shutil.copytree(tiny_model, tmp_path / "m")
    spelled(template, (), "<|endoftext|>").save_pretrained(folder)
    load_checkpoint(str(folder))
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == bool(named)
    assert all(token in line for line in said for token in named)


THINK_FIRST = CHATML + "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
THINK_ASKED = CHATML + (
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n"
    "{% if enable_thinking is defined and not enable_thinking %}\n</think>\n\n{% endif %}{% endif %}"
)
MAGISTRAL = MISTRAL + "{% if add_generation_prompt %}[THINK]{% endif %}"


@pytest.mark.parametrize(
    ("template", "settings", "opening"),
    [
        (CHATML + ASK, {}, ""),
        (THINKING, {}, ""),
        (THINK_FIRST, {}, "<think>"),
        (THINK_ASKED, {}, "<think>"),
        (THINK_ASKED, {"enable_thinking": False}, ""),
        (MAGISTRAL, {}, "[THINK]"),
        (STRICT + "{% if add_generation_prompt %}<|im_start|>assistant\n<thinking>{% endif %}", {}, "<thinking>"),
        (GEMMA + "{% if add_generation_prompt %}<think>{% endif %}", {}, "<think>"),
        ("{{ raise_exception('no') }}", {}, ""),
    ],
)
def test_a_prompt_that_opens_a_thought_gives_its_tag_to_the_completion(
    template: str, settings: dict[str, Any], opening: str
) -> None:
    tokenizer = spelled(template, (*CHAT, "[THINK]", "[/THINK]"), "</s>")
    assert thought_opening(tokenizer, settings) == opening
    [text] = decode_completions(tokenizer, [tokenizer("1. no", add_special_tokens=False)["input_ids"]], opening)
    assert plan_steps(text) == (() if opening else ("no",))


@pytest.mark.parametrize(
    "tags", [("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("<|START_THINKING|>", "<|END_THINKING|>")]
)
def test_special_tokens_of_a_thought_stay_in_the_text_and_others_do_not(tags: tuple[str, str]) -> None:
    opened, closed = tags
    written = f"{opened}1. no{closed}1. yes<|im_end|>"
    for special, plain in ((tags, ()), ((), tags)):
        tokenizer = spelled(CHATML, (*CHAT, *special), "<|im_end|>", plain)
        ids = tokenizer(written, add_special_tokens=False)["input_ids"]
        [text, cut] = decode_completions(tokenizer, [ids, ids[:-5]])
        assert (plan_steps(text), "<|im_end|>" in text, closed in text) == (("yes",), False, True)
        assert plan_steps(cut, cut=True) == ()
    without = spelled(CHATML, CHAT, "<|im_end|>")
    assert decode_completions(without, [without("1. yes<|im_end|>")["input_ids"]]) == ["1. yes"]


def test_channels_of_a_thought_are_read() -> None:
    channels = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>")
    tokenizer = spelled(CHATML, channels, "<|return|>")
    written = "<|channel|>analysis<|message|>1. no<|end|><|start|>assistant<|channel|>final<|message|>1. yes<|return|>"
    ids = tokenizer(written, add_special_tokens=False)["input_ids"]
    assert plan_steps(decode_completions(tokenizer, [ids])[0]) == ("yes",)
    assert plan_steps(tokenizer.decode(ids, skip_special_tokens=True)) == ("yes",)
