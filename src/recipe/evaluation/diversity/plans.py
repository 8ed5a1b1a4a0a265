"""Procedural diversity: the sampled plans of a prompt and their pairs."""

import hashlib
import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from recipe.config.models import JudgeConfig
from recipe.errors import InputError
from recipe.evaluation.judge.plans import Case
from recipe.planning.prediction_files import match_predictions
from recipe.planning.predictions import Prediction
from recipe.types import Example

PLANS = 10
"""Samples of a prompt that are compared (paper, appendix on diversity)."""
PROMPTS = 100
"""Prompts that the mean is over (paper, appendix on diversity)."""
LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Levels of the difference of two plans."""
FEWEST_SAMPLES = 2
"""Samples without which a prompt has no pair."""

_WORD = re.compile(r"\w+")
# The number of a line in a list: "1. ", "2) ".
_NUMBER = re.compile(r"\W*\d{1,3}\s*[.):]\s+")


class PromptSamples(NamedTuple):
    """A prompt and the plans that were sampled for it, without the steps that repeat an earlier one."""

    example: Example
    samples: tuple[int, ...]
    """Numbers of the samples."""
    plans: tuple[tuple[str, ...], ...]
    """One for each sample; empty where it says nothing."""

    @property
    def keys(self) -> list[tuple[str, ...]]:
        """The words of each plan (`distinct_steps`): those of equal plans are equal."""
        return [tuple(distinct_steps(plan)) for plan in self.plans]


def chosen_prompts(examples: Sequence[Example], count: int = PROMPTS, seed: int = 0) -> list[Example]:
    """The `count` examples whose hashes of seed and id come first, in the order of the file; all where there are fewer.

    An example that is not chosen can be taken away, and any number be added, and those that stay among the chosen ones
    are the same.
    """
    ranked = sorted(examples, key=lambda example: hashed(seed, example.example_id))
    chosen = {example.example_id for example in ranked[:count]}
    return [example for example in examples if example.example_id in chosen]


def sampled_plans(
    examples: Sequence[Example],
    predictions: Sequence[Prediction],
    known: Sequence[Example] | None = None,
    samples: int = PLANS,
    fewer: bool = False,
    limits: JudgeConfig | None = None,
) -> list[PromptSamples]:
    """The first `samples` plans of each example by their numbers; `known` are all that may have been planned for.

    Raises InputError for predictions for unknown examples, and for an example with fewer samples unless `fewer`: then
    those with two or more are compared, and the others left out.
    """
    by_example: dict[str, list[Prediction]] = defaultdict(list)
    for prediction in sorted(match_predictions(examples, predictions, known).predictions, key=lambda plan: plan.sample):
        by_example[prediction.example_id].append(prediction)
    short = [example.example_id for example in examples if len(by_example[example.example_id]) < samples]
    if short and not fewer:
        raise InputError(
            f"{len(short)} of {len(examples)} prompts have fewer than {samples} samples, first {short[0]!r} with "
            f"{len(by_example[short[0]])}; sample more, or compare what there is."
        )
    bounds = limits or JudgeConfig()
    prompts = []
    for example in examples:
        # N of each prompt: more samples would give it more pairs than the others.
        chosen = by_example[example.example_id][:samples]
        shown = (Case(example, prediction.steps).bounded(bounds).steps for prediction in chosen)
        plans = tuple(tuple(distinct_steps(steps).values()) for steps in shown)
        numbers = tuple(prediction.sample for prediction in chosen)
        prompts.append(PromptSamples(Case(example, ()).bounded(bounds).example, numbers, plans))
    compared = [prompt for prompt in prompts if len(prompt.plans) >= FEWEST_SAMPLES]
    if not compared:
        raise InputError(f"no prompt has {FEWEST_SAMPLES} samples, and diversity is that of pairs; sample more plans.")
    return compared


def distinct_steps(steps: Sequence[str]) -> dict[str, str]:
    """The steps that say something, each where it first occurs, by its words without case, marks and its number.

    Plans with the same keys in the same order are the same plan.

    >>> distinct_steps(["1. Stir it!", "pour", "stir  it", "..."])
    {'stir it': '1. Stir it!', 'pour': 'pour'}
    """
    first: dict[str, str] = {}
    for step in steps:
        line = " ".join(unicodedata.normalize("NFKC", step).split())
        if words := " ".join(_WORD.findall(_NUMBER.sub("", line, count=1).casefold())):
            first.setdefault(words, step)
    return first


def hashed(*parts: object) -> str:
    """A hash of JSON values that is the same on all machines."""
    return hashlib.sha256(json.dumps(parts, ensure_ascii=True).encode()).hexdigest()
