"""`recipe evaluate diversity`: how different the plans are that a system writes for one prompt."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recipe.cli import console
from recipe.cli.evaluate.judge import PROXY, Encoder, asked_model, read_judged
from recipe.cli.flags import with_flags
from recipe.cli.models import beside, judge_flags
from recipe.config import JudgeConfig, ModelConfig
from recipe.errors import InputError

if TYPE_CHECKING:
    from recipe.evaluation.diversity.judges import DiversityJudge
    from recipe.evaluation.diversity.plans import SampledPrompts
    from recipe.evaluation.scores import DiversityScores
    from recipe.models.costs import Ledger
    from recipe.report.elements import Table


@with_flags(
    JudgeConfig,
    "config",
    "How the judge is asked",
    only=("temperature", "max_tokens", "seed", "reasks", "batch_size", "history"),
)
@judge_flags
def diversity(
    predictions: Annotated[Path | None, typer.Argument(help="Predictions, JSON lines, several samples each.")] = None,
    *,
    examples: Annotated[Path, typer.Option(help="The examples that prompts are chosen from.")],
    split: Annotated[str, typer.Option(help="Only examples of this split.")] = "",
    output: Annotated[Path | None, typer.Option(help="Scores file to write, JSON; pairs go beside it.")] = None,
    chosen: Annotated[
        Path | None, typer.Option(help="Write the chosen examples, JSON lines, to plan for; needs no predictions.")
    ] = None,
    system: Annotated[str, typer.Option(help="Name of the system. Default: the file's.")] = "",
    encoder: Encoder = "minilm",
    histories: Annotated[
        Path | None,
        typer.Option(
            help="With --history perceived: Phi's histories, JSON lines. Default: told_history of --examples."
        ),
    ] = None,
    prompts: Annotated[int, typer.Option(min=1, help="Prompts, chosen by a hash; all where there are fewer.")] = 100,
    samples: Annotated[int, typer.Option(min=2, help="Samples of a prompt, the first by their numbers.")] = 10,
    fewer: Annotated[bool, typer.Option("--fewer", help="Take prompts with fewer samples as they are.")] = False,
    order_check: Annotated[
        float, typer.Option(min=0, max=1, help="Share of pairs also shown the other way round; 1 averages both.")
    ] = 0.1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be asked, and ask nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    model_settings: ModelConfig,
    config: JudgeConfig,
) -> None:
    """Compare all pairs of a prompt's samples, and take the mean: different procedures count, other words do not.

    Example: recipe evaluate diversity plans.jsonl --examples test.jsonl --judge gemini --endpoint URL --output d.json

    Example: recipe evaluate diversity plans.jsonl --examples test.jsonl --judge proxy --output diversity.json
    """
    from recipe.artifacts import require_writable
    from recipe.data.examples import read_examples, write_examples
    from recipe.evaluation.diversity.plans import chosen_prompts, sampled_plans
    from recipe.evaluation.diversity.scores import compare_plans, summarise_diversity, write_pairs
    from recipe.evaluation.scores import rows_path, write_scores
    from recipe.models.sampling import distinct_decodings
    from recipe.planning.predictions import read_predictions

    for path in filter(None, (chosen, output)):
        require_writable(path)
    if output is not None:
        require_writable(rows_path(output))
    seed = config.seed
    wanted = chosen_prompts(read_judged(examples, split, histories, config.history), prompts, seed)
    if chosen is not None:
        write_examples(chosen, wanted)
    if predictions is None:
        if chosen is None:
            raise InputError("the predictions are missing: give their file, or --chosen to write what to plan for.")
        _show_chosen(chosen, len(wanted), json)
        return
    planned = read_predictions(predictions)
    sampled = sampled_plans(wanted, planned, read_examples(examples), samples, fewer, config)
    if dry_run:
        _estimate(sampled, order_check, seed, json)
        return
    if output is None:
        raise InputError("--output is missing: the scores file to write; or give --dry-run.")
    if not model_settings.model:
        raise InputError(
            "--judge is missing: name the model at the endpoint (the paper's is Gemini-3.1-Pro), or proxy."
        )
    name = system or predictions.stem
    with _opened_judge(beside(model_settings, output), encoder, config) as (judge, ledger):
        pairs = compare_plans(judge, sampled.prompts, order_check, seed, console.progress())
        named = judge.identity.settings | {"history": config.history}
        identity, spent = replace(judge.identity, settings=named), {} if ledger is None else ledger.numbers()
    write_pairs(rows_path(output), pairs)
    planned_for = [prompt.example for prompt in sampled.prompts]
    settings = {"prompts": prompts, "samples": samples, "order_check": order_check, "seed": seed}
    scores = replace(
        summarise_diversity(name, identity, planned_for, pairs, samples, seed, spent),
        settings={field: str(value) for field, value in settings.items()},
        decoding=distinct_decodings(one.decoding for one in planned),
        left_out={"prompts with fewer samples": sampled.fewer, "prompts without two samples": sampled.without},
    )
    write_scores(output, scores)
    if json:
        from recipe.artifacts import to_json

        console.print_json(to_json(scores))
    else:
        from recipe.evaluation.metrics import readings_table

        for table in (_table(scores, sampled), *readings_table("Diversity, 0 to 1", [("all", scores.readings)], 3)):
            console.print_table(table)


@contextmanager
def _opened_judge(
    settings: ModelConfig, encoder: str, config: JudgeConfig
) -> "Iterator[tuple[DiversityJudge, Ledger | None]]":
    """The judge that the flags name, and the ledger of its model, if it asks one."""
    if settings.model == PROXY:
        from recipe.config import EncoderConfig
        from recipe.corpus.encoders import open_encoder
        from recipe.evaluation.diversity.judges import ProxyDiversityJudge

        yield ProxyDiversityJudge(open_encoder(EncoderConfig(name=encoder)).encode, encoder), None
        return
    from recipe.evaluation.diversity.judges import LlmDiversityJudge

    with asked_model(settings) as model:
        yield LlmDiversityJudge(model, settings.model, config), model.ledger


def _show_chosen(path: Path, count: int, json: bool) -> None:
    if json:
        console.print_json({"prompts": count, "chosen": str(path)})
    else:
        console.print_lines(f"{count:,} prompts to plan for: {path}")


def _estimate(sampled: "SampledPrompts", order_check: float, seed: int, json: bool) -> None:
    """Show how much an LLM would be asked."""
    from recipe.evaluation.diversity.judges import render
    from recipe.evaluation.diversity.scores import questions

    asked = questions(sampled.prompts, order_check, seed)
    tokens = sum(len(message["content"]) for one in asked for message in render(one)) // 4
    if json:
        console.print_json({"prompts": len(sampled.prompts), "calls": len(asked), "prompt_tokens": tokens})
        return
    console.print_lines(f"{len(sampled.prompts):,} prompts: {len(asked):,} calls, about {tokens:,} tokens of prompts.")


def _table(scores: "DiversityScores", sampled: "SampledPrompts") -> "Table":
    from recipe.report.elements import Cell, Table, headings, row

    notes = [f"{sampled.without:,} prompts have fewer than two samples, and are in no mean."] if sampled.without else []
    spent = [f"{name.replace('_', ' ')} {value:,g}" for name, value in scores.ledger.items() if value is not None]
    return Table(
        caption=f"{scores.system}: procedural diversity",
        first="",
        headings=headings(""),
        rows=(
            row("diversity, 0 to 1", Cell(scores.diversity, 3)),
            row("judge", scores.judge.name),
            row("prompts", scores.prompts),
            row("samples of a prompt", f"{scores.samples:,}{', or fewer' if sampled.fewer else ''}"),
            row("pairs", scores.pairs),
            row("unscored pairs", scores.unscored),
            *(row(f"pairs at {level}", count) for level, count in scores.levels.items()),
            row("pairs shown both ways", scores.order_pairs),
            row("of those judged differently", scores.order_disagreements),
        ),
        notes=(*notes, *([f"Asked: {', '.join(spent)}."] if scores.ledger else [])),
    )
