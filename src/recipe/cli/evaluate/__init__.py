"""Commands of `recipe evaluate`, by measure; those of measures of installed packages are made on demand."""

from importlib.metadata import entry_points
from typing import Any

import typer

from recipe.cli.console import CommandGroup, PlainGroup
from recipe.cli.evaluate import judge, measures, people, runner, vpa


class MeasureGroup(PlainGroup):
    """The commands, and one for each further measure."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, those of further measures last."""
        names = super().list_commands(ctx)
        if not entry_points(group="recipe.measures"):
            return names  # help loads NumPy and SciPy for a further measure only
        from recipe.evaluation.measures import further_measures

        return [*names, *further_measures()]

    def get_command(self, ctx: Any, name: str) -> Any:
        """The command of a name."""
        if (own := super().get_command(ctx, name)) is not None:
            return own
        from recipe.evaluation.measures import further_measures

        if name not in further_measures():
            return None
        made = CommandGroup()
        made.command(name)(runner.further_command(name))
        return typer.main.get_command(made)


app = CommandGroup(help="Measure how good plans and histories are.")
app.info.cls = MeasureGroup


@app.callback()
def evaluate() -> None:
    """Measure how good plans and histories are."""


app.command("judge")(judge.judge)
app.command("diversity")(judge.diversity)
app.command("validity")(measures.validity)
app.command("match")(measures.match)
app.command("vpa")(vpa.vpa)
app.command("histories")(measures.histories)
app.command("compare")(measures.compare)
app.command("agreement")(people.agreement)
app.command("ratings")(people.ratings)
app.command("inspect")(people.inspect)
