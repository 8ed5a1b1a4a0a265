"""Commands of `recipe train`."""

import typer

app = typer.Typer(no_args_is_help=True, help="train")
