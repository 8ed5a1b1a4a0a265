"""Memory does not grow with a corpus: what is in memory is one video, whatever the form."""

import gzip
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recipe.data.narrations import read_narrations
from recipe.data.narrations.reading import VideoLog

CAPTIONS = [f"and now caption {number} of the video is being said" for number in range(60)]


def entries(count: int) -> Iterator[tuple[str, dict[str, list[object]]]]:
    times: list[object] = [number * 4.25 for number in range(len(CAPTIONS))]
    for number in range(count):
        yield f"v{number:010}", {"start": times, "end": times, "text": list(CAPTIONS)}


def write_json(path: Path, count: int) -> Path:
    with path.open("w") as stream:
        for number, (video, entry) in enumerate(entries(count)):
            stream.write(f'{"," if number else "{"}\n"{video}": {json.dumps(entry)}')
        stream.write("}")
    return path


def write_lines(path: Path, count: int) -> Path:
    with gzip.open(path, "wt", compresslevel=1) as stream:
        for video, entry in entries(count):
            stream.write(json.dumps({"video_id": video, "sentences": entry["text"]}) + "\n")
    return path


def write_csv(path: Path, count: int) -> Path:
    with path.open("w") as stream:
        stream.write("vid,timestamp,text\n")
        for row, text in enumerate(CAPTIONS):
            stream.writelines(f"{video},{row},{text}\n" for video, _ in entries(count))
    return path


def write_parquet(path: Path, count: int) -> Path:
    with pq.ParquetWriter(path, pa.schema({"video_id": pa.string(), "text": pa.string()})) as writer:
        for video, entry in entries(count):
            writer.write_table(pa.table({"video_id": [video] * len(CAPTIONS), "text": entry["text"]}))
    return path


WRITERS: dict[str, Callable[[Path, int], Path]] = {
    "caption.json": write_json,
    "n.jsonl.gz": write_lines,
    "htm_aa.csv": write_csv,
    "n.parquet": write_parquet,
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", WRITERS)
def test_four_times_the_videos_take_the_same_memory(tmp_path: Path, name: str) -> None:
    def peak(count: int) -> int:
        path = WRITERS[name](tmp_path / name, count)
        next(read_narrations(path))
        tracemalloc.start()
        assert sum(1 for _ in read_narrations(path)) == count
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    small, large = peak(100), peak(400)
    assert large < 1.2 * small + 100_000


def test_the_ids_of_a_million_videos_lie_on_disk() -> None:
    """SQLite's own memory is not Python's, so its account is asked: the cache may hold 16 MiB."""
    with VideoLog() as seen:
        assert all(seen.add(f"{number:011}", "caption.json") for number in range(50_000))
        assert not seen.add("00000000007", "other.json")
        assert seen.place("00000000007") == "caption.json"
        (pages,) = seen._database.execute("PRAGMA page_count").fetchone()
        (size,) = seen._database.execute("PRAGMA page_size").fetchone()
        (cache,) = seen._database.execute("PRAGMA cache_size").fetchone()
    assert pages * size < 120 * 50_000
    assert cache == -16_384


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
    small, large = write_json(tmp_path / "a.json", 1000), write_json(tmp_path / "caption.json", 27_000)
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
