"""A report as a self-contained HTML page: one template and style for all, at most one script, pinned by its hash."""

import base64
import hashlib
from collections.abc import Mapping, Sequence

from recipe.errors import MissingExtra
from recipe.report.colours import variable
from recipe.report.elements import Block, Section
from recipe.report.html import page_environment, script_json, template

try:
    from markupsafe import Markup
except ModuleNotFoundError as error:
    raise MissingExtra("the report", "report") from error


def render(
    title: str,
    subtitle: str,
    findings: Sequence[str],
    sections: Sequence[Section],
    *,
    opening: Sequence[Block] = (),
    lead: Sequence[Block] = (),
    folded: Sequence[str] = (),
    colours: Mapping[str, str] | None = None,
    views: str = "",
    style: str = "",
    script: str = "",
    data: object = None,
) -> str:
    """The whole page. The same values give the same bytes. Raises MissingExtra without Jinja.

    Args:
        opening: Stands before the findings.
        lead: Stands after the findings, such as the figure that says most.
        folded: Findings that are shown on demand.
        colours: Of names in tables and plans.
        views: Markup of views next to the report, for pages with a script.
        style: Added to the style sheet, for what is on one kind of page only.
        data: Becomes JSON that the script reads, in the element `data`.

    """
    # The policy of the page lets only the script with this hash run, whatever a text may have brought in.
    sheets = [template("recipe.report", name) for name in ("page.css", "report.css")]
    return (
        page_environment("recipe.report")
        .get_template("report.html.jinja")
        .render(
            title=title,
            subtitle=subtitle,
            opening=opening,
            findings=findings,
            sections=sections,
            lead=lead,
            folded=folded,
            dots={name: variable(colour) for name, colour in (colours or {}).items()},
            views=Markup(views),
            style=Markup("".join(sheets) + style),
            script=Markup(script),
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            data=None if data is None else Markup(script_json(data)),
        )
    )
