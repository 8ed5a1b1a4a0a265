"""Commands of `recipe evaluate`, one module each."""

import typer

from recipe.cli.evaluate import histories, judge, validity

app = typer.Typer(no_args_is_help=True, help="Measure how good plans and histories are.")


@app.callback()
def evaluate() -> None:
    """Measure how good plans and histories are."""


app.command("judge")(judge.judge)
app.command("validity")(validity.validity)
app.command("histories")(histories.histories)
