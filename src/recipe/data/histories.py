"""Histories that Phi reads from videos, as JSON lines: Phi(h_V), the input of a Socratic planner (paper, section 3.1).

One object a line with the fields of `History`, as `recipe perceive` writes them. Each is about the video of one example
before its cut.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from recipe.errors import InputError, listed
from recipe.rows import Count, Seconds, Text, Texts, write_rows
from recipe.tables import read_rows
from recipe.types import Example


@dataclass(frozen=True, slots=True)
class History:
    """The steps that Phi read from an example's video before the cut, with their cost in time and tokens."""

    example_id: Text
    history: Texts
    """Steps done, in order; empty where Phi saw none."""
    until: Seconds | None = None
    """Seconds into the video before which every frame was shown; None where the whole of it was."""
    model: str = ""
    prompt: str = ""
    """Hash of the prompt given to Phi."""
    seconds: Seconds = 0.0
    """Wall-clock time of the answer."""
    tokens_in: Count = 0
    tokens_out: Count = 0


def write_histories(path: Path | str, histories: Iterable[History]) -> int:
    """Write histories as JSON lines, all or nothing; returns their number."""
    return write_rows(path, histories)


def read_histories(path: Path | str) -> dict[str, History]:
    """Example id to its history, in file order; `example_id` and `history` are required, an empty list is a history.

    Raises InputError with file, line, field and remedy for a field that is missing, of the wrong kind or unknown, and
    for an example that occurs twice.
    """
    return {row.example_id: row for _, row in read_rows(path, History, unique=("example_id",))}


def with_histories(examples: Iterable[Example], histories: Mapping[str, History]) -> list[Example]:
    """The examples with Phi's history in place of the annotated one; everything else stays, the cut among it.

    Histories of other examples are passed over. Raises InputError where an example has none, with the number of such
    examples and the first ids, and where a history was read up to another time than the example's.
    """
    examples = list(examples)
    if absent := [example.example_id for example in examples if example.example_id not in histories]:
        raise InputError(
            f"{len(absent):,} of {len(examples):,} examples have no history of Phi's: {listed(absent)}"
            "; run `recipe perceive` on their videos, or leave them out."
        )
    for example in examples:
        if (until := histories[example.example_id].until) != example.until:
            read, cut = ("at no known time" if at is None else f"at {at:g} s" for at in (until, example.until))
            raise InputError(
                f"the history of example {example.example_id!r} was read {read}, but the "
                f"example is cut {cut}; run `recipe perceive` on the examples that are used here."
            )
    return [replace(example, history=histories[example.example_id].history) for example in examples]


def add_told_histories(
    examples: Iterable[Example], histories: Mapping[str, History]
) -> tuple[list[Example], Counter[str]]:
    """The examples, training ones with Phi's history as `told_history`, and by source how many were left out.

    A training example without a history of Phi's is left out and counted. Examples of the other splits stay as they
    are, since planning and evaluation take a histories file themselves. Raises InputError as `with_histories` does for
    a history that was read up to another time.
    """
    kept, absent = list[Example](), Counter[str]()
    for example in examples:
        if example.split != "train":
            kept.append(example)
        elif example.example_id not in histories:
            # Not with the annotated history instead, which is another input than the planner gets when it plans.
            absent[example.source] += 1
        else:
            [read] = with_histories([example], histories)
            kept.append(replace(example, told_history=read.history))
    return kept, absent
