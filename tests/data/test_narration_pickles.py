"""Pickles: nothing but plain containers, nothing executed, no more memory than captions take, one sentence each."""

import copyreg
import gc
import os
import pickle
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from recipe import memory
from recipe.data.narrations import ReadingOptions, read_narrations
from recipe.errors import InputError

pytestmark = pytest.mark.thorough

GOOD: dict[str, Any] = {"v": {"start": [1], "end": [2], "text": ["x"]}}


class Runs:
    """Makes a folder when it is unpickled by a pickle module that executes what it reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


def read(path: Path, content: bytes, **options: Any) -> Any:
    path.write_bytes(content)
    options = {"format": "howtocaption"} | options
    return list(read_narrations(path, options=ReadingOptions(**options)))


def refusal(path: Path, content: bytes) -> str:
    with pytest.raises(InputError) as caught:
        read(path, content, bad="skip")
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_is_executed(tmp_path: Path, protocol: int) -> None:
    target = tmp_path / "made"
    hidden = {"v": {"start": [1], "end": [2], "text": [[Runs(target)]]}}
    for value in (Runs(target), hidden):
        message = refusal(tmp_path / "n.pickle", pickle.dumps(value, protocol))
        assert "the pickle is not plain data: it asks for 'posix.mkdir'; fetch it again" in message
        assert not target.exists()
    pickle.loads(pickle.dumps(Runs(target), protocol))
    assert target.exists()


def test_a_registered_extension_is_refused_even_where_it_was_used_before(tmp_path: Path) -> None:
    extension = b"\x80\x02\x82\xf0."
    copyreg.add_extension("os", "getcwd", 0xF0)
    try:
        assert pickle.loads(extension) is os.getcwd
        # The process that reads it has no extension of this one.
        assert "unregistered extension" in refusal(tmp_path / "n.pickle", extension)
    finally:
        copyreg.remove_extension("os", "getcwd", 0xF0)
        copyreg.clear_extension_cache()


def twice(levels: int) -> bytes:
    """A tuple of two times the same tuple, and so on: few bytes, 2 ** levels paths."""
    steps = (b"q" + bytes([n]) + b"h" + bytes([n]) + b"\x86" for n in range(levels))
    return b")" + b"".join(steps)


SPINS = b"\x80\x02}" + twice(60) + b"K\x01s."
"""Its key is hashed for 2 ** 60 steps, in C."""
SPREADS = b"\x80\x02}U\x01v" + twice(60) + b"s."
"""Its value is harmless until it is written out."""

HOSTILE: list[tuple[str, bytes, str]] = [
    ("persistent id", b"\x80\x04\x8c\x01aQ.", "it refers to an object outside of the file"),
    ("persistent id, protocol 0", b"Pabc\n.", "it refers to an object outside of the file"),
    ("instance", b"(S'echo'\nios\nsystem\n.", "it asks for 'os.system'"),
    ("object", b"(cos\nsystem\nS'x'\no.", "it asks for 'os.system'"),
    ("escape codes in a name", b"c\x1b[31m\nred\n.", r"it asks for '\x1b[31m.red'"),
    ("state", b"\x80\x04}}b.", "damaged"),
    ("call of a dict", b"\x80\x04})R.", "damaged"),
    ("memo of 16 GB", b"\x80\x04}r\xff\xff\xff\x3f.", "asks for more memory"),
    ("memo of 800 GB", b"\x80\x04}p99999999999\n.", "asks for more memory"),
    ("bytes of 8 GB", b"\x80\x04\x8e" + struct.pack("<Q", 1 << 33) + b"a.", "asks for more memory"),
    ("frame of 1 TB", b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b"}.", "asks for more memory"),
    ("cut off", pickle.dumps(GOOD)[:-10], "damaged"),
    ("text", b"\x80\x04hello world", "damaged"),
    ("protocol of the future", b"\x80\x63}.", "damaged (unsupported pickle protocol: 99)"),
    ("empty", b"", "damaged (Ran out of input)"),
    ("out of band", b"\x80\x05\x97.", "damaged"),
    ("key that is a list", b"\x80\x04}]K\x01s.", "damaged (unhashable type: 'list')"),
    ("list", pickle.dumps([1]), "the pickle holds a list where a dict"),
    ("no video", pickle.dumps({}), "the file holds no narrations"),
    ("two pickles", pickle.dumps(GOOD) * 2, "more follows after the pickle"),
    ("text of Python 2", b"\x80\x02}U\x03a\xe9bK\x01s.", "not UTF-8; give the encoding it has"),
    ("hash without end", SPINS, "did not end within 5 s of processor time"),
    ("value without end", SPREADS, "did not end within"),
    (
        "number of a million digits",
        b"\x80\x02}U\x01v\x8b" + struct.pack("<I", 400_000) + b"\x7f" * 400_000 + b"s.",
        "1 narration skipped: not a narration",
    ),
    ("deep", b"\x80\x04" + b"]" * 200_000 + b"a" * 199_999 + b".", "the pickle holds a list"),
]


@pytest.mark.parametrize(("content", "because"), [case[1:] for case in HOSTILE], ids=[case[0] for case in HOSTILE])
def test_hostile_and_damaged_pickles_are_refused(tmp_path: Path, content: bytes, because: str) -> None:
    assert because in refusal(tmp_path / "n.pickle", content)


def test_python_2_texts_are_read_in_their_encoding(tmp_path: Path) -> None:
    content = b"\x80\x02}U\x01v}(U\x05startK\x01\x85U\x03endK\x02\x85U\x04textU\x04caf\xe9\x85us."
    (narration,) = read(tmp_path / "n.pickle", content, encoding="latin-1")
    assert narration.segments[0].text == "café"


def test_the_collector_and_the_limits_are_as_before(tmp_path: Path) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    read(tmp_path / "n.pickle", pickle.dumps(GOOD))
    refusal(tmp_path / "n.pickle", b"\x80\x04}r\xff\xff\xff\x3f.")
    assert gc.isenabled()
    assert resource.getrlimit(resource.RLIMIT_AS) == before


@pytest.mark.parametrize(("zipped", "times"), [(False, 6.0), (True, 1.5)])
def test_a_pickle_too_large_for_the_memory_is_refused_before_it_is_loaded(
    tmp_path: Path, zipped: bool, times: float
) -> None:
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    path = tmp_path / "n.pickle"
    with path.open("wb") as stream:
        stream.write(pickle.dumps({"v": b"x\xda"} if zipped else GOOD))
        stream.truncate(size)  # of which nothing is on the disk
    because = rf"loading it takes about {times * size / 1e9:.1f} GB of memory, and .* free; convert it to JSON lines"
    with pytest.raises(InputError, match=because):
        list(read_narrations(path))


def test_free_memory_is_that_of_the_machine() -> None:
    free = memory.available()
    assert free is not None
    assert 0 < free <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_a_pickle_that_spins_costs_neither_the_other_files_nor_the_process(tmp_path: Path) -> None:
    (tmp_path / "a.pickle").write_bytes(SPINS)
    (tmp_path / "b.pickle").write_bytes(pickle.dumps(GOOD))
    (narration,) = read_narrations(tmp_path, options=ReadingOptions(bad="skip"))
    assert narration.video_id == "v"
    script = "import sys; from pathlib import Path; from recipe.data.narrations import read_narrations\n"
    script += "list(read_narrations(Path(sys.argv[1])))"
    begun = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "a.pickle")])
    time.sleep(2)
    begun.terminate()
    assert begun.wait(300) == -signal.SIGTERM
