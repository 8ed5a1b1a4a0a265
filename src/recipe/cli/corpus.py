"""Commands of `recipe corpus`: from narrations to an index that can be searched."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from recipe.cli.console import CommandGroup, CommandOutput, progress, shows
from recipe.cli.flags import SettingsTable, with_settings
from recipe.cli.inputs import Exclude, ExcludeSplit, Folder, Ids, Titles, exclusions_of
from recipe.cli.served import Server, require_no_other, searched_there
from recipe.config import CorpusConfig, EncoderConfig
from recipe.data.narrations import Duplicates, ReadingOptions
from recipe.errors import InputError, require_packages
from recipe.progress import LOADING

if TYPE_CHECKING:
    from recipe.corpus.store import Corpus

_LOG = logging.getLogger(__name__)

app = CommandGroup(
    {
        "add": "recipe.cli.corpus_changes:add",
        "remove": "recipe.cli.corpus_changes:remove",
        "list": "recipe.cli.corpus_changes:listing",
        "diff": "recipe.cli.corpus_changes:diff",
        "compact": "recipe.cli.corpus_changes:compact",
    },
    help="Build, change, inspect and search an index of narrations.",
)


@app.command()
@with_settings(
    reading=SettingsTable(ReadingOptions, tuple(ReadingOptions.model_fields), "How narrations are read (docs/data.md)"),
    encoder=SettingsTable(
        EncoderConfig,
        ("name", "revision", "task", "dimension", "dtype", "trust_remote_code", "batch_size"),
        "How they are encoded (docs/corpus.md)",
        names={"name": "--encoder"},
        defaults={"dtype": "auto"},
    ),
)
@shows
def build(
    narrations: Annotated[
        list[Path], typer.Argument(help="Files, folders or archives of narrations (docs/data.md); or a corpus.")
    ],
    output: Annotated[Path, typer.Option(help="Corpus folder to write, or to resume.")],
    shard_size: Annotated[int, typer.Option(min=1, help="Narrations in a shard.")] = 4096,
    engine: Annotated[
        Literal["local", "ray"], typer.Option(help="Encode on this machine, or on a Ray cluster.")
    ] = "local",
    devices: Annotated[str, typer.Option(help="Devices of this machine that share the work: cuda:0,cuda:1.")] = "",
    duplicates: Annotated[Duplicates, typer.Option(help="For a video id that was read before.")] = "error",
    titles: Titles = None,
    exclude: Exclude = None,
    exclude_split: ExcludeSplit = "",
    ids: Ids = None,
    *,
    reading: ReadingOptions,
    encoder: EncoderConfig,
) -> CommandOutput:
    """Embed narrations into a corpus folder; the same command resumes a build that was stopped.

    Where two files hold the same video, list the better one first and pass --duplicates keep-first. A corpus in place
    of files is encoded anew, with all that it records of its narrations.

    Example: recipe corpus build narrations.jsonl --output corpora/mine
    """
    LOADING.info("loading narrations ...")
    from recipe.corpus.encoder_identity import licence_note
    from recipe.corpus.encoders import encoder_extra

    require_packages({"cpu": "corpus search"} | encoder_extra(encoder.name))
    from recipe.corpus.build import build_corpus, narration_source
    from recipe.corpus.store import Corpus

    exclusions = exclusions_of(exclude, exclude_split, ids)
    stream, origin = narration_source(narrations, reading, duplicates, exclusions, titles)
    config = CorpusConfig(encoder=encoder, shard_size=shard_size)
    if note := licence_note({"name": encoder.name}):
        # Before the work is done.
        _LOG.warning(note)
    build_corpus(stream, output, config, progress(), origin=origin, engine=engine, devices=names(devices))
    corpus = Corpus.open(output)
    if exclusions is not None and "checked" not in (corpus.manifest["read"] or {}):
        _LOG.warning(
            "%s was read when excluded ids were not yet looked for in the names of files; "
            "`recipe corpus info --against` shows what it holds",
            output,
        )
    return _summary(corpus)


@app.command()
@shows
def info(
    folder: Folder,
    against: Annotated[
        list[Path] | None,
        typer.Option(help="Show which of these examples, procedures, narrations or video ids the corpus holds."),
    ] = None,
    split: Annotated[str, typer.Option(help="Of the examples and procedures, only this split.")] = "",
    ids: Ids = None,
) -> CommandOutput:
    """Show what a corpus holds: counts, lengths, encoder, how it was read, size on disk and in memory.

    Example: recipe corpus info corpora/mine --against data/test.jsonl
    """
    from recipe.corpus.excluded import read_exclusions
    from recipe.corpus.leaks import leakage
    from recipe.corpus.store import Corpus

    if ids is not None and not against:
        raise typer.BadParameter("it has a use with --against only.", param_hint="--ids")
    corpus = Corpus.open(folder)
    if not against:
        return _summary(corpus)
    report = leakage(corpus.folder, read_exclusions(against, split, ids), progress())
    lines = _pairs(report.rows())
    for copied in report.examples:
        lines.append(f"  {copied.video_id}: {100 * copied.similarity:.0f} % alike")
        lines += [f"    corpus    {copied.caption}", f"    excluded  {copied.excluded}"]
    return CommandOutput(report.as_dict(), lines)


@app.command()
@shows
def verify(
    folder: Folder,
    sample: Annotated[int, typer.Option(min=0, help="Random segments to encode again and compare.")] = 256,
    seed: Annotated[int, typer.Option(min=0, help="Which segments these are.")] = 0,
) -> CommandOutput:
    """Compare every file of a corpus with its checksum, and a sample of its vectors with their texts.

    Example: recipe corpus verify corpora/mine --sample 1000
    """
    from recipe.corpus.store import Corpus
    from recipe.corpus.verify import verify_corpus

    corpus = Corpus.open(folder)
    result = verify_corpus(corpus, sample, seed, progress())
    lines = [f"{folder}: intact; files compared with their checksums: {result.files:,}"]
    if result.deviation is not None:
        lines.append(
            f"segments encoded again: {result.sampled:,}; largest cosine deviation {result.deviation:.1e} "
            f"({result.tolerance:.0e} allowed); the bounds of their codes hold"
        )
    value = {"corpus": str(folder), "id": corpus.manifest["id"], "intact": True, **result._asdict()}
    return CommandOutput(value, lines)


@app.command()
@shows
def pull(
    source: Annotated[
        str, typer.Argument(help="A folder, an address of fsspec or of the web, or hf://datasets/OWNER/NAME.")
    ],
    folder: Annotated[Path, typer.Argument(help="Corpus folder to make.")],
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of the hub.")] = None,
) -> CommandOutput:
    """Copy a published corpus into a new folder and compare all checksums; the same command resumes.

    Example: recipe corpus pull hf://datasets/me/mine corpora/mine
    """

    require_packages({"release": "releases of a corpus"})
    from recipe.corpus.encoder_identity import licence_note
    from recipe.corpus.layout import open_manifest
    from recipe.corpus.release import pull_corpus

    release = pull_corpus(source, folder, revision, progress())
    manifest = open_manifest(folder)
    if note := licence_note(manifest["encoder"]):
        _LOG.warning(note)
    counts = f"{manifest['narrations']:,} narrations, {manifest['segments']:,} segments"
    return CommandOutput(
        {"corpus": str(folder), "source": source, **release._asdict()},
        [f"{folder}: {counts}; {release.files:,} files as published; corpus id {release.id[:16]}"],
    )


@app.command()
@shows
def search(
    folder: Folder,
    steps: Annotated[list[str], typer.Argument(metavar="STEP...", help="Steps in order, each in quotes.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Narrations to show.")] = 5,
    devices: Annotated[str, typer.Option(help="GPUs to search on in place of the processor: cuda:0.")] = "",
    actors: Annotated[int, typer.Option(min=0, help="Ray actors that each search a part; docs/corpus.md.")] = 0,
    server: Server = "",
) -> CommandOutput:
    """Find the narrations that cover the steps best, in order, and the segments that do.

    Example: recipe corpus search corpora/mine "chop the onion" "fry it in butter" -k 3
    """
    from recipe.report.elements import Cell, Table, headings, row
    from recipe.text import as_steps

    if any(not step.strip() for step in as_steps(steps)):
        raise InputError("a step is empty; give every step some text.")
    if server:
        require_no_other({"--devices": devices, "--actors": actors})
        answer = searched_there(server, folder, steps, k)
        certificate, rows, total = answer["certificate"], answer["rows"], answer["total"]
    else:
        from recipe.corpus.store import certified_hits

        with searched(folder, devices, actors) as corpus:
            proof, rows = certified_hits(corpus, steps, k)
            certificate, total = proof._asdict(), len(corpus)
    lines = list[Any]()
    for rank, hit_row in enumerate(rows, start=1):
        caption = f"{rank}. {hit_row['video_id']} ({hit_row['title'] or 'without a title'}): {hit_row['score']:.3f}"
        cells = (
            row(
                match["step"],
                Cell(match["similarity"], digits=3),
                "untimed" if match["start"] is None else f"{match['start']:.1f}-{match['end']:.1f} s",
                match["text"],
            )
            for match in hit_row["matches"]
        )
        notes = (hit_row["url"],) if hit_row["url"] else ()
        columns = headings("similarity", "time", "segment")
        lines.append(Table(caption, "step", columns, rows=tuple(cells), notes=notes))
    others = total - certificate["survivors"]
    proven = f"; the other {others:,} are proven to score less than {certificate['threshold']:.3f}" if others else ""
    scored = f"{certificate['survivors']:,} of {total:,} narrations scored exactly"
    lines.append(f"certificate ({certificate['method']}): {scored}{proven}")
    if not certificate["verified"]:
        advice = "`recipe corpus verify` does that once"
        lines.append(f"The corpus was copied or changed since its checksums were last compared; {advice}.")
    return CommandOutput({"certificate": certificate, "hits": rows}, lines)


def names(devices: str) -> tuple[str, ...]:
    """The devices named in one option."""
    return tuple(name for name in map(str.strip, devices.split(",")) if name)


@contextmanager
def searched(folder: Path, devices: str, actors: int) -> "Iterator[Corpus]":
    """The corpus in `folder`, opened where it is to be searched. Raises InputError for devices with actors."""
    from recipe.corpus.store import Corpus

    if actors and devices:
        raise InputError("--devices and --actors exclude each other; a Ray cluster chooses its devices itself.")
    if not actors:
        yield Corpus.open(folder, devices=names(devices))
        return
    from recipe.corpus.cluster.search import ClusterCorpus

    with ClusterCorpus.open(folder, actors) as corpus:
        yield corpus


def _summary(corpus: "Corpus") -> CommandOutput:
    """A corpus in figures."""
    from recipe.corpus.leaks import Checked
    from recipe.corpus.store import summarise

    summary = summarise(corpus)
    encoder, reading = (
        ", ".join(f"{key} {value}".strip() for key, value in values.items() if value is not None)
        for values in (summary["encoder"], summary["reading"] or {"": "narrations handed over in Python"})
    )
    read = summary["read"] or {}
    changes = read.get("changes", [])
    changed = {
        "added": sum(entry.get("added", 0) for entry in changes),
        "replaced": sum(entry.get("replaced", 0) for entry in changes),
        "removed": sum(len(entry.get("removed", ())) for entry in changes),
    }
    removed = summary["removed"]
    readings = [read, *(entry.get("read") or {} for entry in changes)]
    memory = {name: size_in_words(count) for name, count in summary["search_bytes"].items()}
    lines = _pairs(
        [
            ("narrations", f"{summary['narrations']:,}"),
            ("segments", f"{summary['segments']:,} ({summary['mean_length']:.1f} a narration)"),
            ("timed / untimed", f"{summary['timed']:,} / {summary['untimed']:,} narrations"),
            ("encoder", encoder),
            *([("licence", summary["licence"])] if summary["licence"] else []),
            ("read with", reading),
            *(("left out", line) for own in readings for line in own.get("left_out", [])),
            *(("note", line) for own in readings for line in own.get("notes", [])),
            *(("excluded", line) for row in read.get("checked") or [] if (line := Checked(**row).line)),
            *([("since the build", ", ".join(f"{name} {n:,}" for name, n in changed.items() if n))] if changes else []),
            ("on disk", f"{size_in_words(summary['disk_bytes'])} in {summary['shards']:,} shards"),
            *([("removed on disk", f"{removed:,} narrations, until `recipe corpus compact`")] * bool(removed)),
            ("search on a CPU", f"{memory['cpu_int8']} mapped, and the originals of a few narrations"),
            ("search on a GPU", f"{memory['gpu_int8']} as int8, {memory['gpu_float16']} as float16"),
            ("corpus id", summary["id"][:16]),
            *([("too small", summary["too_small"])] if summary["too_small"] else []),
        ]
    )
    longest = max(summary["lengths"].values())
    for length, count in summary["lengths"].items():
        lines.append(f"  {length:>9} segments  {count:>9,}  {'#' * round(40 * count / longest)}")
    return CommandOutput(summary, lines)


def _pairs(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Names and values in two columns."""
    width = max(len(name) for name, _ in pairs)
    return [f"{name:<{width}}  {value}" for name, value in pairs]


def size_in_words(count: float) -> str:
    """A number of bytes, for people.

    >>> size_in_words(999_600), size_in_words(1_234_000_000_000)
    ('1 MB', '1,234 GB')
    """
    for unit in ("B", "KB", "MB"):
        if count < 999.5:  # which three digits would round to 1e+03
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB" if count < 999.5 else f"{count:,.0f} GB"
