"""`recipe reward explain`: on what evidence a plan earns what it earns, on the terminal, as JSON and as a page."""

from pathlib import Path
from typing import Annotated

import typer

from recipe.cli.console import out, print_json
from recipe.cli.reward_options import AsJson, Config, Folder, Method, Pool, Prompt, open_verifier
from recipe.errors import InputError
from recipe.text import plan_steps


def explain(
    folder: Folder,
    goal: Annotated[str, typer.Option(help="What is to be achieved.")] = "",
    history: Annotated[list[str] | None, typer.Option(help="A step that is done; repeat for each.")] = None,
    continuation: Annotated[str | None, typer.Option(help="The plan to explain, one step a line.")] = None,
    examples: Annotated[Path | None, typer.Option(help="Take goal and history from this examples file.")] = None,
    example: Annotated[str, typer.Option(help="The id of the example in --examples.")] = "",
    predictions: Annotated[
        Path | None, typer.Option(help="Take the plan from this predictions file; else the example's own.")
    ] = None,
    sample: Annotated[int, typer.Option(min=0, help="Which plan for the example in --predictions.")] = 0,
    method: Method = None,
    pool: Pool = None,
    config: Config = None,
    narrations: Annotated[int, typer.Option(min=1, help="Narrations to show; JSON holds all.")] = 5,
    link: Annotated[
        str, typer.Option(help="Links to videos, as https://host/{video_id}?t={start}, or none; YouTube's by default.")
    ] = "",
    html: Annotated[Path | None, typer.Option(help="Write a page with the alignment as a picture.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a plan's reward rests on: the pooled narrations, each step's segments, and what each step adds.

    Example: recipe reward explain --corpus corpora/mine --goal "Make tea" --history "Boil water"
    --continuation "Pour the water" --html explanation.html
    """
    from recipe.artifacts import require_writable
    from recipe.cli.explain_tables import show
    from recipe.reward.explanation.explain import explain as explanation_of
    from recipe.reward.explanation.links import Links
    from recipe.reward.explanation.rows import as_row

    links = Links(link)
    prompt = _prompt(goal, history or [], continuation, examples, example, predictions, sample)
    if html is not None:
        from recipe.evaluation.explanation_page import write_page

        require_writable(html)
    verifier = open_verifier(folder, config, method, pool)
    explanation = explanation_of(verifier, prompt.history, prompt.continuations[0], prompt.goal)
    if html is not None:
        write_page(explanation, html, links, narrations)
    if as_json:
        print_json(as_row(explanation, links))
        return
    show(explanation, links, narrations)
    if html is not None:
        out.print(f"\npicture: {html}", highlight=False, markup=False, soft_wrap=True)


def _prompt(
    goal: str,
    history: list[str],
    continuation: str | None,
    examples: Path | None,
    example: str,
    predictions: Path | None,
    sample: int,
) -> Prompt:
    if examples is not None:
        if goal or history or continuation is not None:
            raise InputError("A plan comes from --examples or from --goal, --history, --continuation; not from both.")
        return _from_files(examples, example, predictions, sample)
    if predictions is not None or example:
        raise InputError("--predictions and --example go with --examples, which holds the goal and the history.")
    for option, texts in (("--goal", [goal]), ("--history", history)):
        if any(not text.strip() for text in texts):
            raise InputError(f"{option} is missing or empty; give it a text.")
    if continuation is None:
        raise InputError("--continuation is missing; give the plan, one step a line.")
    return Prompt(goal, tuple(history), (plan_steps(continuation),))


def _from_files(path: Path, example_id: str, predictions: Path | None, sample: int) -> Prompt:
    """The plan that was sampled for an example, or the example's own continuation. Raises InputError."""
    from recipe.data.examples import read_examples
    from recipe.planning.predictions import read_predictions

    examples = read_examples(path)
    named = [example for example in examples if example.example_id == example_id]
    if not named:
        remedy = f"give --example one of its ids, such as {examples[0].example_id!r}"
        raise InputError.at(path, f"there is no example {example_id!r}", remedy)
    plan = named[0].continuation
    if predictions is not None:
        sampled = {one.sample: one.steps for one in read_predictions(predictions) if one.example_id == example_id}
        if sample not in sampled:
            problem = f"there is no sample {sample} of {example_id!r}"
            listed = ", ".join(map(str, sorted(sampled))) or "none"
            raise InputError.at(predictions, problem, f"samples of it in the file: {listed}")
        plan = sampled[sample]
    return Prompt(named[0].goal, named[0].history, (plan,))
