"""Commands of `recipe reward`."""

import typer

app = typer.Typer(no_args_is_help=True, help="reward")
