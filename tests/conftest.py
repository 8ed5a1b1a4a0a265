"""Fixtures that every room's tests share."""

import importlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import hypothesis
import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from recipe.errors import InputError
from recipe.report import terminal
from recipe.report.elements import Table
from recipe.report.terminal import terminal_table

if TYPE_CHECKING:
    from recipe.corpus.store import Corpus
    from recipe.types import Narration

# Set before torch is loaded by any room: threads of several test runs would fight, the order of sums must not depend
# on their number, and nothing may reach for a hub.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

# An example has no time limit: a busy machine finds no faults.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")

# What a shell starts in the background ignores Ctrl-C, and so would the processes that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Processes of several are given the size of a terminal that they do not have.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)

NARROW = (60, 80, 120)
"""Columns of terminals that every table has to fit."""

SHARED = Path(__file__).parents[2] / "shared"


LONGEST = ("training", "corpus", "crash", "reproduce", "experiments")
"""Rooms whose tests take longest: files that begin late leave the other processes idle."""


@pytest.hookimpl(tryfirst=True)  # before the expression of -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Rooms with long tests first. Several processes take the files in this order (`--no-loadscope-reorder`).

    What reads real data or drives a browser is thorough.
    """
    for item in items:
        if item.get_closest_marker("real_data") or item.get_closest_marker("browser"):
            item.add_marker("thorough")
    items.sort(key=lambda item: LONGEST.index(room) if (room := item.path.parent.name) in LONGEST else len(LONGEST))


class Outcome(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


class Recipe:
    """The command line in this process."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, *words: object) -> Outcome:
        from recipe.cli import main

        self._capfd.readouterr()
        before, sys.argv = sys.argv, ["recipe", *map(str, words)]
        try:
            with pytest.raises(SystemExit) as stop:
                main()
        finally:
            sys.argv = before
        return Outcome(int(stop.value.code or 0), *self._capfd.readouterr())

    def json(self, *words: object) -> Any:
        """What a command that ends well prints with --json."""
        outcome = self(*words, "--json")
        assert outcome.code == 0, outcome.err
        return json.loads(outcome.out)


def built_corpus(folder: Path, narrations: "Iterable[Narration]", encoder: str = "hash:64") -> "Corpus":
    """A corpus of these narrations, opened."""
    from recipe.config import CorpusConfig, EncoderConfig
    from recipe.corpus.build import build_corpus
    from recipe.corpus.store import Corpus

    return Corpus.open(build_corpus(narrations, folder, CorpusConfig(encoder=EncoderConfig(name=encoder))))


@pytest.fixture
def recipe(capfd: pytest.CaptureFixture[str]) -> Recipe:
    return Recipe(capfd)


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Takes a package away: it is neither found nor imported."""
    return lambda name: monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]


@pytest.fixture
def paper_page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script that writes docs/paper.md."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "docs"))
    return importlib.import_module("paper")


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Endpoints that fail are asked again at once."""
    monkeypatch.setattr("recipe.models.endpoint.host.FIRST_WAIT", 0.01)


@pytest.fixture
def decoder_runs(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Says what code the process runs that decodes uploads, in place of the program's own."""
    from recipe.perception import uploads

    isolated = uploads.isolated
    return lambda code: monkeypatch.setattr(uploads, "isolated", lambda _: isolated(code))


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], str]]:
    """Writes a module of a name and a source into the folder that commands run in; it is imported anew."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    written = set[str]()

    def write(name: str, source: str) -> str:
        Path(f"{name}.py").write_text(source)
        sys.modules.pop(name, None)
        written.add(name)
        return name

    yield write
    for name in written & {*sys.modules}:
        del sys.modules[name]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the checkout; tests that ask for it skip where it is absent."""
    folder = SHARED / "data"
    if not folder.is_dir():
        pytest.skip("the real data is not beside this checkout")
    return folder


@pytest.fixture(scope="session")
def shared_golden() -> Path:
    """The folder of reference values beside the checkout."""
    folder = SHARED / "golden"
    if not folder.is_dir():
        pytest.skip("the golden values are not beside this checkout")
    return folder


def assert_fits(table: Table, width: int) -> str:
    """The table on a terminal of so many columns: no line is longer, and no figure and no heading is cut."""
    console = Console(width=width, record=True, file=StringIO())
    console.print(terminal_table(table, width))
    shown = console.export_text()
    assert max(map(cell_len, shown.split("\n"))) <= width, shown
    assert "…" not in shown, shown
    words = {word.rstrip(",") for word in shown.replace("│", " ").split()}
    for row in table.rows:
        for cell in row.cells:
            if cell.numeric:
                parts = f"{cell.text} {cell.small}".split(" ")
                assert all(part.rstrip(",") in words for part in parts if part), (cell, shown)
    return shown


@pytest.fixture(autouse=True, scope="session")
def _printed_tables_fit() -> Iterator[None]:
    """Every table that a command prints in any test fits narrow terminals, too."""

    def checked(table: Table, width_of_terminal: int) -> RenderableType:
        for width in NARROW:
            assert_fits(table, width)
        return terminal_table(table, width_of_terminal)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(terminal, "terminal_table", checked)
        yield


@contextmanager
def raises_input(path: Path | str, line: int | None = None, field: str | None = None, *facts: str) -> Iterator[None]:
    """Expect an InputError that names file, line and field, and facts such as a number, and quotes no huge value."""
    place = str(path) + (f", line {line}" if line is not None else "")
    with pytest.raises(InputError) as caught:
        yield
    sentence = str(caught.value)
    assert sentence.startswith(place + (f", field {field!r}: " if field is not None else ": "))
    assert not [fact for fact in facts if fact not in sentence]
    assert "\n" not in sentence
    assert len(sentence) < len(place) + 1_000


@pytest.fixture
def held_back() -> bool:
    """Whether PyTorch is held to older instructions than the processor's, so that its bfloat16 kernels fail here."""
    torch = pytest.importorskip("torch")
    from recipe.models.devices import computes_bfloat16

    return bool(torch.cpu.get_capabilities().get("avx512_bf16")) and not computes_bfloat16(torch.device("cpu"))


@pytest.fixture(params=[True])
def native_bfloat16(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, held_back: bool) -> bool:
    """Whether the processor is said to have instructions for bfloat16; a parameter of False takes them away."""
    torch = pytest.importorskip("torch")
    if request.param and held_back:
        pytest.skip("PyTorch is held to older instructions than the processor's, and its bfloat16 kernels fail there")
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": request.param})
    return bool(request.param)


WORDS = ["<pad>", "<end>", "user", "assistant", *(f"w{n}" for n in range(28))]
TEMPLATE = (
    "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}{% if add_generation_prompt %}assistant{% endif %}"
)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder: random weights, 32 words, 48 positions; skips without the packages of the engine."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    path = tmp_path_factory.mktemp("model")
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="<pad>")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>", pad_token="<pad>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(path)
    torch.manual_seed(0)
    config = transformers.Olmo2Config(
        vocab_size=len(WORDS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=48,
        initializer_range=0.3,
        eos_token_id=1,
        pad_token_id=0,
    )
    transformers.Olmo2ForCausalLM(config).save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def tiny_video_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen2.5-VL folder: random weights, a tokenizer of bytes, 512 positions, 4 tokens for two frames of 56 x 56.

    Other sizes of frames, up to 84 x 84, keep their own grid. Skips without the packages of training.
    """
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("trl")
    from recipe.models.checkpoints import Checkpoint
    from recipe.training.base import train_tokenizer
    from recipe_studies.vision.video_model import VisionShape, build_video_model

    path = tmp_path_factory.mktemp("video_model")
    tokenizer = train_tokenizer(["boil the water", "dig a hole"], 512, 512)
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        initializer_range=0.3,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    base = Checkpoint(transformers.Qwen2ForCausalLM(config).eval(), tokenizer)
    shape = VisionShape(depth=2, hidden_size=32, heads=2, intermediate_size=64, max_pixels=84 * 84)
    built = build_video_model(base, shape, seed=0)
    built.model.save_pretrained(path)
    built.tokenizer.save_pretrained(path)
    assert built.video is not None
    built.video.save(path)
    return path
