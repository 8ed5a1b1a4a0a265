"""How long a busy service asks its callers to wait."""

import math
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Seconds that a response asks to wait: of `retry-after-ms`, or `retry-after` in seconds or as a date.

    None without a header that can be read.

    >>> retry_after({"retry-after": "2.5"}), retry_after({"retry-after": "soon"})
    (2.5, None)
    """
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(name)
        seconds = None if value is None else _seconds(value, unit, time.time() if now is None else now)
        if seconds is not None and math.isfinite(seconds):
            return max(0.0, seconds)
    return None


def _seconds(value: str, unit: float, now: float) -> float | None:
    try:
        return unit * float(value)
    except ValueError:
        pass
    try:
        return parsedate_to_datetime(value).timestamp() - now
    except ValueError:
        return None
