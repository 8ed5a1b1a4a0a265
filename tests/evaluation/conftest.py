"""What printed scores say of all plans."""

from typing import Any


def overall(scores: dict[str, Any]) -> dict[str, Any]:
    """The group of all plans in printed scores."""
    [found] = [one for one in scores["groups"] if one["kind"] == "all"]
    return dict(found)
