"""Self-contained HTML pages: texts made harmless, the style of tables, and templates."""

import json
import re
from collections.abc import Iterable, Sequence
from functools import partial
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from recipe.errors import MissingExtra
from recipe.report.colours import DARK, variable
from recipe.report.numbers import format_number, format_seconds, format_signed

if TYPE_CHECKING:
    from jinja2 import Environment

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
# What could end a script element or begin a comment or an entity, and two line ends that older JavaScript refuses.
_UNSAFE = re.compile("[<>&\u2028\u2029]")
# Where Unicode keeps visible signs for the control characters 0 to 31.
_PICTURES = 0x2400
# Characters of a text that a page shows.
_MOST_CHARACTERS = 6_000


def shown(text: str, limit: int) -> str:
    """A text without control characters, cut after `limit` characters with a note of how many there were.

    >>> shown("boil\\x00 water", 20), shown("abcdef", 3)
    ('boil␀ water', 'abc … (6 characters, shortened)')
    """
    cut = text if len(text) <= limit else f"{text[:limit]} … ({len(text):,} characters, shortened)"
    return _CONTROL.sub(_visible, cut)


def notebook_table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A small table of texts for a notebook's `_repr_html_`: everything is escaped. Needs no Jinja.

    >>> notebook_table("<tea>", ("step",), [("pour",)])
    '<table><caption>&lt;tea&gt;</caption><tr><th>step</th></tr><tr><td>pour</td></tr></table>'
    """
    tagged = [("th", headings)] if headings else []
    tagged += [("td", texts) for texts in rows]
    lines = [f"<caption>{escape(shown(caption, _MOST_CHARACTERS))}</caption>"]
    for tag, texts in tagged:
        cells = (f"<{tag}>{escape(shown(text, _MOST_CHARACTERS))}</{tag}>" for text in texts)
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table>{''.join(lines)}</table>"


def script_json(value: object) -> str:
    """JSON that no text in it can break out of a script element with, whatever reads the page.

    >>> script_json({"plan": "</script><!--"})
    '{"plan":"\\\\u003c/script\\\\u003e\\\\u003c!--"}'
    """
    plain = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _CONTROL.sub(_escaped, _UNSAFE.sub(_escaped, plain))


def template(package: str, name: str) -> str:
    """The text of `templates/<name>` in a package."""
    return files(package).joinpath("templates", name).read_text(encoding="utf-8")


def page_environment(package: str) -> "Environment":
    """Jinja over the templates of a package and of this one: texts are escaped, bounded and without control characters.

    Filters: `number`, `signed` with three digits, `seconds`. `palette` and `page.css` are the style of every page.
    Raises MissingExtra without Jinja.
    """
    try:
        from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined  # noqa: PLC0415
        from markupsafe import Markup  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise MissingExtra("the report", "report") from error

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("recipe.report")]),
        autoescape=True,
        # A misspelt name in a template is an error and no empty cell.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Markup is a str too, and stays as it is.
        finalize=lambda value: shown(value, _MOST_CHARACTERS) if type(value) is str else value,
    )
    environment.filters |= {
        "number": format_number,
        "signed": partial(format_signed, digits=3),
        "seconds": format_seconds,
    }
    light = "".join(f"  {variable(colour)}: {colour};\n" for colour in DARK)
    dark = "".join(f"    {variable(colour)}: {shade};\n" for colour, shade in DARK.items())
    palette = f":root {{\n{light}}}\n@media (prefers-color-scheme: dark) {{\n  :root {{\n{dark}  }}\n}}\n"
    environment.globals["palette"] = Markup(palette)
    return environment


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    return chr(_PICTURES + code) if code < 0x20 else "\ufffd"


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match.group()):04x}"
