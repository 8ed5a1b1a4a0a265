"""Writes are all or nothing; lines that cannot be read are named."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from recipe.artifacts import atomic_path, fingerprint, read_json, read_jsonl, write_json, write_jsonl
from recipe.errors import InputError


def test_a_failed_write_leaves_the_old_file_and_no_debris(tmp_path: Path) -> None:
    target = tmp_path / "scores.json"
    write_json(target, {"a": 1})
    with pytest.raises(TypeError):
        write_jsonl(target, [{"a": object()}])
    assert read_json(target) == {"a": 1}
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_appears_whole_and_replaces_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "shard"
    for content in ("old", "new"):
        with atomic_path(target) as partial:
            partial.mkdir()
            (partial / "part").write_text(content)
            assert not (target / "part").exists() or (target / "part").read_text() == "old"
    assert (target / "part").read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_what_a_killed_process_left_is_replaced(tmp_path: Path) -> None:
    script = """
import os, sys
from pathlib import Path
from recipe.artifacts import atomic_path
with atomic_path(Path(sys.argv[1])) as partial:
    partial.mkdir()
    (partial / "half").write_text("x")
    os._exit(9)
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "shard")], check=False)
    assert [file.suffix for file in tmp_path.iterdir()] == [".partial"]
    with atomic_path(tmp_path / "shard") as partial:
        partial.mkdir()
        (partial / "whole").write_text("y")
    assert [file.name for file in (tmp_path / "shard").iterdir()] == ["whole"]
    assert list(tmp_path.iterdir()) == [tmp_path / "shard"]


WRITER = """
import sys
from pathlib import Path
from recipe.artifacts import atomic_path
target, name, rounds, folder = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4] == "folder"
for _ in range(rounds):
    with atomic_path(target) as partial:
        if folder:
            partial.mkdir()
        for part in ("a", "b"):
            path = partial / part if folder else partial
            with path.open("a") as stream:
                stream.write(name * 4096)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_writers_of_one_target_leave_a_whole_output_of_one(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "target"
    command = [sys.executable, "-c", WRITER, str(target)]
    writers = [subprocess.Popen([*command, name, "60", kind]) for name in "xyz"]
    whole = {name * 8192 for name in "xyz"}
    while any(writer.poll() is None for writer in writers):
        if kind == "file" and target.exists():
            assert target.read_text() in whole
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    parts = sorted(target.iterdir()) if kind == "folder" else [target]
    assert "".join(part.read_text() for part in parts) in whole
    assert list(tmp_path.iterdir()) == [target]


def test_threads_of_one_process_do_not_remove_each_others_output(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "a") as first:
        first.write_text("first")
        with atomic_path(tmp_path / "a") as second:
            second.write_text("second")
        assert first.read_text() == "first"
    assert (tmp_path / "a").read_text() == "first"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        ('{"a": 1}\n{"a": \n', "line 2: not valid JSON"),
        ("[1]\n", "line 1: not a JSON object"),
    ],
)
def test_lines_that_cannot_be_read_are_named(tmp_path: Path, content: str, sentence: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(content)
    with pytest.raises(InputError, match=sentence):
        list(read_jsonl(path))


def test_files_that_are_missing_or_not_text_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        list(read_jsonl(tmp_path / "none.jsonl"))
    (tmp_path / "latin.jsonl").write_bytes(json.dumps({"a": "é"}, ensure_ascii=False).encode("latin-1"))
    with pytest.raises(InputError, match="not UTF-8"):
        list(read_jsonl(tmp_path / "latin.jsonl"))


def test_fingerprints_do_not_depend_on_key_order() -> None:
    assert fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5_000])
def test_json_beyond_what_python_reads_is_refused_in_words(text: str, tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text(text)
    with pytest.raises(InputError, match="not valid JSON"):
        read_json(path)
    path.write_text('{"a": ' + text + "}")
    with pytest.raises(InputError, match="line 1"):
        list(read_jsonl(path))


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_what_a_library_wrote_for_its_owner_alone_follows_the_umask(tmp_path: Path, umask: int) -> None:
    """As safetensors, whose temporary file has the mode 0600: beside it stands a file that the umask decides on."""
    script = (
        "import os, sys, tempfile\nfrom pathlib import Path\nfrom recipe.artifacts import atomic_path\n"
        "with atomic_path(Path(sys.argv[1])) as partial:\n"
        "    partial.mkdir()\n    (partial / 'config.json').write_text('{}')\n"
        "    written = tempfile.NamedTemporaryFile(dir=partial, delete=False)\n    written.close()\n"
        "    os.replace(written.name, partial / 'model.safetensors')\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "model")], check=True, umask=umask)
    modes = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "model").iterdir()}
    assert modes == dict.fromkeys(("config.json", "model.safetensors"), 0o666 & ~umask)
