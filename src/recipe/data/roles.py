"""The paper's benchmarks by name: their titles, and whether the paper trains on them."""

from collections.abc import Iterable
from typing import Literal

Role = Literal["in-domain", "zero-shot"]
"""What the paper does with a benchmark: train and test on it, or only test."""
ROLES: dict[Role, str] = {"in-domain": "in-domain datasets", "zero-shot": "zero-shot datasets"}
"""Each role in words."""
TITLES = {
    "coin": "COIN",
    "crosstask": "CrossTask",
    "captaincook4d": "CaptainCook4D",
    "egoprocel": "EgoProceL",
    "niv": "NIV",
    "egoexo4d": "Ego-Exo4D",
    "egoper": "EgoPER",
}
"""Each benchmark's title, in the order of the paper's tables."""
_ZERO_SHOT = ("niv", "egoexo4d", "egoper")


def role_of(dataset: str) -> Role | Literal[""]:
    """The role of a dataset, empty for those that are none of the paper's.

    >>> role_of("niv"), role_of("my-kitchen")
    ('zero-shot', '')
    """
    if dataset not in TITLES:
        return ""
    return "zero-shot" if dataset in _ZERO_SHOT else "in-domain"


def in_order(datasets: Iterable[str]) -> list[str]:
    """The paper's datasets in the order of its tables, others after them by name."""
    order = {name: index for index, name in enumerate(TITLES)}
    return sorted(datasets, key=lambda name: (order.get(name, len(order)), name))
