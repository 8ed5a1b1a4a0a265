"""Commands of `recipe corpus`: from narrations to an index that can be searched."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer
from rich.markup import escape
from rich.table import Table

from recipe.cli.console import out, print_json, progress

if TYPE_CHECKING:
    from recipe.corpus.matches import Match
    from recipe.corpus.store import Corpus
    from recipe.types import Hit, Narration

app = typer.Typer(no_args_is_help=True, help="Build, inspect and search an index of narrations.")

Narrations = Annotated[list[Path], typer.Argument(help="Narrations, JSON lines; see docs/corpus.md.")]
Folder = Annotated[Path, typer.Argument(help="A corpus folder.")]
Encoder = Annotated[
    str,
    typer.Option(help="A sentence-transformers id or folder, `minilm` (packaged) or `hash:D` (no model)."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@app.command()
def build(
    narrations: Narrations,
    output: Annotated[Path, typer.Option(help="Corpus folder to write, or to go on with.")],
    encoder: Encoder,
    shard_size: Annotated[int, typer.Option(min=1, help="Narrations in a shard.")] = 4096,
    revision: Annotated[str | None, typer.Option(help="The model's revision on its hub.")] = None,
    task: Annotated[str | None, typer.Option(help="The model's own task or prompt name.")] = None,
    dimension: Annotated[int | None, typer.Option(min=1, help="Cut vectors to this length.")] = None,
    dtype: Annotated[
        Literal["float32", "bfloat16"], typer.Option(help="Number format that the encoder computes in.")
    ] = "float32",
    batch_size: Annotated[int, typer.Option(min=1, help="Texts encoded at once.")] = 64,
    duplicates: Annotated[
        Literal["error", "keep-first"], typer.Option(help="For a video id that was read before.")
    ] = "error",
    as_json: AsJson = False,
) -> None:
    """Embed narrations into a corpus folder; the same command goes on with a build that was stopped.

    Where two files hold the same video, list the better one first and pass --duplicates keep-first.

    Example: recipe corpus build narrations.jsonl --output corpora/mine --encoder minilm
    """
    from recipe.config import CorpusConfig, EncoderConfig
    from recipe.corpus.build import build_corpus
    from recipe.corpus.inputs import Origin
    from recipe.corpus.store import Corpus
    from recipe.data.narrations import read_narrations

    settings = EncoderConfig(
        name=encoder, revision=revision, task=task, dimension=dimension, dtype=dtype, batch_size=batch_size
    )
    build_corpus(
        read_narrations(narrations, duplicates),
        output,
        CorpusConfig(encoder=settings, shard_size=shard_size),
        progress(),
        origin=Origin(tuple(narrations), {"duplicates": duplicates}),
    )
    _show_summary(Corpus.open(output), as_json)


@app.command()
def info(folder: Folder, as_json: AsJson = False) -> None:
    """Show what a corpus holds: counts, lengths, times, encoder and size.

    Example: recipe corpus info corpora/mine
    """
    from recipe.corpus.store import Corpus

    _show_summary(Corpus.open(folder), as_json)


@app.command()
def verify(folder: Folder, as_json: AsJson = False) -> None:
    """Compare every file of a corpus with its checksum.

    Example: recipe corpus verify corpora/mine
    """
    from recipe.corpus.store import Corpus

    corpus = Corpus.open(folder)
    corpus.verify(progress())
    if as_json:
        print_json({"corpus": str(folder), "id": corpus.manifest["id"], "intact": True})
    else:
        out.print(f"{folder}: all {len(corpus.manifest['shards'])} shards are intact.", highlight=False)


@app.command()
def search(
    folder: Folder,
    steps: Annotated[list[str], typer.Argument(metavar="STEP...", help="Steps in order, each in quotes.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Narrations to show.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Find the narrations that cover the steps best, in order, and the segments that do.

    Example: recipe corpus search corpora/mine "chop the onion" "fry it in butter" -k 3
    """
    from recipe.corpus.matches import best_matches
    from recipe.corpus.store import Corpus
    from recipe.errors import InputError

    if any(not step.strip() for step in steps):
        raise InputError("a step is empty; give every step some text.")
    corpus = Corpus.open(folder)
    queries = corpus.encoder.encode(steps)
    found = [
        Found(hit, corpus.narration(hit.narration), best_matches(queries @ corpus.embeddings(hit.narration).T))
        for hit in corpus.search_vectors(queries, k)
    ]
    if as_json:
        print_json([_as_row(item, steps) for item in found])
        return
    for rank, item in enumerate(found, start=1):
        _show_found(rank, item, steps)


class Found(NamedTuple):
    """A hit with what it says: its narration, and for each step the segment that covers it."""

    hit: "Hit"
    narration: "Narration"
    matches: "list[Match]"


def _as_row(found: Found, steps: list[str]) -> dict[str, Any]:
    segments = found.narration.segments
    return {
        "narration": found.hit.narration,
        "video_id": found.narration.video_id,
        "title": found.narration.title,
        "source": found.narration.source,
        "score": found.hit.score,
        "matches": [
            {
                "step": steps[match.step],
                "segment": match.segment,
                "similarity": match.similarity,
                "start": segments[match.segment].start,
                "end": segments[match.segment].end,
                "text": segments[match.segment].text,
            }
            for match in found.matches
        ],
    }


def _show_found(rank: int, found: Found, steps: list[str]) -> None:
    name = found.narration.title or "without a title"
    heading = f"{rank}. {found.narration.video_id} ({name}): {found.hit.score:.3f}"
    out.print(heading, style="bold", markup=False, highlight=False)
    table = Table("step", "similarity", "time", "segment", box=None, padding=(0, 2, 0, 2))
    for match in found.matches:
        segment = found.narration.segments[match.segment]
        time = "untimed" if segment.start is None else f"{segment.start:.1f}-{segment.end:.1f} s"
        cells = (steps[match.step], f"{match.similarity:.3f}", time, segment.text)
        table.add_row(*map(escape, cells))
    out.print(table)


def _show_summary(corpus: "Corpus", as_json: bool) -> None:
    summary = _summary(corpus)
    if as_json:
        print_json(summary)
        return
    table = Table(show_header=False, box=None)
    encoder = ", ".join(f"{key} {value}" for key, value in summary["encoder"].items() if value is not None)
    table.add_row("narrations", f"{summary['narrations']:,}")
    table.add_row("segments", f"{summary['segments']:,} ({summary['mean_length']:.1f} a narration)")
    table.add_row("timed / untimed", f"{summary['timed']:,} / {summary['untimed']:,} narrations")
    table.add_row("encoder", encoder)
    table.add_row("on disk", _size(summary["disk_bytes"]))
    table.add_row("read by a search", f"{_size(summary['search_bytes'])}, mapped; fast where memory holds it")
    table.add_row("corpus id", summary["id"][:16])
    out.print(table, highlight=False)
    longest = max(summary["lengths"].values())
    for length, count in summary["lengths"].items():
        out.print(f"  {length:>9} segments  {count:>9,}  {'#' * round(40 * count / longest)}", highlight=False)


def _summary(corpus: "Corpus") -> dict[str, Any]:
    manifest = corpus.manifest
    files = [record for shard in manifest["shards"] for record in shard["files"].values()]
    return {
        "id": manifest["id"],
        "narrations": manifest["narrations"],
        "timed": manifest["timed"],
        "untimed": manifest["narrations"] - manifest["timed"],
        "segments": manifest["segments"],
        "mean_length": manifest["segments"] / manifest["narrations"],
        "lengths": _histogram(corpus),
        "encoder": manifest["encoder"],
        "shards": len(manifest["shards"]),
        "shard_size": manifest["shard_size"],
        "disk_bytes": sum(record["bytes"] for record in files),
        "search_bytes": manifest["segments"] * corpus.dimension * 2,
    }


def _histogram(corpus: "Corpus") -> dict[str, int]:
    """Narrations by length, in bins that double: 1, 2-3, 4-7, ..."""
    lengths = (corpus.offsets[1:] - corpus.offsets[:-1]).tolist()
    bins = Counter(int(length).bit_length() for length in lengths)
    return {(f"{1 << (power - 1)}-{(1 << power) - 1}" if power > 1 else "1"): bins[power] for power in sorted(bins)}


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
