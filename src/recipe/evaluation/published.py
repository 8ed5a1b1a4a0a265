"""The figures that the paper publishes, table by table, as data.

The numbers lie in `published_tables/`, one JSON file a table. Where the paper prints a figure as a picture alone, its
file holds the figures of the running text, marked by `stated`.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from recipe.errors import InputError
from recipe.rows import from_json

TABLES = (
    "main", "per_dataset", "frontier", "supervision", "weak_supervision", "weak_scale", "video", "ablation", "vpa",
    "diversity", "qualitative",
)  # fmt: skip
"""Every published table by name."""
JUDGE = "Llama-3.3-70B-Instruct"
"""The paper's judge of plans (section on the evaluation protocol)."""
DIVERSITY_JUDGE = "Gemini-3.1-Pro"
"""The paper's judge of pairs (appendix on diversity)."""


@dataclass(frozen=True, slots=True)
class PublishedColumn:
    """A column: its key in data, its heading in print, and what it stands under."""

    key: str
    """A dataset's name, a split's, or `horizon.measure` for VPA."""
    heading: str
    group: str = ""


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """A row; a value is None where the paper prints none."""

    group: str
    """Model or kind of method."""
    name: str
    values: tuple[int | float | None, ...]
    stated: str = ""
    """`text` where the values are from the running text, empty where a table prints them."""


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """One table or figure of the paper."""

    name: str
    label: str
    """Its label in the paper's source."""
    title: str
    source: str
    """The section that it is in."""
    judge: str | None
    """Who scored it; None where nobody judged."""
    columns: tuple[PublishedColumn, ...]
    rows: tuple[PublishedRow, ...]
    notes: tuple[str, ...]

    def value(self, group: str, row: str, column: str) -> float | None:
        """One value; None where the paper prints none. Raises InputError for a row or column that is not there.

        >>> published("main").value("Qwen2.5-7B", "RECIPE-RL", "zero-shot")
        46.1
        """
        keys = [heading.key for heading in self.columns]
        lines = [line for line in self.rows if (line.group, line.name) == (group, row)]
        if not lines or column not in keys:
            raise InputError(f"{self.label} has no value for {group!r}, {row!r}, {column!r}; see its rows and columns.")
        return lines[0].values[keys.index(column)]


@cache
def published(name: str) -> PublishedTable:
    """A table of the paper by its name in `TABLES`; raises InputError for another name."""
    if name not in TABLES:
        raise InputError(f"{name!r} is no published table; the tables are {', '.join(TABLES)}.")
    raw = json.loads(files(__package__).joinpath("published_tables", f"{name}.json").read_text("utf-8"))
    return from_json(raw | {"name": name}, PublishedTable, name)
