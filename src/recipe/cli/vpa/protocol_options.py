"""Options that say how CrossTask is cut for Visual Planning for Assistance, the same in every command."""

from pathlib import Path
from typing import Annotated, Literal

import typer

_PANEL = "Protocol"

CrossTask = Annotated[Path, typer.Option(help="CrossTask's folder, or the folder that holds it as crosstask/.")]
ProtocolName = Annotated[
    Literal["shared", "separate"],
    typer.Option("--protocol", help="One sample set for every T, or one for each.", rich_help_panel=_PANEL),
]
RuleName = Annotated[
    Literal["vlamp", "true-steps", "observed"],
    typer.Option(
        "--rule",
        help="Cuts that make samples: the end counts as an action (VLaMP), steps only, at least one step observed.",
        rich_help_panel=_PANEL,
    ),
]
Order = Annotated[
    Literal["file", "time"],
    typer.Option(
        "--order", help="Steps as the annotation files have them (VLaMP), or by time.", rich_help_panel=_PANEL
    ),
]
TaxonomyName = Annotated[
    Literal["105", "133"],
    typer.Option(
        "--taxonomy", help="Actions: 105 different strings, or the 133 steps of the 18 tasks.", rich_help_panel=_PANEL
    ),
]
