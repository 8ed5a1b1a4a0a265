"""How long steps take to encode, and a command to begin, with `Bert` and with sentence-transformers.

    python benchmarks/encoding.py [--quick]

The packaged MiniLM encodes the same distinct wordings of the embedded world, in turns: all at once, as a corpus is
built, and 24 at a time, as the new steps of a prompt with four plans are. `sentence-transformers` is the same class
without `Bert`: batches of 64 texts, and passes of a fixed shape for steps, whose vectors depend on no neighbour. A
start is a process of its own that opens the encoder and encodes one text. Times are those of the processor.
"""

import argparse
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
from common import add_json, interleaved, once, table, write_result

from recipe.config import EncoderConfig
from recipe.corpus import sentence_transformer
from recipe.corpus.encoders import Encoder, open_encoder
from recipe.world.load import load_world

STEPS = 24
"""New texts of a prompt with four plans."""
START = """
from recipe.config import EncoderConfig
from recipe.corpus import sentence_transformer
from recipe.corpus.encoders import open_encoder
{without}
open_encoder(EncoderConfig(name="minilm", device="cpu"), fixed_shape=True).encode(["boil the water"])
"""


def opened(bert: bool, fixed_shape: bool) -> Encoder:
    """MiniLM, computed by `Bert` or by sentence-transformers."""
    with nullcontext() if bert else patch.object(sentence_transformer, "Bert", None):
        return open_encoder(EncoderConfig(name="minilm", device="cpu"), fixed_shape=fixed_shape)


def in_parts(encoder: Encoder, texts: Sequence[str]) -> None:
    for first in range(0, len(texts), STEPS):
        encoder.encode(texts[first : first + STEPS])


def start(bert: bool) -> float:
    """Processor seconds of a process that encodes one text."""
    code = START.format(without="" if bert else "sentence_transformer.Bert = None")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure in turns, print and write a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer texts, once")
    parser.add_argument("--repeats", type=int, default=5)
    add_json(parser, "corpus-encoding")
    arguments = parser.parse_args()
    repeats = 1 if arguments.quick else arguments.repeats
    texts = sorted({wording for wordings in load_world().wordings.values() for wording in wordings})
    texts = list(np.random.default_rng(0).permutation(texts))[: 10 * STEPS if arguments.quick else 40 * STEPS]

    ours, theirs = "Bert", "sentence-transformers"
    batches = {ours: opened(True, False), theirs: opened(False, False)}
    steps = {ours: opened(True, True), theirs: opened(False, True)}
    difference = float(np.abs(batches[ours].encode(texts) - batches[theirs].encode(texts)).max())
    tasks: dict[tuple[str, str], Callable[[], object]] = {}
    for name in (ours, theirs):
        tasks["corpus", name] = partial(batches[name].encode, texts)
        tasks["steps", name] = partial(in_parts, steps[name], texts)
    first = {task: once(work, 1)[0] for task, work in tasks.items()}
    times = interleaved(tasks, first, 1, repeats, seconds=600)
    starts = {name: statistics.median(start(name == ours) for _ in range(repeats)) for name in (ours, theirs)}

    rows: dict[str, dict[str, Any]] = {
        "a text of a corpus, ms": {name: times["corpus", name].cpu_ms / len(texts) for name in (ours, theirs)},
        f"a text, {STEPS} at a time, ms": {name: times["steps", name].cpu_ms / len(texts) for name in (ours, theirs)},
        "a process that encodes one text, s": starts,
    }
    for row in rows.values():
        row["ratio"] = row[theirs] / row[ours]
    for name, row in rows.items():
        print(f"{name:36}" + "".join(f"{key} {value:8.2f}   " for key, value in row.items()))
    print(f"largest difference of a vector's number {difference:.1e}")
    write_result(
        arguments.json,
        {"rows": rows, "texts": len(texts), "largest_difference": difference},
        title="Encoding with MiniLM",
        guide="corpus.md",
        body=[
            f"{len(texts)} distinct wordings of the embedded world, one thread, processor time, medians of {repeats}. "
            f"Vectors of the two differ by {difference:.1e} at most.",
            table(rows),
        ],
        partial=arguments.quick,
    )


if __name__ == "__main__":
    main()
