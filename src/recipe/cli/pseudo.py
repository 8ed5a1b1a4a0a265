"""`recipe data pseudo`: examples for supervised fine-tuning, mined from a corpus."""

from pathlib import Path
from typing import Annotated, Any

import typer

from recipe.cli.console import CommandOutput, progress, shows
from recipe.cli.flags import SettingsTable, with_settings
from recipe.cli.inputs import Exclude, ExcludeSplit, Ids
from recipe.config import MiningConfig


@with_settings(
    mining=SettingsTable(MiningConfig, tuple(MiningConfig.model_fields), "How continuations are mined (docs/data.md)")
)
@shows
def pseudo(
    corpus: Annotated[Path, typer.Option(help="Corpus folder that continuations are mined from.")],
    output: Annotated[
        Path, typer.Option(help="Examples file to write, JSON lines; X.origins.jsonl says where each is from.")
    ],
    examples: Annotated[
        Path | None, typer.Option(help="Mine for the histories of these examples. Default: from titles alone.")
    ] = None,
    split: Annotated[str, typer.Option(help="Of --examples, only this split; an empty text takes all.")] = "train",
    exclude: Exclude = None,
    exclude_split: ExcludeSplit = "",
    ids: Ids = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many examples, drawn by the seed.")] = None,
    seed: Annotated[int, typer.Option(help="Draws examples (--limit), cut points and what the report shows.")] = 0,
    annotations: Annotated[
        list[Path] | None,
        typer.Option(help="Procedures of videos of the corpus, to compare with in the report; may be repeated."),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Folder for quality.json and quality.md.")] = None,
    *,
    mining: MiningConfig,
) -> CommandOutput:
    """Mine continuations from a corpus as pseudo-labels; the same command resumes what was stopped.

    Example: recipe data pseudo --corpus corpora/mine --examples examples.jsonl --output pseudo.jsonl --report quality
    """
    from recipe.artifacts import remove, require_writable, to_json, write_jsonl
    from recipe.corpus.excluded import read_exclusions
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
        from recipe.mining.quality import DATA, measure_quality

        require_writable(report / DATA)
    prompts = None if examples is None else read_training_examples(examples, split)
    known = [video for path in annotations or [] for video in read_procedures(path).procedures]
    exclusions = read_exclusions(exclude, exclude_split, ids) if exclude else None
    opened = Corpus.open(corpus)
    checked = () if exclusions is None else exclusions.checked_among(opened.video_ids)
    work = output.with_name(f".{output.name}.work")
    try:
        mined = mine(
            opened, mining, prompts, exclusions=exclusions, limit=limit, seed=seed, work=work, progress=progress()
        )
        if not mined.examples:
            reasons = "; ".join(f"{DROPPED[reason]}: {count:,}" for reason, count in mined.dropped.items())
            problem = f"no example was mined ({reasons})"
            raise InputError.at(corpus, problem, "give other narrations, or loosen the settings")
    except InputError:
        # What was refused leaves nothing to go on from; after a kill or Ctrl-C the work stays.
        remove(work)
        raise
    origins = output.with_name(f"{output.stem}.origins.jsonl")
    write_jsonl(origins, (origin._asdict() for origin in mined.origins))
    write_examples(output, mined.examples)
    # Last: until its result is written, a kill costs no work.
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
        "checked": [check._asdict() for check in checked],
    }
    lines: list[Any] = [f"left out: {count:,} {DROPPED[reason]}" for reason, count in result["dropped"].items()]
    written: list[Path] = []
    if report is not None:
        quality = measure_quality(mined, opened, mining, examples=prompts or (), procedures=known, seed=seed)
        written, lines = quality.write(report), [*quality.tables()]
        result["quality"] = to_json(quality)
    excluded = (f"excluded: {check.line}" for check in checked if check.line)
    sentence = f"{len(mined.examples):,} examples written to {output}, their origins to {origins}"
    return CommandOutput(result, [*lines, *excluded, sentence, *map(str, written)])
