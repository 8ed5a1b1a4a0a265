"""Silence for the training packages: their bars, advice and warnings; ours is the only voice."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import datasets
import transformers

from recipe.checkpoints import quiet_loading


@contextmanager
def quiet() -> Iterator[None]:
    """Within it, the training packages report errors only."""
    verbosity = transformers.logging.get_verbosity()
    loggers = [logging.getLogger(name) for name in ("trl", "peft", "accelerate", "datasets")]
    levels = [logger.level for logger in loggers]
    transformers.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with quiet_loading(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"(torch|transformers|trl|peft|accelerate|datasets)(\.|$)")
            # Raised in our name. The version of TRL is pinned, and a test runs the hook.
            warnings.filterwarnings("ignore", message="You are using 'rollout_func'")
            yield
    finally:
        transformers.logging.set_verbosity(verbosity)
        datasets.enable_progress_bars()
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


class Unreported:
    """Mixed into a TRL trainer, keeps it from reporting to the hub and from writing model cards."""

    def _send_telemetry(self) -> None:
        return

    def create_model_card(self, *_: object, **__: object) -> None:
        return
