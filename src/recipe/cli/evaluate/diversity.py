"""`recipe evaluate diversity`: how different the plans are that a system writes for one prompt."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recipe.cli import console
from recipe.cli.evaluate import runner
from recipe.cli.evaluate.judge import PROXY, Encoder, asked_model, read_judged
from recipe.cli.flags import with_flags
from recipe.cli.models import beside, judge_flags
from recipe.config import JudgeConfig, ModelConfig
from recipe.errors import InputError

if TYPE_CHECKING:
    from recipe.evaluation.diversity.judges import DiversityJudge
    from recipe.evaluation.diversity.plans import SampledPrompts
    from recipe.models.costs import Ledger


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
    system: runner.System = "",
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
    json: runner.AsJson = False,
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
    from recipe.evaluation.diversity.scores import DiversityMeasure, compare_plans, pair_rows
    from recipe.evaluation.measures import summarise
    from recipe.models.sampling import distinct_decodings
    from recipe.planning.predictions import read_predictions

    if chosen is not None:
        require_writable(chosen)
    runner.require_outputs(output)
    seed = config.seed
    wanted = chosen_prompts(read_judged(examples, split, histories, config.history), prompts, seed)
    if chosen is not None:
        write_examples(chosen, wanted)
    if predictions is None:
        if chosen is None:
            raise InputError("the predictions are missing: give their file, or --chosen to write what to plan for.")
        if json:
            console.print_json({"prompts": len(wanted), "chosen": str(chosen)})
        else:
            console.print_lines(f"{len(wanted):,} prompts to plan for: {chosen}")
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
    rows, planned_for = pair_rows(pairs), [prompt.example for prompt in sampled.prompts]
    settings = {"prompts": prompts, "samples": samples, "order_check": order_check, "seed": seed}
    measure = DiversityMeasure(identity, samples)
    measure.settings = {field: str(value) for field, value in settings.items()}
    left_out = {"prompts with fewer samples": sampled.fewer, "prompts without two samples": sampled.without}
    decoding = distinct_decodings(one.decoding for one in planned)
    scores = summarise(measure, name, rows, planned_for, seed, spent, left_out, decoding)
    runner.write_and_show(scores, rows, output, json)


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
