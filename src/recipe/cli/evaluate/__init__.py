"""Commands of `recipe evaluate`: one for each measure, and those that compare what measures wrote.

A measure is a class and its line in `recipe.evaluation.MEASURES`, or an entry point of an installed package: its
command is made with the options that all measures share. One with options of its own is a function below
`measure_command`, and its line here.
"""

from typing import Any

from recipe.cli.console import CommandGroup, PlainGroup
from recipe.evaluation import MEASURES


class _MeasureGroup(PlainGroup):
    """The commands, and one for each measure of an installed package."""

    further = "recipe.measures"

    def made_command(self, name: str, loaded: Any) -> Any:
        if isinstance(loaded, type):
            from recipe.cli.evaluate.runner import plain_command

            loaded = plain_command(loaded)
        return super().made_command(name, loaded)


app = CommandGroup(
    {name: place for name, place in MEASURES.items() if name != "proxy"}  # `judge --judge proxy`
    | {
        "judge": "recipe.cli.evaluate.judge:judge",
        "diversity": "recipe.cli.evaluate.judge:diversity",
        "validity": "recipe.cli.evaluate.measures:validity",
        "match": "recipe.cli.evaluate.measures:match",
        "vpa": "recipe.cli.evaluate.vpa:vpa",
        "histories": "recipe.cli.evaluate.measures:histories",
        "compare": "recipe.cli.evaluate.measures:compare",
        "agreement": "recipe.cli.evaluate.measures:agreement",
    },
    _MeasureGroup,
    help="Measure how good plans and histories are.",
)
