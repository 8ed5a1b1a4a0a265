"""A plan step by step while it is being written."""

from collections.abc import Iterable, Iterator

from recipe.text import format_plan, plan_steps


def steps_as_written(pieces: Iterable[str]) -> Iterator[str]:
    """The steps of a completion that arrives in `pieces`, each once its line is complete.

    Together they are what `parse_plan` reads in the whole text: lines without a number or bullet, which are steps only
    where no line has one, wait for the end.

    >>> list(steps_as_written(["1. Boil", " water\\n2. St", "eep the tea"]))
    ['Boil water', 'Steep the tea']
    """
    text = ""
    told = 0
    for piece in pieces:
        text += piece
        if "\n" in piece:
            # A numbered line put behind the complete ones makes lines without a number no steps.
            *steps, _ = plan_steps(text[: text.rindex("\n") + 1] + format_plan(["end"]))
            yield from steps[told:]
            told = len(steps)
    yield from plan_steps(text)[told:]
