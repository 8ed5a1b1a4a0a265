"""Numbers as tables show them: fixed digits, a true minus, none before a zero."""

MINUS = "−"


def format_number(value: float, digits: int = 2) -> str:
    """A number with a true minus sign, and none before a zero.

    >>> format_number(-0.125, 3), format_number(-0.004)
    ('−0.125', '0.00')
    """
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", MINUS)


def format_signed(value: float, digits: int = 2) -> str:
    """A number with its sign, and none before a zero.

    >>> format_signed(0.051), format_signed(-0.034, 1)
    ('+0.05', '0.0')
    """
    text = format_number(value, digits)
    return text if text.startswith(MINUS) or not text.strip("0.") else f"+{text}"


def format_seconds(value: float) -> str:
    """A time in seconds, or in minutes and seconds.

    >>> format_seconds(0.42), format_seconds(41.2), format_seconds(210.4)
    ('0.4 s', '41 s', '3 min 30 s')
    """
    if value < 10:
        return f"{value:.1f} s"
    minutes, seconds = divmod(round(value), 60)
    return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"
