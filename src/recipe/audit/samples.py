"""Samples of language models as a class of their own: what a planner writes for the audited prompts, against the truth.

The prompts are written as examples, so that `recipe plan --examples` or any other planner writes predictions for them.
A prediction is read as `recipe.planning` reads it: the steps of the first list of a completion.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from recipe.audit.perturb import AuditPrompt
from recipe.errors import InputError, listed
from recipe.planning.prediction_files import read_predictions
from recipe.planning.predictions import Prediction
from recipe.types import Example

PREFIX = "samples-"
"""Prefix of the sample files in an audit's folder."""


def prompt_id(prompt: AuditPrompt) -> str:
    """The id of a prompt's example; another seed cuts unused, and so gives another id."""
    return f"audit/{prompt.source}/{prompt.video_id}/{len(prompt.history)}"


def prompt_examples(prompts: Sequence[AuditPrompt]) -> list[Example]:
    """The prompts as examples, with the true continuation."""
    return [
        Example(
            prompt_id(prompt),
            prompt.source,
            prompt.video_id,
            prompt.goal,
            prompt.history,
            prompt.true,
            len(prompt.history),
        )
        for prompt in prompts
    ]


def sample_file(folder: Path, system: str) -> Path:
    """The file in an audit's folder that holds the samples of a system."""
    return folder / f"{PREFIX}{re.sub(r'[^A-Za-z0-9.-]+', '_', system).strip('_.')}.jsonl"


def read_samples(arguments: Iterable[str]) -> dict[str, list[Prediction]]:
    """System -> its predictions, from files given as `FILE`, which names the system, or `NAME=FILE`.

    Raises InputError for a name that occurs twice, and as `read_predictions` does.
    """
    samples: dict[str, list[Prediction]] = {}
    for argument in arguments:
        name, named, file = argument.rpartition("=")
        path = Path(file)
        system = name if named else path.stem.removeprefix(PREFIX)
        if system in samples:
            raise InputError(f"samples of {system!r} are given twice; name them with --samples NAME=FILE.")
        samples[system] = read_predictions(path)
    return samples


def with_samples(
    prompts: Sequence[AuditPrompt], samples: Mapping[str, Sequence[Prediction]]
) -> tuple[list[AuditPrompt], dict[str, int]]:
    """The prompts with the plans of each system, and by system the number of samples for other prompts.

    Raises InputError for a system without a sample for any of the prompts: they are of another seed or file.
    """
    places = {prompt_id(prompt): index for index, prompt in enumerate(prompts)}
    plans: list[dict[str, tuple[tuple[str, ...], ...]]] = [{} for _ in prompts]
    unused = {}
    for system, predictions in samples.items():
        for prediction in predictions:
            if prediction.example_id in places:
                own = plans[places[prediction.example_id]]
                own[system] = (*own.get(system, ()), prediction.steps)
        if not any(system in own for own in plans):
            ids = listed(sorted({prediction.example_id for prediction in predictions}))
            raise InputError(
                f"no sample of {system!r} is for an audited prompt ({ids or 'there are none'}); write the prompts with "
                "--prompts-output, with the same --procedures, --limit and --seed, and plan for them."
            )
        unused[system] = sum(prediction.example_id not in places for prediction in predictions)
    return [replace(prompt, samples=own) for prompt, own in zip(prompts, plans, strict=True)], unused
