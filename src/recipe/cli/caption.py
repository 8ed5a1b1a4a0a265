"""`recipe corpus caption`: what is said in videos as captions of what is done, by a model or by other narrations."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from recipe.cli.console import CommandOutput, progress, shows
from recipe.cli.corpus import Exclude, ExcludeSplit, Ids, Titles, exclusions_of
from recipe.cli.flags import SettingsTable, with_settings
from recipe.cli.models import ASKED, FLAGS, beside, opened
from recipe.config import CaptionConfig, CorpusConfig, EncoderConfig, ModelConfig, SamplingConfig
from recipe.data.narrations import Duplicates, ReadingOptions
from recipe.errors import ComputeError, ConfigError, InputError

if TYPE_CHECKING:
    from recipe.artifacts import JsonObject
    from recipe.corpus.leaks import Source
    from recipe.mining.captions import CaptionReport
    from recipe.models.model import Model
    from recipe.models.protocol import Answer, Chat, Refusal
    from recipe.report.elements import Table
    from recipe.types import Narration

SETTINGS = "settings.json"
"""In the folder of unfinished work: what its captions are made with."""
_CHARACTERS_A_TOKEN = 4


@with_settings(
    model=SettingsTable(ModelConfig, tuple(name for name in FLAGS if name != "engine"), ASKED, defaults={"model": ""}),
    sampling=SettingsTable(
        SamplingConfig,
        ("temperature", "max_tokens", "seed"),
        "How the model samples",
        defaults={"temperature": 0.3, "max_tokens": 512},
    ),
    captions=SettingsTable(CaptionConfig, tuple(CaptionConfig.model_fields), "How captions are made (docs/data.md)"),
    encoder=SettingsTable(
        EncoderConfig, ("name",), "How captions are made (docs/data.md)", names={"name": "--encoder"}
    ),
    reading=SettingsTable(
        ReadingOptions, ("format", "language", "marks", "bad"), "How narrations are read (docs/data.md)"
    ),
)
@shows
def caption(
    narrations: Annotated[list[Path], typer.Argument(help="Files, folders or archives of narrations; docs/data.md.")],
    output: Annotated[
        Path | None, typer.Option(help="Narrations in captions to write, JSON lines; a report goes beside it.")
    ] = None,
    engine: Annotated[
        Literal["transformers", "vllm", "none"],
        typer.Option(help="What runs --model on this machine; none: no model, what other narrations say too stays."),
    ] = "transformers",
    prompt: Annotated[
        str,
        typer.Option(help="A file that takes $title and $speech, caption, or caption-list for a small model."),
    ] = "",
    duplicates: Annotated[Duplicates, typer.Option(help="For a video id that was read before.")] = "error",
    titles: Titles = None,
    exclude: Exclude = None,
    exclude_split: ExcludeSplit = "",
    ids: Ids = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be asked, and ask nothing.")] = False,
    *,
    model: ModelConfig,
    sampling: SamplingConfig,
    captions: CaptionConfig,
    encoder: EncoderConfig,
    reading: ReadingOptions,
) -> CommandOutput:
    """Make captions of speech, with times and the speech behind each; `recipe corpus build` reads them.

    The same command resumes what was stopped, and pays for no answer twice.

    Example: recipe corpus caption talk/ --endpoint http://localhost:8000/v1 --model m --output captioned.jsonl

    Example: recipe corpus caption talk/ --engine none --output captioned.jsonl
    """
    from recipe.artifacts import fingerprint, locked, read_text, remove, require_writable, write_json, write_jsonl
    from recipe.corpus.build import build_corpus
    from recipe.corpus.encoders import encoder_extra, open_encoder
    from recipe.corpus.leaks import ExclusionReport, narration_source
    from recipe.corpus.store import Corpus
    from recipe.data.narrations import to_row
    from recipe.errors import require_packages
    from recipe.mining.captions import CaptionReport, caption_speech, supported_speech
    from recipe.prompting import packaged

    exclusions = exclusions_of(exclude, exclude_split, ids)
    asks = engine != "none"
    if asks and not model.model:
        remedy = "a model folder, smollm2, or the name at --endpoint; or give --engine none, which asks no model"
        raise InputError(f"--model is missing: {remedy}.")
    if not asks and (model.model or model.endpoint or prompt):
        raise InputError("--engine none asks no model; leave --model, --endpoint and --prompt out.")
    if engine == "vllm":
        model = model.model_copy(update={"engine": engine})
    named = prompt in ("", "caption", "caption-list")
    template = packaged("recipe", prompt or "caption") if named else read_text(Path(prompt))
    source = narration_source(narrations, reading, duplicates, exclusions, titles)
    if dry_run:
        return _planned(source, model if asks else None, template, captions, sampling)
    if output is None:
        raise InputError("--output is missing: the captions to write; or give --dry-run.")
    report_path, work = output.with_name(f"{output.stem}.report.json"), output.with_name(f".{output.name}.work")
    require_writable(output)
    require_writable(report_path)
    require_packages(({} if asks else {"cpu": "captions without a model"}) | encoder_extra(encoder.name))

    counted, excluded = CaptionReport(), ExclusionReport()
    result: dict[str, Any] = {"output": str(output), "engine": "endpoint" if model.endpoint else engine}
    made_with: dict[str, Any] = {
        "captions": captions.model_dump(),
        "encoder": encoder.model_dump(include={"name", "revision", "task", "dimension"}),
        "reading": source.origin.reading,
        "exclusions": source.origin.exclusions,
    }
    spent = 0
    with locked(work):
        try:
            if asks:
                with opened(beside(model, output)) as asked:
                    made_with |= {
                        "model": {"name": model.model} | asked.identity,
                        "prompt": fingerprint(template),
                        "sampling": sampling.model_dump(exclude={"batch_size"}),
                    }
                    _bind(work, output, made_with)
                    embed = open_encoder(encoder, fixed_shape=True).encode
                    ask = functools.partial(_answers, asked, sampling)
                    rows = caption_speech(source.narrations, ask, embed, template, captions, counted)
                    try:
                        kept = rows if exclusions is None else exclusions.filter(rows, excluded)
                        write_jsonl(output, map(to_row, _some(kept, narrations, counted)))
                    finally:
                        spent = asked.ledger.answers + asked.ledger.cached
                    result["ledger"], result["read"] = asked.ledger.numbers(), source.origin.report()
            else:
                _bind(work, output, made_with)
                # A corpus of the speech: a stopped run need not encode again, and vectors need not fit in memory.
                speech, settings = work / "speech", CorpusConfig(encoder=encoder)
                build_corpus(source.narrations, speech, settings, progress(), origin=source.origin)
                corpus = Corpus.open(speech)
                rows = supported_speech(corpus, captions, counted, progress())
                kept = rows if exclusions is None else exclusions.filter(rows, excluded)
                write_jsonl(output, map(to_row, _some(kept, narrations, counted)))
                result["read"] = corpus.manifest["read"]
        except (InputError, ComputeError):
            # What was paid for is bound to its settings; where nothing was, others may be tried.
            if not spent:
                remove(work)
            raise
    result |= made_with | counted.numbers()
    result["excluded_captions"] = None if exclusions is None else excluded.as_dict()
    write_json(report_path, result)
    remove(work)
    written = f"{counted.narrations - counted.without:,} narrations in captions: {output}; the report: {report_path}"
    return CommandOutput(result, [*_tables(result), *excluded.lines(), *_failures(counted), written])


def _planned(
    source: "Source", model: ModelConfig | None, template: str, captions: CaptionConfig, sampling: SamplingConfig
) -> CommandOutput:
    """What the command would read and ask; answers in the cache, and those asked for again, are not counted."""
    from recipe.mining.captions import windows
    from recipe.models.costs import Prices

    counts = dict.fromkeys(("narrations", "segments", "speech_words", "windows", "calls", "prompt_tokens"), 0)
    characters = 0
    for narration in source.narrations:
        parts = windows(narration, captions.words)
        counts["narrations"] += 1
        counts["segments"] += len(narration.segments)
        counts["speech_words"] += sum(len(segment.text.split()) for segment in narration.segments)
        counts["windows"] += len(parts)
        if model is not None:
            characters += sum(len(message["content"]) for part in parts for message in part.chat(template))
    values: JsonObject = {**counts}
    read = f"{counts['narrations']:,} narrations, {counts['segments']:,} segments, {counts['speech_words']:,} words"
    if model is None:
        return CommandOutput(values, [f"{read}; no model is asked, and every segment is encoded once."])
    tokens, answers = -(-characters // _CHARACTERS_A_TOKEN), counts["windows"] * sampling.max_tokens
    prices = Prices(model.price_in, model.price_out)
    cost, most = prices.cost(tokens, 0), prices.cost(tokens, answers)
    values |= {"calls": counts["windows"], "prompt_tokens": tokens, "answer_tokens_at_most": answers}
    values |= {"cost_of_prompts": cost, "cost_at_most": most}
    priced = "" if cost is None else f", at a cost of about {cost:,.2f} before answers and {most:,.2f} at most"
    line = f"{counts['windows']:,} windows, a call each; about {tokens:,} tokens of prompts{priced}."
    return CommandOutput(values, [f"{read}.", line])


def _bind(work: Path, output: Path, made_with: "JsonObject") -> None:
    """Bind the folder of unfinished work to what its captions are made with. Raises ConfigError for other settings."""
    from recipe.artifacts import read_json, to_json, write_json

    settings = to_json(made_with)
    if (work / SETTINGS).is_file():
        begun = read_json(work / SETTINGS)
        others = [name for name in settings | begun if begun.get(name) != settings.get(name)]
        if others:
            raise ConfigError(
                f"{output}: its unfinished captions were made with another {' and another '.join(others)}; "
                f"run the command that began them, give another --output, or delete {work}."
            )
    write_json(work / SETTINGS, settings)


def _answers(
    model: "Model", sampling: SamplingConfig, chats: "Sequence[Chat]", attempt: int
) -> "list[Answer | Refusal]":
    """The outcome of each chat. Where nothing but refusals comes from the beginning on, the request is wrong."""
    from recipe.mining.captions import SCHEMA
    from recipe.models.protocol import ModelRequest

    answered = model.ledger.answers + model.ledger.cached
    requests = [ModelRequest(chat, sampling, attempt, SCHEMA) for chat in chats]
    return model.answer(requests, progress(), refusals="return" if answered else "raise if all")


def _some(captioned: "Iterable[Narration]", files: Sequence[Path], counted: "CaptionReport") -> "Iterator[Narration]":
    """The narrations; raises ComputeError where there is none, so that no empty file is written."""
    none = True
    for narration in captioned:
        none = False
        yield narration
    if none:
        windows = f"{counted.windows:,} windows: {counted.nothing:,} in which nothing is done"
        reasons = [windows, *(f"{count:,} failed: {reason}" for reason, count in counted.failed.most_common())]
        reasons += [f"{count:,} captions left out: {reason}" for reason, count in counted.left_out.most_common()]
        where = ", ".join(map(str, files[:3]))
        raise ComputeError(f"{where}: no caption is left ({'; '.join(reasons)}); give another model, prompt or input.")


def _failures(counted: "CaptionReport") -> list[str]:
    """What could not be captioned, a line each."""
    lines = [f"windows without an answer that can be read: {n:,} ({reason})" for reason, n in counted.failed.items()]
    if counted.without:
        lines.append(f"narrations without a caption, left out: {counted.without:,}; the report names them")
    return lines


def _tables(result: "JsonObject") -> "list[Table]":
    """Counts, and some captions beside their speech."""
    from recipe.report.elements import Cell, Table, headings, row

    shares = {
        "windows without a caption": result["share_without_caption"],
        "captions whose words stand in the speech just so": result["share_copied"],
    }
    counts = {
        "windows": result["windows"],
        "windows with a caption": result["windows_with_caption"],
        "windows in which nothing is done": result["windows_without_action"],
        "windows whose captions were all left out": result["windows_all_left_out"],
        "windows that failed": result["windows_failed"],
        "windows whose captions were cut off": result["windows_cut"],
        **{name: "" if share is None else Cell(share, 1, percent=True) for name, share in shares.items()},
        "captions": result["captions"],
        "words of a caption": Cell(result["words_of_a_caption"] or 0.0, 1),
        **{f"captions left out: {reason}": count for reason, count in result["left_out"].items()},
    }
    return [
        Table("captions", "", headings(""), rows=tuple(row(name, count) for name, count in counts.items())),
        Table(
            "Some captions",
            "caption",
            headings("speech"),
            rows=tuple(row(sample["caption"], sample["speech"] or "the same") for sample in result["samples"]),
        ),
    ]
