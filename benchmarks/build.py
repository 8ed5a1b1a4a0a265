"""What a build costs besides its encoder: the same texts through the encoder alone and through `build_corpus`.

    python benchmarks/build.py [--quick]

Both take the same open encoder and distinct texts of varied length, in turns; the build also stages, quantises,
checksums and writes four shards. The build's own limit is measured with an encoder that costs nothing: the rate
at which staging, and everything after the encoder, could serve a faster one. Rates are segments a second, by the
best wall time and by the median processor time, which tells more on a machine that others use too.
"""

import argparse
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from common import add_json, interleaved, once, table, write_result
from numpy.typing import NDArray

from recipe.config import CorpusConfig, EncoderConfig
from recipe.corpus.build import build_corpus, stage
from recipe.corpus.encode import encode_shards
from recipe.corpus.encoder_identity import EncoderIdentity
from recipe.corpus.encoders import open_encoder
from recipe.corpus.layout import ShardRecord
from recipe.progress import SILENT, Progress
from recipe.types import Narration, Segment

WORDS = [
    "the",
    "a",
    "of",
    "then",
    "pan",
    "onion",
    "chop",
    "fry",
    "pour",
    "boil",
    "stir",
    "salt",
    "water",
    "until",
    "golden",
]
LENGTH = 20
"""Segments in a narration."""
CLOCKS = ("wall", "processor")


class NoEncoder:
    """Ready vectors for any texts, at once."""

    def __init__(self, dimension: int, most: int = 1 << 14) -> None:
        vectors = np.random.default_rng(0).standard_normal((most, dimension), dtype=np.float32)
        self._vectors: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    @property
    def identity(self) -> EncoderIdentity:
        """Enough for a manifest."""
        dimension = self._vectors.shape[1]
        return EncoderIdentity(
            name="none", revision=None, task=None, dtype="float32", dimension=dimension, weights=None
        )

    def encode(self, texts: Sequence[str], progress: Progress = SILENT) -> NDArray[np.float32]:
        """Some vectors."""
        return self._vectors[: len(texts)]


def narrations(segments: int) -> list[Narration]:
    """Distinct texts of 3 to 40 words."""
    draw = np.random.default_rng(0)
    texts = [f"{n} {' '.join(draw.choice(WORDS, draw.integers(2, 40)))}" for n in range(segments)]
    return [
        Narration(f"v{first}", tuple(Segment(text) for text in texts[first : first + LENGTH]))
        for first in range(0, segments, LENGTH)
    ]


def beside_the_encoder(segments: int, folder: Path, most: int) -> dict[str, float]:
    """Rates of the encoder alone and of the build, and their ratio."""
    made = narrations(segments)
    texts = [segment.text for narration in made for segment in narration.segments]
    config = CorpusConfig(encoder=EncoderConfig(name="minilm"), shard_size=len(made) // 4)
    encoder = open_encoder(config.encoder)

    def build() -> None:
        shutil.rmtree(folder / "c", ignore_errors=True)
        build_corpus(made, folder / "c", config, encoder=encoder)

    tasks: dict[str, Callable[[], object]] = {"encoder": lambda: encoder.encode(texts), "build": build}
    build_corpus(made[:4], folder / "warm", config, encoder=encoder)  # loads the compiled kernels
    first = {name: once(task, 1)[0] for name, task in tasks.items()}
    times = interleaved(tasks, first, 1, most, seconds=600)
    best, cpu = ({name: getattr(time, key) / 1e3 for name, time in times.items()} for key in ("best_ms", "cpu_ms"))
    return {
        **{f"{name}, wall": segments / seconds for name, seconds in best.items()},
        **{f"{name}, processor": segments / seconds for name, seconds in cpu.items()},
        "ratio, wall": best["encoder"] / best["build"],
        "ratio, processor": cpu["encoder"] / cpu["build"],
    }


def limits(segments: int, dimension: int, folder: Path) -> dict[str, float]:
    """Rates of staging, and of all that follows the encoder."""
    made = narrations(segments)
    shards: list[ShardRecord] = []
    staging = once(lambda: shards.extend(stage(made, folder, len(made) // 4, SILENT)), 1)
    after = once(lambda: encode_shards(folder, range(len(shards)), NoEncoder(dimension), lambda _n: None), 1)
    return {
        f"{name}, {clock}": segments / seconds
        for name, pair in (("staging", staging), ("after the encoder", after))
        for clock, seconds in zip(CLOCKS, pair, strict=True)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer texts, once")
    parser.add_argument("--segments", type=int, default=4000)
    parser.add_argument("--dimension", type=int, default=1024, help="of the build's own limit")
    parser.add_argument("--repeats", type=int, default=5)
    add_json(parser, "corpus")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.segments, arguments.repeats = 800, 1
    with tempfile.TemporaryDirectory() as name:
        result = {
            "minilm": beside_the_encoder(arguments.segments, Path(name), arguments.repeats),
            "limit": limits(20 * arguments.segments, arguments.dimension, Path(name) / "limit"),
            "setting": {key: getattr(arguments, key) for key in ("segments", "dimension", "repeats")},
        }
    for part in ("minilm", "limit"):
        for key, value in result[part].items():
            print(f"{part:8} {key:28} {value:10,.3f}" if "ratio" in key else f"{part:8} {key:28} {value:10,.0f} /s")
    alone = ("encoder", "build", "ratio"), ("staging", "after the encoder")
    parts = zip(("minilm", "limit"), alone, strict=True)
    rows = {
        name: {clock: result[part][f"{name}, {clock}"] for clock in CLOCKS} for part, names in parts for name in names
    }
    write_result(
        arguments.json,
        result,
        title="A build compared with its bare encoder",
        guide="corpus.md",
        body=[
            f"MiniLM on {arguments.segments:,} texts of 3 to 40 words and four shards; staging and what follows the "
            "encoder with "
            f"an encoder of {arguments.dimension:,} dimensions that costs nothing. Segments a second, best of "
            f"{arguments.repeats}.",
            table(rows),
        ],
        partial=arguments.segments < parser.get_default("segments"),
    )


if __name__ == "__main__":
    main()
