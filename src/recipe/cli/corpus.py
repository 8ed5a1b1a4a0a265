"""Commands of `recipe corpus`: from narrations to an index that can be searched."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer
from rich.markup import escape
from rich.table import Table

from recipe.cli.console import out, print_json, progress

if TYPE_CHECKING:
    from recipe.corpus.cluster.search import ClusterCorpus
    from recipe.corpus.leaks import LeakReport
    from recipe.corpus.scan.certificate import Certificate
    from recipe.corpus.store import Corpus, Match
    from recipe.types import Hit, Narration

# The options of `recipe corpus build` and `search`: how narrations are read and encoded, where they are searched.


_READING = "How narrations are read (docs/readers.md)"
_ENCODING = "How they are encoded (docs/corpus.md)"

Narrations = Annotated[list[Path], typer.Argument(help="Files, folders or archives of narrations; docs/readers.md.")]
Output = Annotated[Path, typer.Option(help="Corpus folder to write, or to go on with.")]
ShardSize = Annotated[int, typer.Option(min=1, help="Narrations in a shard.")]


def _reading(help: str, **more: Any) -> Any:
    return typer.Option(help=help, rich_help_panel=_READING, **more)


def _encoding(help: str, **more: Any) -> Any:
    return typer.Option(help=help, rich_help_panel=_ENCODING, **more)


Layout = Annotated[
    Literal[
        "auto",
        "jsonl",
        "procedures",
        "howtocaption",
        "howto100m",
        "howto100m-csv",
        "htm-align",
        "htm-aa",
        "whisperx",
        "subtitles",
        "parquet",
    ],
    typer.Option("--format", help="Layout of the files.", rich_help_panel=_READING),
]
Captions = Annotated[Literal["each", "joined", "first"], _reading("What captions of one time span become.")]
MinScore = Annotated[float | None, _reading("Leave out captions that score less.")]
Alignable = Annotated[
    bool, typer.Option("--alignable", help="Of HTM-Align, what is alignable.", rich_help_panel=_READING)
]
Rolling = Annotated[Literal["collapse", "keep"], _reading("For cues that repeat the line before.")]
Bad = Annotated[Literal["error", "skip"], _reading("For what cannot be used: stop, or leave it out and count it.")]
Encoding = Annotated[str, _reading("Character encoding of text files.")]
Source = Annotated[str | None, _reading("Name of the source, where files name none.")]
Duplicates = Annotated[Literal["error", "keep-first"], _reading("For a video id that was read before.")]
Exclude = Annotated[
    list[Path] | None,
    _reading("Examples, procedures, narrations or a .txt of video ids to keep out; may be repeated (docs/leaks.md)."),
]
ExcludeSplit = Annotated[str, _reading("Of the examples and procedures to keep out, only this split.")]

Encoder = Annotated[str, _encoding("A sentence-transformers id or folder, `minilm` (packaged) or `hash:D` (no model).")]
Revision = Annotated[str | None, _encoding("The model's revision on its hub.")]
Task = Annotated[str | None, _encoding("The model's own task or prompt name.")]
Dimension = Annotated[int | None, _encoding("Cut vectors to this length.", min=1)]
Dtype = Annotated[Literal["auto", "float32", "bfloat16"], _encoding("Number format that the encoder computes in.")]
BatchSize = Annotated[int, _encoding("Texts encoded at once.", min=1)]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run a pinned model's code.", rich_help_panel=_ENCODING)
]
Engine = Annotated[Literal["local", "ray"], _encoding("Who encodes: this machine, or a Ray cluster.")]
Devices = Annotated[str, _encoding("Devices of this machine that share the work: cuda:0,cuda:1.")]

SearchDevices = Annotated[str, typer.Option("--devices", help="GPUs to search on in place of the processor: cuda:0.")]
Actors = Annotated[int, typer.Option(min=0, help="Ray actors that each search a part; docs/cluster.md.")]


def names(devices: str) -> tuple[str, ...]:
    """The devices named in one option."""
    return tuple(name for name in map(str.strip, devices.split(",")) if name)


@contextmanager
def searched(folder: Path, devices: str, actors: int) -> "Iterator[Corpus | ClusterCorpus]":
    """The corpus in `folder`, opened where it is to be searched. Raises InputError for devices with actors."""
    from recipe.corpus.store import Corpus
    from recipe.errors import InputError

    if actors and devices:
        raise InputError("--devices and --actors exclude each other; a Ray cluster chooses its devices itself.")
    if not actors:
        yield Corpus.open(folder, devices=names(devices))
        return
    from recipe.corpus.cluster.search import ClusterCorpus

    with ClusterCorpus.open(folder, actors) as corpus:
        yield corpus


# How the results of `recipe corpus` are shown.


class Found(NamedTuple):
    """A hit with what it says: its narration, and for each step the segment that covers it."""

    hit: "Hit"
    narration: "Narration"
    matches: "list[Match]"


def as_row(found: Found, steps: list[str]) -> dict[str, Any]:
    """A hit as plain values."""
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


def show_found(rank: int, found: Found, steps: list[str]) -> None:
    """Print a hit: its narration, and the segment that covers each step."""
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


def show_certificate(certificate: "Certificate", narrations: int) -> None:
    """Print why the hits are the best."""
    others = narrations - certificate.survivors
    proof = f"; the other {others:,} are proven to score less than {certificate.threshold:.3f}" if others else ""
    counted = f"{certificate.survivors:,} of {narrations:,} narrations"
    out.print(f"certificate ({certificate.method}): {counted} scored exactly{proof}", markup=False, soft_wrap=True)


def show_summary(corpus: "Corpus", as_json: bool) -> None:
    """Print a corpus in figures."""
    from recipe.corpus.store import summarise

    summary = summarise(corpus)
    if as_json:
        print_json(summary)
        return
    memory = {name: size(count) for name, count in summary["search_bytes"].items()}
    table = Table(show_header=False, box=None)
    table.add_row("narrations", f"{summary['narrations']:,}")
    table.add_row("segments", f"{summary['segments']:,} ({summary['mean_length']:.1f} a narration)")
    table.add_row("timed / untimed", f"{summary['timed']:,} / {summary['untimed']:,} narrations")
    table.add_row("encoder", _settings(summary["encoder"]))
    if summary["licence"]:
        table.add_row("licence", summary["licence"])
    table.add_row("read with", _settings(summary["reading"] or {"": "narrations handed over in Python"}))
    for sentence in (summary["read"] or {}).get("left_out", []):
        table.add_row("left out", sentence)
    table.add_row("on disk", f"{size(summary['disk_bytes'])} in {summary['shards']:,} shards")
    table.add_row("search on a CPU", f"{memory['cpu_int8']} mapped, and the originals of a few narrations")
    table.add_row("search on a GPU", f"{memory['gpu_int8']} as int8, {memory['gpu_float16']} as float16")
    table.add_row("corpus id", summary["id"][:16])
    out.print(table, highlight=False, markup=False)
    longest = max(summary["lengths"].values())
    for length, count in summary["lengths"].items():
        out.print(f"  {length:>9} segments  {count:>9,}  {'#' * round(40 * count / longest)}", highlight=False)


def show_leaks(report: "LeakReport", as_json: bool) -> None:
    """Print what a corpus holds of excluded videos."""
    if as_json:
        print_json(report.as_dict())
        return
    table = Table(show_header=False, box=None)
    for row in report.rows():
        table.add_row(*map(escape, row))
    out.print(table, highlight=False)
    for copied in report.examples:
        heading = f"  {copied.video_id}: {100 * copied.similarity:.0f} % alike"
        out.print(f"{heading}\n    corpus    {copied.caption}\n    excluded  {copied.excluded}", markup=False)


def size(count: float) -> str:
    """A number of bytes, for people."""
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def _settings(values: dict[str, Any]) -> str:
    return escape(", ".join(f"{key} {value}".strip() for key, value in values.items() if value is not None))


# Commands of `recipe corpus`: from narrations to an index that can be searched.


app = typer.Typer(no_args_is_help=True, help="Build, inspect and search an index of narrations.")

Folder = Annotated[Path, typer.Argument(help="A corpus folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@app.command()
def build(
    narrations: Narrations,
    output: Output,
    encoder: Encoder = "jinaai/jina-embeddings-v3-hf",
    shard_size: ShardSize = 4096,
    revision: Revision = None,
    task: Task = None,
    dimension: Dimension = None,
    dtype: Dtype = "auto",
    batch_size: BatchSize = 64,
    trust_remote_code: TrustRemoteCode = False,
    engine: Engine = "local",
    devices: Devices = "",
    layout: Layout = "auto",
    captions: Captions = "each",
    min_score: MinScore = None,
    alignable: Alignable = False,
    rolling: Rolling = "collapse",
    bad: Bad = "error",
    encoding: Encoding = "utf-8",
    source: Source = None,
    duplicates: Duplicates = "error",
    exclude: Exclude = None,
    exclude_split: ExcludeSplit = "",
    as_json: AsJson = False,
) -> None:
    """Embed narrations into a corpus folder; the same command goes on with a build that was stopped.

    Where two files hold the same video, list the better one first and pass --duplicates keep-first.

    Example: recipe corpus build narrations.jsonl --output corpora/mine --encoder minilm
    """
    from recipe.config import CorpusConfig, EncoderConfig, parse_config
    from recipe.corpus.build import build_corpus
    from recipe.corpus.leaks import Exclusions, narration_source
    from recipe.corpus.store import Corpus
    from recipe.data.narrations import ReadingOptions

    given = {
        "format": layout,
        "captions": captions,
        "min_score": min_score,
        "alignable": alignable,
        "rolling": rolling,
        "bad": bad,
        "encoding": encoding,
        "source": source,
    }
    settings = EncoderConfig(
        name=encoder,
        revision=revision,
        task=task,
        dimension=dimension,
        dtype=dtype,
        batch_size=batch_size,
        trust_remote_code=trust_remote_code,
    )
    reading = parse_config(given, ReadingOptions, "the options")
    exclusions = Exclusions.read(exclude, exclude_split) if exclude else None
    stream, origin = narration_source(narrations, reading, duplicates, exclusions)
    config = CorpusConfig(encoder=settings, shard_size=shard_size)
    named = names(devices)
    build_corpus(stream, output, config, progress(), origin=origin, engine=engine, devices=named)
    show_summary(Corpus.open(output), as_json)


@app.command()
def info(
    folder: Folder,
    against: Annotated[
        list[Path] | None,
        typer.Option(help="Tell what the corpus holds of these examples, procedures, narrations or video ids."),
    ] = None,
    split: Annotated[str, typer.Option(help="Of the examples and procedures, only this split.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show what a corpus holds: counts, lengths, encoder, how it was read, size on disk and in memory.

    Example: recipe corpus info corpora/mine --against data/test.jsonl
    """
    from recipe.corpus.leaks import leakage
    from recipe.corpus.store import Corpus

    corpus = Corpus.open(folder)
    if against:
        show_leaks(leakage(corpus, against, progress(), split=split), as_json)
    else:
        show_summary(corpus, as_json)


@app.command()
def verify(
    folder: Folder,
    sample: Annotated[int, typer.Option(min=0, help="Random segments to encode again and compare.")] = 256,
    seed: Annotated[int, typer.Option(min=0, help="Which segments these are.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Compare every file of a corpus with its checksum, and a sample of its vectors with their texts.

    Example: recipe corpus verify corpora/mine --sample 1000
    """
    from recipe.corpus.store import Corpus
    from recipe.corpus.verify import verify_corpus

    corpus = Corpus.open(folder)
    found = verify_corpus(corpus, sample, seed, progress())
    if as_json:
        print_json({"corpus": str(folder), "id": corpus.manifest["id"], "intact": True, **found._asdict()})
        return
    out.print(f"{folder}: intact; files compared with their checksums: {found.files:,}", markup=False, soft_wrap=True)
    if found.deviation is not None:
        out.print(
            f"segments encoded again: {found.sampled:,}; largest cosine deviation {found.deviation:.1e} "
            f"({found.tolerance:.0e} allowed); the bounds of their codes hold",
            soft_wrap=True,
        )


@app.command()
def search(
    folder: Folder,
    steps: Annotated[list[str], typer.Argument(metavar="STEP...", help="Steps in order, each in quotes.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Narrations to show.")] = 5,
    devices: SearchDevices = "",
    actors: Actors = 0,
    as_json: AsJson = False,
) -> None:
    """Find the narrations that cover the steps best, in order, and the segments that do.

    Example: recipe corpus search corpora/mine "chop the onion" "fry it in butter" -k 3
    """
    from recipe.corpus.store import best_matches
    from recipe.errors import InputError

    if any(not step.strip() for step in steps):
        raise InputError("a step is empty; give every step some text.")
    with searched(folder, devices, actors) as corpus:
        queries = corpus.encoder.encode(steps)
        (result,) = corpus.index.search([queries], k)
        found = [
            Found(hit, corpus.narration(hit.narration), best_matches(queries @ corpus.embeddings(hit.narration).T))
            for hit in result.hits
        ]
        total = len(corpus)
    if as_json:
        print_json({"certificate": result.certificate._asdict(), "hits": [as_row(item, steps) for item in found]})
        return
    for rank, item in enumerate(found, start=1):
        show_found(rank, item, steps)
    show_certificate(result.certificate, total)
