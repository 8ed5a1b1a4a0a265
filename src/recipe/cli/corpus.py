"""Commands of `recipe corpus`: from narrations to an index that can be searched."""

from pathlib import Path
from typing import Annotated

import typer

from recipe.cli import corpus_options as options
from recipe.cli.console import out, print_json, progress
from recipe.cli.corpus_tables import Found, as_row, show_certificate, show_found, show_leaks, show_summary

app = typer.Typer(no_args_is_help=True, help="Build, inspect and search an index of narrations.")

Folder = Annotated[Path, typer.Argument(help="A corpus folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@app.command()
def build(
    narrations: options.Narrations,
    output: options.Output,
    encoder: options.Encoder = "jinaai/jina-embeddings-v3-hf",
    shard_size: options.ShardSize = 4096,
    revision: options.Revision = None,
    task: options.Task = None,
    dimension: options.Dimension = None,
    dtype: options.Dtype = "auto",
    batch_size: options.BatchSize = 64,
    trust_remote_code: options.TrustRemoteCode = False,
    engine: options.Engine = "local",
    devices: options.Devices = "",
    layout: options.Layout = "auto",
    captions: options.Captions = "each",
    min_score: options.MinScore = None,
    alignable: options.Alignable = False,
    rolling: options.Rolling = "collapse",
    bad: options.Bad = "error",
    encoding: options.Encoding = "utf-8",
    source: options.Source = None,
    duplicates: options.Duplicates = "error",
    exclude: options.Exclude = None,
    exclude_split: options.ExcludeSplit = "",
    as_json: AsJson = False,
) -> None:
    """Embed narrations into a corpus folder; the same command goes on with a build that was stopped.

    Where two files hold the same video, list the better one first and pass --duplicates keep-first.

    Example: recipe corpus build narrations.jsonl --output corpora/mine --encoder minilm
    """
    from recipe.config import CorpusConfig, EncoderConfig, parse_config
    from recipe.corpus.build import build_corpus
    from recipe.corpus.building.sources import narration_source
    from recipe.corpus.leaks.guard import Exclusions
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
    named = options.names(devices)
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
    from recipe.corpus.leaks.guard import leakage
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
    devices: options.SearchDevices = "",
    actors: options.Actors = 0,
    as_json: AsJson = False,
) -> None:
    """Find the narrations that cover the steps best, in order, and the segments that do.

    Example: recipe corpus search corpora/mine "chop the onion" "fry it in butter" -k 3
    """
    from recipe.corpus.matches import best_matches
    from recipe.errors import InputError

    if any(not step.strip() for step in steps):
        raise InputError("a step is empty; give every step some text.")
    with options.searched(folder, devices, actors) as corpus:
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
