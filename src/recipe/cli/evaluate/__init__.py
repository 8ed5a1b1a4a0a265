"""Commands of `recipe evaluate`, one module each."""

from recipe.cli.console import CommandGroup
from recipe.cli.evaluate import compare, diversity, histories, judge, match, people, validity, vpa

app = CommandGroup(help="Measure how good plans and histories are.")


@app.callback()
def evaluate() -> None:
    """Measure how good plans and histories are."""


app.command("judge")(judge.judge)
app.command("diversity")(diversity.diversity)
app.command("validity")(validity.validity)
app.command("match")(match.match)
app.command("vpa")(vpa.vpa)
app.command("histories")(histories.histories)
app.command("compare")(compare.compare)
app.command("agreement")(people.agreement)
app.command("ratings")(people.ratings)
app.command("inspect")(people.inspect)
