"""`recipe data pseudo`: examples for supervised fine-tuning, mined from a corpus."""

from pathlib import Path
from typing import Annotated, Any

import typer

from recipe.cli.console import print_json, print_lines, print_table, progress
from recipe.cli.flags import with_flags
from recipe.config import MiningConfig


@with_flags(MiningConfig, "config", "How continuations are mined (docs/data.md)")
def pseudo(
    corpus: Annotated[Path, typer.Option(help="Corpus folder that continuations are mined from.")],
    output: Annotated[Path, typer.Option(help="Examples file to write, JSON lines; its origins go beside it.")],
    examples: Annotated[
        Path | None, typer.Option(help="Mine for the histories of these examples. Default: from titles alone.")
    ] = None,
    split: Annotated[str, typer.Option(help="Of --examples, only this split; an empty text takes all.")] = "train",
    exclude: Annotated[
        list[Path] | None,
        typer.Option(
            help="Examples, procedures, narrations or a .txt of video ids to keep out; may be repeated (docs/leaks.md)."
        ),
    ] = None,
    exclude_split: Annotated[
        str, typer.Option(help="Of the examples and procedures to keep out, only this split.")
    ] = "",
    ids: Annotated[
        Path | None,
        typer.Option(help="The ids that corpora have for videos to keep out: CSV of a benchmark's id, a corpus's id."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many examples, drawn by the seed.")] = None,
    seed: Annotated[int, typer.Option(help="Draws examples (--limit), cut points and what the report shows.")] = 0,
    annotations: Annotated[
        list[Path] | None,
        typer.Option(help="Procedures of videos of the corpus, to compare with in the report; may be repeated."),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Folder for quality.json and quality.md.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    *,
    config: MiningConfig,
) -> None:
    """Mine continuations from a corpus as pseudo-labels; the same command resumes what was stopped.

    Example: recipe data pseudo --corpus corpora/mine --examples examples.jsonl --output pseudo.jsonl --report quality
    """
    from recipe.artifacts import remove, require_writable, to_json, write_jsonl
    from recipe.corpus.leaks import Exclusions
    from recipe.corpus.store import Corpus
    from recipe.data.examples import read_training_examples, write_examples
    from recipe.data.procedures import read_procedures
    from recipe.errors import InputError
    from recipe.mining.mine import DROPPED, mine

    if annotations and report is None:
        raise typer.BadParameter("it has a use with --report only.", param_hint="--annotations")
    if ids is not None and not exclude:
        raise typer.BadParameter("it has a use with --exclude only.", param_hint="--ids")
    require_writable(output)
    if report is not None:
        from recipe.mining.quality import DATA, measure_quality, quality_tables, write_quality

        require_writable(report / DATA)
    wanted = None if examples is None else read_training_examples(examples, split)
    known = [video for path in annotations or [] for video in read_procedures(path).procedures]
    exclusions = Exclusions.read(exclude, exclude_split, ids) if exclude else None
    opened = Corpus.open(corpus)
    checked = () if exclusions is None else exclusions.checked_among(opened.video_ids)
    work = output.with_name(f".{output.name}.work")
    try:
        mined = mine(
            opened, config, wanted, exclusions=exclusions, limit=limit, seed=seed, work=work, progress=progress()
        )
        if not mined.examples:
            reasons = "; ".join(f"{DROPPED[reason]}: {count:,}" for reason, count in mined.dropped.items())
            problem = f"no example was mined ({reasons})"
            raise InputError.at(corpus, problem, "give other narrations, or loosen the settings")
    except InputError:
        remove(work)
        raise
    origins = output.with_name(f"{output.stem}.origins.jsonl")
    write_jsonl(origins, (origin._asdict() for origin in mined.origins))
    write_examples(output, mined.examples)
    remove(work)
    result: dict[str, Any] = {
        "output": str(output),
        "origins": str(origins),
        "mode": mined.mode,
        "examples": len(mined.examples),
        "considered": mined.considered,
        "dropped": {reason: mined.dropped[reason] for reason in DROPPED if mined.dropped[reason]},
        "segments": mined.segments,
        "step_like": mined.step_like,
        "checked": [one._asdict() for one in checked],
    }
    written: list[Path] = []
    if report is not None:
        quality = measure_quality(mined, opened, config, examples=wanted or (), procedures=known, seed=seed)
        written = write_quality(quality, report)
        result["quality"] = to_json(quality)
    if as_json:
        print_json(result)
        return
    if report is None:
        print_lines(*(f"left out: {count:,} {DROPPED[reason]}" for reason, count in result["dropped"].items()))
    else:
        for table in quality_tables(quality):
            print_table(table)
    print_lines(*(f"excluded: {one.line}" for one in checked if one.line))
    print_lines(f"{len(mined.examples):,} examples written to {output}, their origins to {origins}", *written)
