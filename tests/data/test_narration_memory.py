"""Memory does not grow with a corpus: what is in memory is one video, whatever the form."""

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from tests.data.narration_forms import FORMS

from recipe.data.narrations import read_narrations
from recipe.types import Narration, Segment


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["jsonl", "json", "htm-aa", "parquet, a row a segment"])
def test_four_times_the_videos_take_the_same_memory(tmp_path: Path, name: str) -> None:
    """Neither the videos nor their ids are held: SQLite keeps those within its own cache, which is not Python's."""
    spoken = tuple(Segment(f"and now caption {n} of the video is being said", n * 4.25, n * 4.25 + 4) for n in range(3))

    def peak(count: int) -> int:
        path = FORMS[name].write(tmp_path, [Narration(f"v{number:010}", spoken) for number in range(count)])
        next(read_narrations(path))
        tracemalloc.start()
        assert sum(1 for _ in read_narrations(path)) == count
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    small, large = peak(2_000), peak(8_000)
    assert large < 1.2 * small + 100_000


HIGH_WATER = """
import sys
from pathlib import Path
from recipe.data.narrations import read_narrations
def peak():  # of this program alone; getrusage would count its parent's
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
"""

PEAK = """
small, large = map(Path, sys.argv[1:])
assert sum(1 for _ in read_narrations(small)) == 1000
before = peak()
assert sum(1 for _ in read_narrations(large)) == 27_000
print(before, peak() - before)
"""


@pytest.mark.slow
def test_a_hundred_megabytes_of_json_take_a_few(tmp_path: Path) -> None:
    times = [number * 4.25 for number in range(60)]
    entry = json.dumps({"start": times, "end": times, "text": ["and now this caption of the video is being said"] * 60})
    small, large = tmp_path / "a.json", tmp_path / "caption.json"
    for path, count in ((small, 1_000), (large, 27_000)):
        with path.open("w") as stream:
            stream.writelines(f'{"," if n else "{"}\n"v{n:010}": {entry}' for n in range(count))
            stream.write("}")
    assert large.stat().st_size > 100_000_000
    done = subprocess.run(
        [sys.executable, "-c", HIGH_WATER + PEAK, str(small), str(large)], capture_output=True, text=True, check=True
    )
    before, grown = map(int, done.stdout.split())
    assert before > 1_000_000
    assert grown < 8_000_000


PICKLE = """
import json, pickle, random, zlib
path, scored, zipped = Path(sys.argv[1]), sys.argv[2] == "scored", sys.argv[3] == "zipped"
if not path.exists():
    draw = random.Random(0)
    words = "show how to cut the onion into small pieces with a sharp knife and stir until golden brown".split()
    def caption():
        text = " ".join(draw.choices(words, k=draw.randint(5, 14)))
        return (text, draw.random()) if scored else text
    def video():
        starts = [draw.randint(0, 600) for _ in range(draw.randint(5, 35))]
        texts = [[caption() for _ in range(draw.choice((1, 1, 1, 2)))] for _ in starts]
        entry = {"start": starts, "end": [start + 8 for start in starts], "text": texts}
        return zlib.compress(json.dumps(entry).encode(), 9) if zipped else entry
    path.write_bytes(pickle.dumps({f"{number:011}": video() for number in range(20_000)}))
else:
    import recipe.data.narrations.json_files
    before = peak()
    assert sum(1 for _ in read_narrations(path)) == 20_000
    print((peak() - before) / path.stat().st_size)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "packing", "least", "most"),
    [
        ("texts", "plain", 3.0, 6.0),
        ("scored", "plain", 3.0, 6.0),
        ("texts", "zipped", 0.5, 1.5),
        ("scored", "zipped", 0.5, 1.5),
    ],
)
def test_a_pickle_takes_the_memory_that_is_asked_for(
    tmp_path: Path, kind: str, packing: str, least: float, most: float
) -> None:
    command = [sys.executable, "-c", HIGH_WATER + PICKLE, str(tmp_path / "captions.pickle"), kind, packing]
    subprocess.run(command, check=True)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert least < float(done.stdout) < most, done.stdout
