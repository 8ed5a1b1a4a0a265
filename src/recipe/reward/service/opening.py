"""A verifier that is ready to be asked: its encoder loaded, and what is known beforehand computed."""

import gc
import logging
from collections.abc import Sequence
from pathlib import Path

from recipe.config import RewardConfig
from recipe.corpus.store import Corpus
from recipe.errors import CorpusError, RecipeError
from recipe.reward.prompts import PromptGroup
from recipe.reward.verifier import Verifier

_LOG = logging.getLogger(__name__)
_BATCH = 64


def open_verifier(
    folder: Path, identity: str, config: RewardConfig, devices: Sequence[str], groups: Sequence[PromptGroup]
) -> Verifier:
    """The verifier of the corpus `identity`, warmed up. Raises CorpusError where the folder holds another by now."""
    corpus = Corpus.open(folder, devices=devices)
    if corpus.manifest["id"] != identity:
        raise CorpusError(f"{folder}: the corpus was replaced while the service started; start it again.")
    verifier = Verifier(corpus, config)
    warm_up(verifier, groups)
    return verifier


def warm_up(verifier: Verifier, groups: Sequence[PromptGroup] = ()) -> None:
    """Load the encoder and the corpus's pages, and remember the steps and pools of these groups.

    What is in memory then is kept out of garbage collection (`gc.unfreeze` takes it back): the encoder's packages are
    a million objects that stay, and looking through them again takes half a second each time.
    """
    verifier.score(["boil the water"], [["pour the water"]], "make tea")
    for first in range(0, len(groups), _BATCH):
        try:
            verifier.prepare(groups[first : first + _BATCH])
        except RecipeError as error:
            _LOG.warning("warming up went on without %d prompts: %s", len(groups[first : first + _BATCH]), error)
    gc.collect()
    gc.freeze()
