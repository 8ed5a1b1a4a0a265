"""`recipe reward explain`: on what evidence a plan earns what it earns, on the terminal, as JSON and as a page."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from recipe.cli.console import CommandOutput, out, shows
from recipe.cli.reward_options import Config, Folder, Method, Pool, after, open_verifier
from recipe.cli.served import Server, explained_there, require_no_other
from recipe.config import FUNCTION_NAME
from recipe.errors import InputError
from recipe.plan_text import plan_steps
from recipe.reward.scorer import PromptGroup

if TYPE_CHECKING:
    from recipe.explain.records import Explanation, Links

# Columns of a terminal from which on there are bars.
_WIDE = 100
# Characters of the longest bar.
_BAR = 8


@shows
def explain(
    folder: Folder,
    goal: Annotated[str, typer.Option(help="The goal of the plan.")] = "",
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
        str, typer.Option(help="Links to videos, as https://host/{video_id}?t={start}, none, or youtube.")
    ] = "",
    html: Annotated[Path | None, typer.Option(help="Write a page with the alignment as a picture.")] = None,
    server: Server = "",
) -> CommandOutput:
    """Explain a plan's reward: the pooled narrations, each step's segments, and what each step adds.

    Example: recipe reward explain --corpus corpora/mine --goal "Make tea" --history "Boil water"
    --continuation "Pour the water" --html explanation.html
    """
    from recipe.artifacts import require_writable
    from recipe.explain.explain import OTHERS, as_row
    from recipe.explain.explain import explain as explanation_of
    from recipe.explain.records import Links

    links = Links(link)
    prompt = _prompt(goal, history or [], continuation, examples, example, predictions, sample)
    if html is not None:
        from recipe.explain.page import write_page

        require_writable(html)
    if server:
        own = method is not None and FUNCTION_NAME.fullmatch(method) is not None
        require_no_other({"--config": config, f"--verifier {method}": own})
        explanation = explained_there(server, folder, method, pool, prompt)
    else:
        verifier = open_verifier(folder, config, method, pool)
        explanation = explanation_of(
            verifier, goal=prompt.goal, history=prompt.history, continuation=prompt.plans[0], others=OTHERS
        )
    if html is not None:
        write_page(explanation, html, links, narrations)
    picture = [] if html is None else ["", f"picture: {html}"]
    value = as_row(explanation, links)
    return CommandOutput(value, [*_lines(explanation, links, narrations), *picture])


def _prompt(
    goal: str,
    history: list[str],
    continuation: str | None,
    examples: Path | None,
    example: str,
    predictions: Path | None,
    sample: int,
) -> PromptGroup:
    """The plan of the options, the plan that was sampled for an example, or the example's own. Raises InputError."""
    if examples is None:
        if predictions is not None or example:
            raise InputError("--predictions and --example go with --examples, which holds the goal and the history.")
        for option, texts in (("--goal", [goal]), ("--history", history)):
            if any(not text.strip() for text in texts):
                raise InputError(f"{option} is missing or empty; give it a text.")
        if continuation is None:
            raise InputError("--continuation is missing; give the plan, one step a line.")
        return PromptGroup(goal, tuple(history), [plan_steps(continuation)])
    if goal or history or continuation is not None:
        raise InputError("A plan comes from --examples or from --goal, --history, --continuation; not from both.")
    from recipe.data.examples import read_examples
    from recipe.planning.prediction_files import read_predictions

    every = read_examples(examples)
    chosen = next((row for row in every if row.example_id == example), None)
    if chosen is None:
        remedy = f"give --example one of its ids, such as {every[0].example_id!r}"
        raise InputError.at(examples, f"there is no example {example!r}", remedy)
    plan = chosen.continuation
    if predictions is not None:
        sampled = {plan.sample: plan.steps for plan in read_predictions(predictions) if plan.example_id == example}
        if sample not in sampled:
            problem = f"there is no sample {sample} of {example!r}"
            listed = ", ".join(map(str, sorted(sampled))) or "none"
            raise InputError.at(predictions, problem, f"samples of it in the file: {listed}")
        plan = sampled[sample]
    return PromptGroup(chosen.goal, chosen.history, [plan])


def _lines(explanation: "Explanation", links: "Links", narrations: int) -> Iterator[str | Text | Table]:
    """An explanation with `narrations` of its narrations."""
    from recipe.explain.explain import in_words, parts, when
    from recipe.explain.opposites import says_opposite
    from recipe.report.numbers import format_signed

    yield Text(f"{explanation.goal}, {after(explanation.history)}", "bold")
    yield from in_words(explanation)
    values = Table(box=None, padding=(0, 1), show_header=False)
    for name, value, meaning in parts(explanation):
        values.add_row(name, f"{value:.3f}", Text(meaning, "dim"))
    yield ""
    yield values

    # One row a step: what it adds, how many narrations about the task match it, and its segment in the best narration.
    # A reward without a pool, such as a function, has only the first of these.
    best = explanation.best
    where = f"in {best.narration.video_id}" if best else "segment"
    # On a narrow terminal the texts take the room of the bars.
    bars = ("",) if out.width >= _WIDE else ()
    headers = ("told", "similar", "time", where) if explanation.narrations else ()
    table = Table("", "step", "adds", *bars, *headers, box=None, padding=(0, 1))
    grounded = explanation.steps or (None,) * len(explanation.evidence)
    longest = max((abs(step.contribution or 0) for step in explanation.evidence), default=0)
    history = len(explanation.history)
    for number, (step, ground) in enumerate(zip(explanation.evidence, grounded, strict=True), start=1):
        name = f"h{number}" if step.in_history else str(number - history)
        adds, bar = "", Text()
        if step.contribution is not None:
            adds, colour = format_signed(step.contribution, 3), "green" if step.contribution > 0 else "red"
            if adds == "0.000":
                adds, colour = "nothing", "dim"
            bar = Text("━" * (round(_BAR * abs(step.contribution) / longest) if longest else 0), colour)
        similarity, time, segment = "", "", Text("unmatched", "dim")
        if ground is not None and ground.segment is not None and ground.similarity is not None:
            similarity, time = f"{ground.similarity:.2f}", when(ground.segment) or "untimed"
            segment = Text(ground.segment.text)
            if says_opposite(step.text, ground.segment.text):
                segment.append(" (the opposite)", "red")
        cells = (f"{step.matched_in}/{len(explanation.about)}", similarity, time, segment) if headers else ()
        table.add_row(name, Text(step.text), adds, *([bar] if bars else []), *cells)
        if number == history:
            table.add_row("", Text("the history ends here", "dim italic"), end_section=True)
    for column in table.columns:  # the texts fold, and no figure is cut
        column.no_wrap, column.overflow = column.header not in ("step", where), "fold"
    yield ""
    yield table
    if not explanation.continuation:
        yield Text("(the plan holds no steps)", "dim")

    if not explanation.narrations:
        return
    shown = explanation.narrations[:narrations]
    yield ""
    yield Text(f"Narrations of the pool, {len(shown)} of {len(explanation.narrations)}, best first", "bold")
    for rank, aligned in enumerate(shown, start=1):
        narration = aligned.narration
        yield f"{rank}. {aligned.score:.3f}  {narration.title or 'without a title'} ({narration.video_id})"
        steps, segments = len(explanation.evidence), narration.segments
        words = (
            f"matches {steps - len(aligned.unmatched_steps)} of {steps} steps, leaves "
            f"{len(aligned.unmatched_segments)} of {len(segments)} segments unmatched, "
            f"retrieved with {aligned.retrieved:.3f}"
        )
        if (end := aligned.history_end(history)) is not None:
            words += f"; the history ends at {when(segments[end]) or f'segment {end + 1}'}"
        yield Text(f"   {words}", "dim")
        if address := links.of(narration):
            yield f"   {address}"
