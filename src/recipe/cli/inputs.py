"""Options that several commands share: benchmark folders, narrations, and what is kept out of a corpus."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from recipe.corpus.leaks import Exclusions

Root = Annotated[Path | None, typer.Option(help="Folder of benchmark folders, or one benchmark's own folder.")]
Benchmarks = Annotated[
    list[str] | None, typer.Option("--benchmark", help="Only this benchmark; repeat for several. Default: all found.")
]
Folder = Annotated[Path, typer.Argument(help="A corpus folder.")]
Titles = Annotated[
    Path | None, typer.Option(help="Titles of videos: lines of id, tab, title; or a table (docs/data.md).")
]
Exclude = Annotated[
    list[Path] | None,
    typer.Option(
        help="Examples, procedures, narrations or a .txt of video ids to keep out; may be repeated (docs/corpus.md)."
    ),
]
ExcludeSplit = Annotated[str, typer.Option(help="Of the examples and procedures to keep out, only this split.")]
Ids = Annotated[
    Path | None,
    typer.Option(help="The ids that corpora have for these videos: CSV of a benchmark's id, a corpus's id."),
]


def known_benchmarks(names: list[str] | None) -> list[str]:
    """The names given with --benchmark. Raises BadParameter for an unknown one."""
    from recipe.config.removed import removed_option
    from recipe.data.benchmarks import BENCHMARKS

    for name in names or []:
        if name not in BENCHMARKS:
            gone = removed_option("recipe data prepare", ["--benchmark", name])
            known = f"{name!r} is unknown; known are {', '.join(BENCHMARKS)}."
            raise typer.BadParameter(gone or known, param_hint="--benchmark")
    return names or []


def exclusions_of(exclude: list[Path] | None, split: str, ids: Path | None) -> "Exclusions | None":
    """What these options keep out of a corpus. Raises BadParameter for ids of nothing, InputError."""
    from recipe.corpus.excluded import read_exclusions

    if ids is not None and not exclude:
        raise typer.BadParameter("it has a use with --exclude only.", param_hint="--ids")
    return read_exclusions(exclude, split, ids) if exclude else None
