"""The board's pages, made on the server from the values of the API; what is public needs no script."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup

from recipe import __version__
from recipe.artifacts import JsonObject
from recipe.report.html import page_environment
from recipe.report.numbers import MINUS


class Pages:
    """Renders the values of `recipe_apps.board.views` as HTML."""

    def __init__(self, title: str) -> None:
        self._environment = page_environment("recipe_apps.board")
        self._environment.globals.update(title=title, version=__version__, bar=bar, heading=heading, link=link)
        self._environment.filters.update(figure=figure, interval=interval, moment=moment, span=span)
        loader = self._environment.loader
        assert loader is not None
        # By name, what the pages load, with its type.
        self.files = {
            "board.css": (self._environment.get_template("board.css").render(), "text/css; charset=utf-8"),
            "board.js": (loader.get_source(self._environment, "board.js")[0], "text/javascript; charset=utf-8"),
        }

    def board(self, value: JsonObject, query: Mapping[str, str]) -> str:
        """The page of one board; its pictures share the range of the rows that are shown."""
        bounds = [row["value"][name] for row in value["rows"] for name in ("low", "mean", "high")]
        known = [bound for bound in bounds if bound is not None] or [0.0]
        kept = {name: query.get(name, "") for name in ("q", "all", "sort", "order")}
        return self.render("board", value=value, query=kept, least=min(known), most=max(known))

    def render(self, name: str, **values: Any) -> str:
        """The page of a template."""
        return self._environment.get_template(f"{name}.html.jinja").render(**values)


def figure(value: float | None, board: Mapping[str, Any], signed: bool = False) -> str:
    """A number with the digits and the unit of its board.

    >>> figure(41.27, {"digits": 1, "unit": "%"}), figure(-0.0312, {"digits": 3, "unit": ""}, True)
    ('41.3 %', '−0.031')
    """
    if value is None:
        return "–"
    digits = int(board["digits"])
    text = f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"
    text = text.replace("-", MINUS)
    if board.get("unit") != "%":
        return text
    return f"{text} points" if signed else f"{text} %"


def interval(value: Mapping[str, Any] | None, board: Mapping[str, Any], signed: bool = False) -> str:
    """The bounds of a 95% interval, with a digit less than its mean, or why there is none."""
    if value is None:
        return ""
    if value["low"] is None:
        return f"no interval: {value['reason']}" if value.get("reason") else ""
    low, high = (f"{value[name]:{'+' if signed else ''}.{board['digits'] - 1}f}" for name in ("low", "high"))
    return f"{low} to {high}".replace("-", MINUS)


def moment(time: float, clock: bool = True) -> Markup:
    """A date with the time of day, UTC; without `clock` the date alone, with its exact time for programs."""
    at = datetime.fromtimestamp(time, UTC)
    shown = f"{at:%Y-%m-%d %H:%M:%S}" if clock else f"{at:%Y-%m-%d}"
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(timespec="seconds"), shown)


def span(seconds: float) -> str:
    """A length of time in words.

    >>> span(0.4), span(80), span(7300)
    ('1 s', '80 s', '2 hours')
    """
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} minutes" if seconds < 7_200 else f"{round(seconds / 3_600)} hours"


def bar(value: Mapping[str, Any], least: float, most: float) -> Markup:
    """A figure and its interval between the least and the most of the page, as a small picture."""
    wide = (most - least) or 1.0
    low, high = (value["mean"] if value[name] is None else value[name] for name in ("low", "high"))
    low, high, mean = (round(4 + 92 * (number - least) / wide, 1) for number in (low, high, value["mean"]))
    return Markup(
        '<svg class="bar" viewBox="0 0 100 10" aria-hidden="true"><path d="M4 5H96" class="ground"/>'
        '<path d="M{} 5H{}" class="reach"/><circle cx="{}" cy="5" r="3"/></svg>'
    ).format(low, high, mean)


def heading(name: str, key: str, query: Mapping[str, str]) -> Markup:
    """A column's heading as a link that sorts by it, and back."""
    shown, order = query.get("sort") or "place", query.get("order", "")
    current = shown == key
    rising = {"place": False, "system": True, "date": False}.get(key, False)
    now_rising = order == "up" if key != "system" else order != "down"
    turned = {"order": "down" if key == "system" else "up"} if current and now_rising == rising else {}
    kept = {name: query[name] for name in ("q", "all") if query.get(name)}
    address = "?" + urlencode(kept | ({} if key == "place" and not turned else {"sort": key}) | turned)
    state = ("ascending" if now_rising else "descending") if current else ""
    attribute = Markup(' aria-sort="{}"').format(state) if state else ""
    arrow = Markup('<span aria-hidden="true"> {}</span>').format("↑" if now_rising else "↓") if state else ""
    return Markup('<th scope="col"{}><a href="{}">{}{}</a></th>').format(attribute, address, name, arrow)


def link(query: Mapping[str, str], **changed: Any) -> str:
    """The same page with other settings."""
    return "?" + urlencode({name: value for name, value in ({**query, **changed}).items() if value not in ("", None)})
