"""Commands of `recipe vpa`, Visual Planning for Assistance, one module each."""

import typer

from recipe.cli.vpa import examples, plan, trace

app = typer.Typer(no_args_is_help=True, help="Plan the next actions of a closed set, as work on CrossTask does.")


@app.callback()
def vpa() -> None:
    """Plan the next actions of a closed set, as work on CrossTask does."""


app.command("examples")(examples.examples)
app.command("plan")(plan.plan)
app.command("trace")(trace.trace)
