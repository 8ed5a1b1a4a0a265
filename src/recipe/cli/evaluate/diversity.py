"""`recipe evaluate diversity`: how different the plans are that a system writes for one prompt."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.markup import escape
from rich.table import Table

from recipe.cli import console
from recipe.cli import models as endpoints
from recipe.cli.evaluate import judge as options
from recipe.errors import InputError

if TYPE_CHECKING:
    from recipe.config import JudgeConfig
    from recipe.evaluation.diversity.judges import DiversityJudge
    from recipe.evaluation.diversity.plans import SampledPrompts
    from recipe.evaluation.scores import DiversityScores
    from recipe.models.wrappers import Ledger
    from recipe.types import Example


def diversity(
    predictions: Annotated[Path | None, typer.Argument(help="Predictions, JSON lines, several samples each.")] = None,
    *,
    examples: Annotated[Path, typer.Option(help="The examples that prompts are chosen from.")],
    split: Annotated[str, typer.Option(help="Only examples of this split.")] = "",
    output: Annotated[Path | None, typer.Option(help="Scores file to write, JSON; pairs lie beside it.")] = None,
    chosen: Annotated[
        Path | None, typer.Option(help="Write the chosen examples, JSON lines, to plan for; needs no predictions.")
    ] = None,
    system: Annotated[str, typer.Option(help="Name of what planned. Default: the file's.")] = "",
    judge: Annotated[
        str, typer.Option(help="Judge: its name at the endpoint, a model folder or hub id, or `proxy`.")
    ] = "",
    encoder: options.Encoder = "minilm",
    prompts: Annotated[int, typer.Option(min=1, help="Prompts, chosen by a hash; all where there are fewer.")] = 100,
    samples: Annotated[int, typer.Option(min=2, help="Samples of a prompt, the first by their numbers.")] = 10,
    fewer: Annotated[bool, typer.Option("--fewer", help="Take prompts with fewer samples as they are.")] = False,
    order_check: Annotated[
        float, typer.Option(min=0, max=1, help="Share of pairs also shown the other way round; 1 averages both.")
    ] = 0.1,
    reasks: options.Reasks = 1,
    temperature: options.Temperature = 0.0,
    max_tokens: options.MaxTokens = 512,
    seed: Annotated[int, typer.Option(help="Chooses prompts and orders; of the judge's samples and bootstrap.")] = 0,
    cache: options.Cache = None,
    max_calls: options.MaxCalls = None,
    revision: options.Revision = None,
    device: options.Device = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would be asked, and ask nothing.")] = False,
    endpoint: endpoints.Url = None,
    key_variable: endpoints.KeyVariable = None,
    concurrency: endpoints.Concurrency = 16,
    timeout: endpoints.Timeout = 180.0,
    tries: endpoints.Tries = 6,
    token_limit: endpoints.TokenLimit = "max_tokens",
    no_seed: endpoints.NoSeed = False,
    structured: endpoints.Structured = "auto",
    price_in: endpoints.PriceIn = None,
    price_out: endpoints.PriceOut = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare all pairs of a prompt's samples, and take the mean: different procedures count, other words do not.

    Example: recipe evaluate diversity plans.jsonl --examples test.jsonl --judge gemini --endpoint URL --output d.json

    Example: recipe evaluate diversity plans.jsonl --examples test.jsonl --judge proxy --output diversity.json
    """
    from recipe.artifacts import require_writable
    from recipe.config import JudgeConfig
    from recipe.data.examples import read_examples, write_examples
    from recipe.evaluation.diversity.plans import chosen_prompts
    from recipe.evaluation.scores import rows_path

    for path in filter(None, (chosen, output)):
        require_writable(path)
    if output is not None:
        require_writable(rows_path(output))
    asked = chosen_prompts(read_examples(examples, split), prompts, seed)
    if chosen is not None:
        write_examples(chosen, asked)
    if predictions is None:
        if chosen is None:
            raise InputError("the predictions are missing: give their file, or --chosen to write what to plan for.")
        _show_chosen(chosen, len(asked), json)
        return
    config = JudgeConfig(temperature=temperature, max_tokens=max_tokens, seed=seed, reasks=reasks)
    read = _read(predictions, examples, asked, samples, fewer, config)
    if dry_run:
        _foretell(read, order_check, seed, json)
        return
    if output is None:
        raise InputError("--output is missing: the scores file to write; or give --dry-run.")
    if not judge:
        raise InputError(
            "--judge is missing: name the model at the endpoint (the paper's is Gemini-3.1-Pro), or proxy."
        )
    told_by = None
    if endpoint is not None:
        told_by = endpoints.Asked(
            endpoint, key_variable, concurrency, timeout, tries, "images", token_limit, no_seed, price_in, price_out,
            structured,
        )  # fmt: skip
    folder = endpoints.cache_folder(cache, output)
    who = options.Asked(judge, encoder, told_by, config, folder, revision=revision, device=device, max_calls=max_calls)
    scores = _compare(read, who, _Measure(system or predictions.stem, prompts, samples, order_check, seed, output))
    if json:
        from recipe.artifacts import to_json

        console.print_json(to_json(scores))
    else:
        _show(scores, read)


class _Measure(NamedTuple):
    """What is measured, and where it goes."""

    system: str
    prompts: int
    samples: int
    order_check: float
    seed: int
    output: Path


def _read(
    predictions: Path, examples: Path, asked: "list[Example]", samples: int, fewer: bool, config: "JudgeConfig"
) -> "SampledPrompts":
    from recipe.data.examples import read_examples
    from recipe.evaluation.diversity.plans import sampled_plans
    from recipe.planning.predictions import read_predictions

    return sampled_plans(asked, read_predictions(predictions), read_examples(examples), samples, fewer, config)


def _compare(read: "SampledPrompts", who: options.Asked, measure: _Measure) -> "DiversityScores":
    """Ask the judge, and write scores and pairs."""
    from recipe.evaluation.diversity.scores import compare_plans, summarise_diversity, write_pairs
    from recipe.evaluation.scores import rows_path, write_scores

    examples = [prompt.example for prompt in read.prompts]
    with _opened(who) as opened:
        pairs = compare_plans(opened.judge, read.prompts, measure.order_check, measure.seed, console.progress())
        identity, spent = opened.judge.identity, options.spent(opened.ledger)
    write_pairs(rows_path(measure.output), pairs)
    scores = replace(
        summarise_diversity(measure.system, identity, examples, pairs, measure.samples, measure.seed, spent),
        settings={name: str(value) for name, value in measure._asdict().items() if name not in ("system", "output")},
        left_out={"prompts with fewer samples": read.fewer, "prompts without two samples": read.without},
    )
    write_scores(measure.output, scores)
    return scores


class _Opened(NamedTuple):
    """A judge that is ready, and its ledger, if it keeps one."""

    judge: "DiversityJudge"
    ledger: "Ledger | None" = None


@contextmanager
def _opened(asked: options.Asked) -> Iterator[_Opened]:
    """The judge that the options name."""
    if asked.judge == options.PROXY:
        from recipe.config import EncoderConfig
        from recipe.corpus.encoders import open_encoder
        from recipe.evaluation.diversity.judges import ProxyDiversityJudge

        encode = open_encoder(EncoderConfig(name=asked.encoder)).encode
        yield _Opened(ProxyDiversityJudge(encode, asked.encoder))
        return
    from recipe.evaluation.diversity.judges import LlmDiversityJudge

    with options.asking(asked) as model:
        judge = LlmDiversityJudge(model.engine, asked.judge, asked.config, model.ledger)
        yield _Opened(judge, judge.ledger)


def _show_chosen(path: Path, count: int, json: bool) -> None:
    if json:
        console.print_json({"prompts": count, "chosen": str(path)})
    else:
        console.out.print(f"{count:,} prompts to plan for: {path}", highlight=False, markup=False, soft_wrap=True)


def _foretell(read: "SampledPrompts", order_check: float, seed: int, json: bool) -> None:
    """Show how much an LLM would be asked."""
    from recipe.evaluation.diversity.judges import render
    from recipe.evaluation.diversity.scores import questions

    asked = questions(read.prompts, order_check, seed)
    tokens = sum(len(message["content"]) for one in asked for message in render(one)) // 4
    if json:
        console.print_json({"prompts": len(read.prompts), "calls": len(asked), "prompt_tokens": tokens})
        return
    console.out.print(
        f"{len(read.prompts):,} prompts: {len(asked):,} calls, about {tokens:,} tokens of prompts.", highlight=False
    )


def _show(scores: "DiversityScores", read: "SampledPrompts") -> None:
    from recipe.report.numbers import format_number

    table = Table(title=escape(f"{scores.system}: procedural diversity"))
    table.add_column("")
    table.add_column("", justify="right")
    mean, low, high = scores.diversity.mean, scores.diversity.low, scores.diversity.high
    ends = "" if low is None or high is None else f" ({format_number(low, 3)} to {format_number(high, 3)})"
    table.add_row("diversity, 0 to 1", f"{format_number(mean, 3)}{ends}")
    table.add_row("judge", escape(scores.judge.name))
    table.add_row("prompts", f"{scores.prompts:,}")
    table.add_row("samples of a prompt", f"{scores.samples:,}{', or fewer' if read.fewer else ''}")
    table.add_row("pairs", f"{scores.pairs:,}")
    table.add_row("unscored pairs", f"{scores.unscored:,}")
    table.add_section()
    for level, count in scores.levels.items():
        table.add_row(f"pairs at {level}", f"{count:,}")
    table.add_section()
    table.add_row("pairs shown both ways", f"{scores.order_pairs:,}")
    table.add_row("of those judged differently", f"{scores.order_disagreements:,}")
    console.out.print(table)
    if read.without:
        console.out.print(f"{read.without:,} prompts have fewer than two samples, and are in no mean.", highlight=False)
    if scores.ledger:
        told = [f"{name.replace('_', ' ')} {value:,g}" for name, value in scores.ledger.items() if value is not None]
        console.out.print(f"Asked: {', '.join(told)}.", highlight=False, markup=False, soft_wrap=True)
