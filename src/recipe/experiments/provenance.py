"""Where a report's figures come from: versions, settings, data."""

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from recipe.artifacts import installed, read_jsonl
from recipe.corpus.store import Corpus
from recipe.experiments.results import Provenance
from recipe.experiments.settings import Experiment
from recipe.experiments.stages import DOCUMENTS, TEST, TRAIN

PACKAGES = ("recipe-planner", "torch", "transformers", "trl", "peft", "sentence-transformers", "numpy", "numba")


def provenance(
    run_dir: Path,
    config: Experiment,
    corpus: Corpus,
    seeds: tuple[int, ...],
    further: Mapping[str, Mapping[str, Any]],
) -> Provenance:
    """What it takes to run an experiment again; `further` names settings that not every experiment has."""
    counts = {"base planner": DOCUMENTS, "training": TRAIN, "test": TEST}
    held = {name: sum(1 for _ in read_jsonl(run_dir / path)) for name, path in counts.items()}
    manifest = corpus.manifest
    narrated = f"{manifest['narrations']} narrations, {manifest['segments']} segments"
    return Provenance(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        seeds=seeds,
        versions={"python": platform.python_version(), **installed(PACKAGES)},
        device=f"{'CUDA' if torch.cuda.is_available() else 'CPU'}, {os.cpu_count()} cores",
        settings=_settings(config, further),
        data={name: f"{count} examples" for name, count in held.items()}
        | {"verification corpus": f"{narrated}, encoder {manifest['encoder']['name']}"},
    )


def _settings(config: Experiment, further: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    sampling = config.sampling.model_dump(include={"temperature", "max_tokens"})
    parts: dict[str, Mapping[str, Any]] = {
        "base planner": config.base,
        **further,
        "GRPO": config.grpo,
        "sampling": {**sampling, "samples": config.samples},
    }
    return {name: ", ".join(f"{key} {value}" for key, value in part.items()) for name, part in parts.items()}
