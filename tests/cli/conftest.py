"""The command line as a user meets it, and good and bad inputs of every kind for it."""

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import tests.conftest

MAIN = "from recipe.cli import main; main()"

PROGRESS = re.compile(r".* \.\.\.|.*: (done in )?[\d.]+.*s")
"""A line that tells of progress."""
NARRATIONS = [
    {
        "video_id": "tea",
        "segments": [{"start": 0, "end": 4, "text": "boil the water"}, {"start": 4, "end": 9, "text": "pour"}],
    },
    {"video_id": "salad", "sentences": ["wash the leaves", "chop the onion", "stir"]},
    {"video_id": "kite", "sentences": ["cut the tape", "press the tape"]},
]
EXAMPLE = {"example_id": "a", "goal": "brew a pot of tea", "history": ["boil the water"], "continuation": ["pour it"]}
PROCEDURE = {"source": "s", "video_id": "v", "goal": "g", "split": "train", "steps": [{"text": "a"}, {"text": "b"}]}
PROMPT = {"goal": "g", "history": ["boil the water"], "continuations": [["pour"]]}
BASE = {"examples": "examples.jsonl", "output": "run", "hidden_size": 32, "layers": 1, "head_size": 16, "steps": 2}
TRAINED = {"model": "no-model", "examples": "examples.jsonl", "output": "run", "split": ""}


OPENS_CORPUS = {
    "info": ("corpus", "info", "corpus"),
    "verify": ("corpus", "verify", "corpus"),
    "search": ("corpus", "search", "corpus", "boil water"),
    "score": ("reward", "score", "--corpus", "corpus", "--input", "prompts.jsonl"),
    "explain": ("reward", "explain", "--corpus", "corpus", "--goal", "g", "--history", "a", "--continuation", "b"),
    "evaluate": ("evaluate", "validity", "plans.jsonl", "--examples", "examples.jsonl", "--corpus", "corpus"),
    "build": ("corpus", "build", "narrations.jsonl", "--output", "corpus", "--encoder", "hash:64", "--shard-size", 2),
}


class Recipe(tests.conftest.Recipe):
    """The command line in a folder of its own."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        super().__init__(capfd)
        self.folder = folder

    def refuses(self, *words: object, because: str, leaves: str = "-") -> None:
        """One sentence that matches `because`, and no file made or changed but below the folder `leaves`."""
        before = self.files(leaves)
        outcome = self(*words)
        assert outcome.code == 1, outcome
        *progress, sentence = outcome.err.splitlines()
        assert sentence.startswith("error: ")
        assert sentence[-1] in ".?"
        assert re.search(because, sentence), sentence
        assert all(PROGRESS.fullmatch(line) for line in progress), outcome.err
        assert outcome.out == ""
        assert self.files(leaves) == before

    def files(self, but: str) -> dict[str, bytes]:
        kept = (path for path in self.folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
        named = {str(path.relative_to(self.folder)): path for path in kept}
        return {name: path.read_bytes() for name, path in named.items() if not name.startswith(f"{but}/")}


def write_lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_toml(path: Path, values: dict[str, Any]) -> Path:
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))
    return path


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Recipe:
    """Good inputs of every kind, bad files of every kind, and the command line that is given them."""
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "narrations.jsonl", *NARRATIONS)
    write_lines(tmp_path / "examples.jsonl", EXAMPLE)
    write_lines(tmp_path / "procedures.jsonl", PROCEDURE)
    write_lines(tmp_path / "prompts.jsonl", PROMPT)
    write_lines(tmp_path / "plans.jsonl", {"example_id": "a", "steps": ["pour it"]})
    write_toml(tmp_path / "base.toml", BASE)
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "blank-lines").write_bytes(b"\n  \n")
    (tmp_path / "no-json").write_bytes(b'{"a": 1}\nhello\n')
    (tmp_path / "no-object").write_bytes(b"[1]\n")
    (tmp_path / "no-utf8").write_bytes(b'{"a": "\xff"}\n')
    return Recipe(tmp_path, capfd)


@pytest.fixture(scope="session")
def small_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from recipe.config import CorpusConfig, EncoderConfig
    from recipe.corpus.build import build_corpus, narration_source
    from recipe.data.narrations import ReadingOptions

    folder = tmp_path_factory.mktemp("corpus")
    narrations, origin = narration_source([write_lines(folder / "narrations.jsonl", *NARRATIONS)], ReadingOptions())
    config = CorpusConfig(encoder=EncoderConfig(name="hash:64"), shard_size=2)
    return build_corpus(narrations, folder / "c", config, origin=origin)


@pytest.fixture
def corpus(small_corpus: Path, recipe: Recipe) -> Path:
    """A corpus of two shards in the folder `corpus`, which a test may damage."""
    return Path(shutil.copytree(small_corpus, recipe.folder / "corpus"))


def start(words: tuple[str, ...], until: Path, main: str = MAIN) -> "subprocess.Popen[str]":
    """A command that is under way when the path `until` is there."""
    process = subprocess.Popen(
        [sys.executable, "-c", main, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not until.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    return process
