"""Bad narrations, builds and corpora as a user meets them: one sentence, exit code 1, and nothing changed."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.conftest import MAIN, NARRATIONS, OPENS_CORPUS, Recipe, start, write_lines

from recipe.corpus.layout import corpus_id

pytestmark = pytest.mark.thorough

# Narrations ----------------------------------------------------------------------------------------------------------


def test_the_line_that_cannot_be_read_is_named(recipe: Recipe) -> None:
    def refused(file: str, because: str) -> None:
        recipe.refuses("corpus", "build", file, "--output", "new", "--encoder", "hash:64", because=because)

    good = write_lines(recipe.folder / "good", *NARRATIONS).read_bytes()
    (recipe.folder / "late").write_bytes(good + b'{"a": "\xff"}\n')
    (recipe.folder / "half").write_bytes(good + b'{"video_id": ')
    refused("late", "late, line 4: .*UTF-8")
    refused("half", "half, line 4: .*column 14")
    refused("no-json", "no-json: not valid JSON .*line 2")
    write_lines(recipe.folder / "twice", *NARRATIONS, NARRATIONS[0])
    refused("twice", "line 4, field 'video_id': .*'tea'.*, line 1")
    assert not (recipe.folder / "new").exists()


# Corpora -------------------------------------------------------------------------------------------------------------

SECOND = "corpus/shards/00001"


def damage(kind: str) -> None:
    shard, manifest = Path(SECOND), Path("corpus/manifest.json")
    if kind in ("embeddings.npy", "narrations.parquet", "segments.parquet"):
        os.truncate(shard / kind, (shard / kind).stat().st_size - 8)
    elif kind == "missing file":
        (shard / "segments.parquet").unlink()
    elif kind == "missing shard":
        shutil.rmtree(shard)
    elif kind == "half a manifest":
        os.truncate(manifest, 50)
    elif kind == "a list":
        manifest.write_text("[]")
    elif kind == "a key less":
        values = json.loads(manifest.read_text())
        del values["encoder"]
        manifest.write_text(json.dumps(values))
    elif kind == "newer":
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 5}))


DAMAGES = {
    "embeddings.npy": f"{SECOND}: .*delete this shard",
    "narrations.parquet": f"{SECOND}: ",
    "segments.parquet": f"{SECOND}: ",
    "missing file": f"{SECOND}: .*segments.parquet",
    "missing shard": f"{SECOND}: .*bounds.npy",
    "half a manifest": "manifest.json: .*not valid JSON",
    "a list": "manifest.json: .*JSON object",
    "a key less": "manifest.json: .*'encoder'",
    "newer": "format 5 .* 3 and 4;",
}


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        *(("info", kind) for kind in DAMAGES),
        *((command, "narrations.parquet") for command in OPENS_CORPUS if command != "info"),
        ("build", "missing shard"),
    ],
)
def test_damaged_corpora(recipe: Recipe, corpus: Path, command: str, kind: str) -> None:
    damage(kind)
    if (command, kind) == ("build", "missing shard"):
        assert recipe(*OPENS_CORPUS[command]).code == 0  # makes what is missing
        assert recipe(*OPENS_CORPUS["verify"]).code == 0
    else:
        recipe.refuses(*OPENS_CORPUS[command], because=DAMAGES[kind])


def test_a_shard_that_is_damaged_inside(recipe: Recipe, corpus: Path) -> None:
    pytest.importorskip("numba")
    with (corpus / "shards" / "00000" / "segments.parquet").open("r+b") as stream:
        stream.seek(10)
        stream.write(b"XX")
    for command in ("verify", "search"):
        recipe.refuses(*OPENS_CORPUS[command], because="shards/00000: .*damaged")


@pytest.mark.parametrize(
    ("command", "folder"),
    [*((name, "missing") for name in OPENS_CORPUS if name != "build"), ("info", "empty"), ("info", "folder")],
)
def test_folders_that_hold_no_corpus(recipe: Recipe, command: str, folder: str) -> None:
    words = [folder if word == "corpus" and at else word for at, word in enumerate(OPENS_CORPUS[command])]
    recipe.refuses(*words, because=rf"{folder}: no corpus .*manifest\.json")


def test_another_build_is_not_written_over(recipe: Recipe, corpus: Path) -> None:
    build = ("corpus", "build", "narrations.jsonl", "--output")
    recipe.refuses(*build, corpus, "--encoder", "hash:32", because="name 'hash:64', not 'hash:32'")
    recipe.refuses(*build, corpus, "--encoder", "hash:64", because="shard_size 2, not 4096")
    (recipe.folder / "folder" / "mine").write_text("mine")
    recipe.refuses(*build, "folder", "--encoder", "hash:64", because="folder: .*not empty")
    recipe.refuses(*build, "new", "--encoder", "hash:0", because="hash:0.*hash:256")
    recipe.refuses(*build, "new", "--encoder", "hash:64", "--task", "x", because="'hash:64' has no task")


def test_a_corpus_of_another_encoder(recipe: Recipe, corpus: Path) -> None:
    manifest = corpus / "manifest.json"
    values = json.loads(manifest.read_text())
    values["encoder"]["weights"] = "1234"
    values["id"] = corpus_id(values)
    manifest.write_text(json.dumps(values))
    for command in ("search", "score", "explain"):
        recipe.refuses(*OPENS_CORPUS[command], because="weights '1234', not None")


# Full disks, Ctrl-C and kill -9 ---------------------------------------------------------------------------------------


def test_a_full_disk_keeps_what_was_there(recipe: Recipe) -> None:
    (recipe.folder / "new").write_text("old")
    build = ("corpus", "build", "narrations.jsonl", "--output", "c", "--encoder", "hash:512")
    for words in (("world", "narrations", "--count", "50", "--output", "new"), build):
        limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000)); {MAIN}"
        done = subprocess.run([sys.executable, "-c", limited, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert re.search(
            r"^error: \S+: file too large; free some space and run the same command again\.$", done.stderr, re.M
        )
        assert "Traceback" not in done.stderr
    assert (recipe.folder / "new").read_text() == "old"
    assert not list(recipe.folder.rglob("*.partial"))
    assert recipe(*build).code == 0


def holding(shard: Path) -> str:
    """A program whose builds stand still once a shard is there, as if the machine was busy."""
    return f"""
import os, signal
from pathlib import Path
import recipe.corpus.encode as encode
read = encode.read_table
def held(*given):
    if Path({str(shard)!r}).exists():
        os.kill(os.getpid(), signal.SIGSTOP)
    return read(*given)
encode.read_table = held
{MAIN}
"""


def test_an_interrupted_build_goes_on(recipe: Recipe) -> None:
    rows = [{"video_id": f"v{n}", "sentences": [f"word{n} then w{n}x{k}" for k in range(10)]} for n in range(700)]
    write_lines(recipe.folder / "many", *rows)
    build = ("corpus", "build", "many", "--encoder", "hash:64", "--shard-size", "10", "--output")
    shards = recipe.folder / "new" / "shards"
    process = start((*build, "new"), shards / "00001", holding(shards / "00001"))
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "interrupted: finished work is kept; the same command resumes from there."
    assert "Traceback" not in errors
    assert not list(recipe.folder.rglob("*.partial"))
    recipe.refuses("corpus", "info", "new", because="new: .*not finished")
    process = start((*build, "new"), shards / "00003", holding(shards / "00003"))
    # It holds the folder, and writes nothing while the folder is compared.
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.01)
    recipe.refuses(*build, "new", because="new: another process", leaves="new")
    process.kill()
    process.communicate(timeout=300)
    assert not (recipe.folder / "new" / "manifest.json").exists()
    assert recipe(*build, "new").code == 0
    assert recipe(*build, "whole").code == 0
    whole = {name.removeprefix("whole/"): held for name, held in recipe.files("-").items() if name.startswith("whole/")}
    assert {f"new/{name}": held for name, held in whole.items()}.items() <= recipe.files("-").items()
    assert not list((recipe.folder / "new").rglob(".*"))
