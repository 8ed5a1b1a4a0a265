"""Commands of `recipe data`."""

import typer

app = typer.Typer(no_args_is_help=True, help="data")
