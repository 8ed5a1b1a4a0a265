"""Procedural diversity, exactly: how many different plans a planner writes for one prompt."""

from collections.abc import Hashable, Sequence

PLANS = 10
"""Samples of a prompt that are compared (paper, appendix on diversity)."""


def distinct_plans(keys: Sequence[Hashable], of: int = PLANS) -> int:
    """Number of different plans among the first `of`; keys are equal where plans differ in wording only.

    >>> distinct_plans([("boil", "steep"), ("boil", "steep"), ("steep",)])
    2
    """
    return len(set(keys[:of]))
