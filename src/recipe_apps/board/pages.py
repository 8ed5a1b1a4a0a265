"""The board's pages, made on the server from the values of the API; what is public needs no script."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import urlencode

from markupsafe import Markup

from recipe import __version__
from recipe.artifacts import JsonObject
from recipe.report.html import page_environment
from recipe.report.numbers import MINUS

_PERCENT = "%"


class Pages:
    """Renders the values of `recipe_apps.board.views` as HTML."""

    def __init__(self, title: str) -> None:
        self._environment = page_environment("recipe_apps.board")
        self._environment.globals.update(
            title=title, version=__version__, bar=bar, heading=heading, place_note=place_note
        )
        self._environment.filters.update(figure=figure, interval=interval, day=day, moment=moment, span=span)
        self.style = self._environment.get_template("board.css").render()
        loader = self._environment.loader
        assert loader is not None
        self.script = loader.get_source(self._environment, "board.js")[0]

    def index(self, value: JsonObject) -> str:
        """All tracks and boards."""
        return self._render("index", value=value)

    def board(self, value: JsonObject, query: Mapping[str, str]) -> str:
        """One board."""
        bounds = [row["value"][name] for row in value["rows"] for name in ("low", "mean", "high")]
        known = [bound for bound in bounds if bound is not None] or [0.0]
        kept = {name: query.get(name, "") for name in ("q", "all", "sort", "order")}
        return self._render("board", value=value, query=kept, least=min(known), most=max(known), link=_link)

    def system(self, value: JsonObject) -> str:
        """One submission."""
        return self._render("system", value=value)

    def shell(self, name: Literal["submit", "mine", "owner"]) -> str:
        """A page that its script fills for the holder of a token."""
        return self._render(name)

    def missing(self, message: str) -> str:
        """What is shown in place of a page that is not there."""
        return self._render("missing", message=message)

    def _render(self, name: str, **values: Any) -> str:
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
    if board.get("unit") != _PERCENT:
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


def day(time: float) -> Markup:
    """A date, with its exact time for programs."""
    at = datetime.fromtimestamp(time, UTC)
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(timespec="seconds"), f"{at:%Y-%m-%d}")


def moment(time: float) -> Markup:
    """A date with the time of day, UTC."""
    at = datetime.fromtimestamp(time, UTC)
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(timespec="seconds"), f"{at:%Y-%m-%d %H:%M:%S}")


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

    def place(number: float) -> float:
        return round(4 + 92 * (number - least) / wide, 1)

    low, high = (value["mean"] if value[name] is None else value[name] for name in ("low", "high"))
    return Markup(
        '<svg class="bar" viewBox="0 0 100 10" aria-hidden="true"><path d="M4 5H96" class="ground"/>'
        '<path d="M{} 5H{}" class="reach"/><circle cx="{}" cy="5" r="3"/></svg>'
    ).format(place(low), place(high), place(value["mean"]))


def heading(name: str, key: str, query: Mapping[str, str]) -> Markup:
    """A column's heading as a link that sorts by it, and back."""
    shown, order = query.get("sort") or "place", query.get("order", "")
    current = shown == key
    rising = {"place": False, "system": True, "date": False}.get(key, False)
    now_rising = order == "up" if key != "system" else order != "down"
    turned = {"order": "down" if key == "system" else "up"} if current and now_rising == rising else {}
    kept = {one: query[one] for one in ("q", "all") if query.get(one)}
    address = "?" + urlencode(kept | ({} if key == "place" and not turned else {"sort": key}) | turned)
    state = ("ascending" if now_rising else "descending") if current else ""
    attribute = Markup(' aria-sort="{}"').format(state) if state else ""
    arrow = Markup('<span aria-hidden="true"> {}</span>').format("↑" if now_rising else "↓") if state else ""
    return Markup('<th scope="col"{}><a href="{}">{}{}</a></th>').format(attribute, address, name, arrow)


def place_note(place: str) -> str:
    """A place for a screen reader."""
    return f"tied at {place[1:]}" if place.startswith("=") else place


def _link(query: Mapping[str, str], **changed: Any) -> str:
    """The same page with other settings."""
    return "?" + urlencode({name: value for name, value in ({**query, **changed}).items() if value not in ("", None)})
