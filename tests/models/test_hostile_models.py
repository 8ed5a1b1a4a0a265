"""Model folders whose files are damaged or lie: one sentence each, in bounded time."""

import json
import random
import shutil
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors.torch import load_file, save_file  # noqa: E402
from tests.models.asking import texts_of  # noqa: E402

from recipe.config import SamplingConfig  # noqa: E402
from recipe.errors import ComputeError, InputError, RecipeError  # noqa: E402
from recipe.models.local import LocalEngine  # noqa: E402

CHATS = [
    [{"role": "user", "content": "w1 w2"}],
    [{"role": "system", "content": "w0"}, {"role": "user", "content": f"é {'a' * 40}!"}],
]
VALUES = [
    None, True, -1, 0, 1, 1 << 31, 1 << 64, -(1 << 63), 0.5, 1e308, "", "x", "\ud800", "a" * 9999, [], [[]], {},
    {"type": "BPE"},
]  # fmt: skip


def plan(folder: Path) -> list[list[str]]:
    return texts_of(LocalEngine(folder, device="cpu"), CHATS, 2, SamplingConfig(temperature=1.0, max_tokens=4))


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*place, key)
        yield from _places(inner, (*place, key))


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "config.json", "generation_config.json"])
def test_a_file_with_another_value_is_read_or_refused(folder: Path, name: str) -> None:
    file = folder / name
    text, draw = file.read_text(), random.Random(name)
    for _ in range(15):
        changed = json.loads(text)
        *outer, last = draw.choice(list(_places(changed)))
        holder = changed
        for key in outer:
            holder = holder[key]
        holder[last] = draw.choice(VALUES)
        file.write_text(json.dumps(changed))
        with suppress(RecipeError):
            plan(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"7", b'"x"', b"\xff", b"[" * 100_000, b"{}"])
@pytest.mark.parametrize("name", ["tokenizer.json", "config.json", "generation_config.json", "tokenizer_config.json"])
def test_a_file_of_something_else_is_refused_or_not_needed(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    with suppress(RecipeError):
        plan(folder)


PATTERNS = ["(a+)+$", "(a|aa)+$", "(", "(?R)", "a{99999,999999}", "[", "\\"]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("part", ["pre_tokenizer", "normalizer"])
def test_a_pattern_that_explodes_ends(folder: Path, part: str, pattern: str) -> None:
    """The engine of regular expressions gives up, and panics; so does a pattern that is none."""
    kinds = {
        "pre_tokenizer": {"type": "Split", "behavior": "Isolated", "invert": False},
        "normalizer": {"type": "Replace", "content": "w1"},
    }
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {part: {**kinds[part], "pattern": {"Regex": pattern}}}))
    with suppress(InputError):
        plan(folder)


@pytest.mark.parametrize(
    "template",
    [
        "{{ 1 / 0 }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.clear() }}",
        "{{ messages[0].update({'x': 1}) }}",
        "{{ cycler.__init__.__globals__.os.system('touch pwned') }}",
        "{{ ('%s' | attr('format_map'))(messages[0]).__class__ }}",
        "{% for i in range(10 ** 9) %}x{% endfor %}",
        "{{ messages[99].content.x.y }}",
        "{{ raise_exception('no') }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ 'x' | nothing }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}{{ os }}",
        "{{ messages | tojson(indent=messages) }}",
        "{{ 'w1 ' * 99999 }}",
        "{{ [messages] | sum(start=messages[0]) }}",
        "{% if",
        "{{ }}",
        "",
    ],
)
def test_a_template_reaches_nothing_and_raises_nothing_else(folder: Path, template: str) -> None:
    (folder / "chat_template.jinja").write_text(template)
    with pytest.raises(InputError):
        plan(folder)
    assert not Path("pwned").exists()


def safetensors(header: object, data: bytes = bytes(64), length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(first: int, last: int, shape: list[int], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [first, last]}


LIES = {
    "empty": b"",
    "short": b"\x08",
    "length of 2^63": safetensors({}, length=1 << 63),
    "length of 2^64": safetensors({}, length=(1 << 64) - 1),
    "length of 99 MB": safetensors({}, length=99 << 20),
    "no JSON": safetensors(b"{" * 9),
    "deep": safetensors(b"[" * 100_000),
    "beyond the file": safetensors({"x": tensor(0, 1 << 40, [1 << 38])}),
    "backwards": safetensors({"x": tensor(64, 0, [16])}),
    "overlapping": safetensors({"x": tensor(0, 64, [16]), "y": tensor(0, 64, [16])}),
    "a gap": safetensors({"x": tensor(32, 64, [8])}),
    "a product of 2^64": safetensors({"x": tensor(0, 64, [1 << 32, 1 << 32])}),
    "a negative shape": safetensors({"x": tensor(0, 64, [-16])}),
    "another type": safetensors({"x": tensor(0, 64, [16], "Q7")}),
    "another size": safetensors({"x": tensor(0, 64, [16], "F64")}),
    "twice": safetensors(b'{"x":{"dtype":"F32","shape":[16],"data_offsets":[0,64]},' * 2 + b'"y":1}'),
    "a path": safetensors({"../../../x": tensor(0, 64, [16])}),
    "a pickle": b"\x80\x04cos\nsystem\n",
}


@pytest.mark.parametrize("lie", LIES)
def test_a_header_that_lies_is_refused(folder: Path, lie: str) -> None:
    (folder / "model.safetensors").write_bytes(LIES[lie])
    with pytest.raises(InputError, match="model"):
        plan(folder)


@pytest.mark.parametrize(
    "names",
    [
        None, {}, [], "x", {"x": None}, {"x": 7}, {"x": "../outside.safetensors"}, {"x": "absent.safetensors"},
        {"x": "/etc/passwd"}, {"x": ""}, {"x": "."}, {"x": "model-1.safetensors\0"}, {"x": "config.json"},
    ],
)  # fmt: skip
def test_an_index_that_points_elsewhere_is_refused(folder: Path, names: object) -> None:
    shutil.copy(folder / "model.safetensors", folder.parent / "outside.safetensors")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    with pytest.raises(InputError, match="model"):
        plan(folder)


@pytest.mark.parametrize("name", ["lm_head.weight", "model.norm.weight", "model.layers.1.mlp.up_proj.weight"])
def test_weights_that_lack_a_tensor_are_not_drawn_at_random(folder: Path, name: str) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({key: weight for key, weight in weights.items() if key != name}, folder / "model.safetensors")
    with pytest.raises(InputError, match=name):
        plan(folder)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_weights_that_are_no_numbers_give_no_plan(folder: Path, temperature: float) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"] = torch.full_like(weights["lm_head.weight"], torch.nan)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ComputeError):
        texts_of(LocalEngine(folder, device="cpu"), CHATS, 1, SamplingConfig(temperature=temperature, max_tokens=2))
