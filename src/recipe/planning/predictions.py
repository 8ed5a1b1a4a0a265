"""Predictions as JSON lines: what `recipe plan` writes and what evaluation reads.

One object a line: `example_id` and `steps` are required, `steps` being empty for a completion without steps;
`sample` (0), `text`, `cut`, `malformed`, `reward`, `gated`, `decoding` and `search` are optional.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, PlainValidator

from recipe.errors import InputError
from recipe.models.sampling import Decoding, read_decoding
from recipe.rows import Count, Text, Texts

# Steps of a plan, far more than any context holds: measures compare each step with each of the reference.
_MOST_STEPS = 10_000


def _decoding(raw: object) -> Decoding | None:
    try:
        return None if raw is None else read_decoding(raw)
    except InputError as error:
        problem = f"no card of how the plan was sampled ({str(error).partition(';')[0]})"
        raise ValueError(f"{problem}; leave it out where it is not known") from None


@dataclass(frozen=True, slots=True)
class SearchRecord:
    """How a plan was composed (`recipe.planning.search`), and what the search cost, of all plans of its prompt."""

    search: str
    width: Count
    samples: Count | None = None
    budget: Count | None = None
    spent: bool = False
    """Whether the budget ended the search."""
    tokens_in: Count = 0
    """Tokens that the model read, each time that it read them."""
    tokens_out: Count = 0
    encodings: Count = 0
    """Different steps that the scorer was shown."""
    rewards: Count = 0
    """Different plans that it rewarded."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """One sampled plan for one example."""

    example_id: Text
    steps: Annotated[Texts, Field(max_length=_MOST_STEPS)]
    """Empty for a completion without steps."""
    sample: Count = 0
    """Which of the samples of its example this is."""
    text: str | None = None
    """The raw completion, where it is known."""
    cut: bool | None = None
    """True where the limit of tokens ended the completion; its last line is no step where it does not end."""
    malformed: str | None = None
    """Why the completion holds no plan."""
    reward: float | None = None
    """The verifier's total, where it was asked."""
    gated: bool | None = None
    """Whether the verifier's gate closed."""
    decoding: Annotated[Decoding | None, PlainValidator(_decoding)] = None
    """How the completion was sampled, where it is known."""
    search: SearchRecord | None = None
    """How the plan was composed, where it was by a search."""
