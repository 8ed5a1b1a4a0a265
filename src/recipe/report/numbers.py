"""Numbers as tables show them: no digit that the test sets cannot tell, shares in percent, a true minus."""

from recipe.stats import Interval

METRICS: dict[str, str] = {
    "score": "validity",
    "f1": "step F1",
    "ordered_f1": "step F1 in order",
    "order": "order",
    "coverage": "coverage",
    "clean": "clean",
    "perfect": "perfect plans",
    "steps": "steps in a plan",
    "length_error": "length error",
    "length_apart": "absolute length error",
    "repeats": "repeated steps",
    "copied": "copied from the history",
    "alien": "foreign steps",
    "distinct": "distinct of 10",
    "reward": "reward",
    "paper": "the paper's reward",
    "grounded": "grounded reward",
    "relevance": "relevance (no corpus)",
    "gated": "gated",
    "kl": "KL, nats per plan",
    "malformed": "without steps",
}
"""Keys of `Scores.metrics` in the order of the table, with their names in words; others are shown too."""
SHARES = frozenset({"perfect", "repeats", "copied", "alien", "gated", "malformed"})
"""Metrics that are shares, shown in percent."""
MINUS = "−"
_DIGITS = {"steps": 1, "distinct": 1, "reward": 3, "paper": 3, "grounded": 3, "relevance": 3}


def format_number(value: float, digits: int = 2) -> str:
    """A number with a true minus sign, and none before a zero.

    >>> format_number(-0.125, 3), format_number(-0.004)
    ('−0.125', '0.00')
    """
    shown = f"{value:.{digits}f}"
    return shown.lstrip("-") if float(shown) == 0 else shown.replace("-", MINUS)


def format_cell(value: float, metric: str) -> str:
    """A metric's value as its table shows it: shares in percent, and no digit that the test sets cannot tell.

    >>> format_cell(0.1749, "repeats"), format_cell(4.21, "steps"), format_cell(0.5249, "score")
    ('17 %', '4.2', '0.52')
    """
    return f"{_digits(value, metric)}{' %' if metric in SHARES else ''}"


def format_signed(value: float, metric: str) -> str:
    """A difference of a metric, with its sign; shares in percentage points.

    >>> format_signed(0.051, "score"), format_signed(-0.034, "repeats")
    ('+0.05', '−3 pp')
    """
    return f"{_signed(value, metric)}{' pp' if metric in SHARES else ''}"


def format_bounds(value: Interval, metric: str) -> str:
    """The ends of an interval, empty where there is none.

    >>> format_bounds(Interval(0.5, 0.4, 0.6), "score")
    '0.40 to 0.60'
    """
    if value.low is None or value.high is None:
        return ""
    return f"{_digits(value.low, metric)} to {_digits(value.high, metric)}"


def format_signed_bounds(value: Interval, metric: str) -> str:
    """The ends of a difference's interval, empty where there is none.

    >>> format_signed_bounds(Interval(0.5, -0.1, 0.6), "score")
    '−0.10 to +0.60'
    """
    if value.low is None or value.high is None:
        return ""
    return f"{_signed(value.low, metric)} to {_signed(value.high, metric)}"


def format_seconds(value: float) -> str:
    """A time as a reader would say it.

    >>> format_seconds(0.42), format_seconds(41.2), format_seconds(210.4)
    ('0.4 s', '41 s', '3 min 30 s')
    """
    if value < 10:
        return f"{value:.1f} s"
    minutes, seconds = divmod(round(value), 60)
    return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"


def _digits(value: float, metric: str) -> str:
    if metric in SHARES:
        return format_number(100 * value, 0)
    return format_number(value, _DIGITS.get(metric, 2))


def _signed(value: float, metric: str) -> str:
    shown = _digits(value, metric)
    zero = not shown.strip("0.")
    return shown if zero or shown.startswith(MINUS) else f"+{shown}"
