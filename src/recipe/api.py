"""What the commands `corpus build`, `plan` and `reward audit` do, one call each; `recipe` offers them by name.

Each call puts together several rooms below: reading and encoding, model and scorer, verifiers and audit.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from recipe.audit.measure import Extent
from recipe.audit.measure import audit_rewards as audit_scorers
from recipe.audit.results import Audit
from recipe.audit.score import NamedScorer
from recipe.config import CorpusConfig, EncoderConfig, ModelConfig, RewardConfig, SamplingConfig, parse_config
from recipe.corpus.build import build_corpus as build
from recipe.corpus.build import narration_source
from recipe.corpus.encoder_identity import licence_note
from recipe.corpus.excluded import read_exclusions
from recipe.corpus.store import Corpus
from recipe.data.narrations import DEFAULTS, Duplicates, ReadingOptions
from recipe.data.procedures import read_procedures
from recipe.errors import InputError
from recipe.functions import Function
from recipe.models.model import open_model
from recipe.models.protocol import Engine
from recipe.planning.planner import Planner, Request
from recipe.planning.rerank import rerank
from recipe.progress import SILENT, Progress
from recipe.reward.embeddings import StepEmbeddings
from recipe.reward.own import FunctionReward
from recipe.reward.scorer import Scorer
from recipe.reward.verifier import Verifier
from recipe.text import as_steps
from recipe.types import Plan, Procedure

_LOG = logging.getLogger(__name__)
_ALL = Extent()
Paths = Path | str | Sequence[Path | str]
Verification = str | RewardConfig | Function
"""A reward by its name, its settings, or a function of the user's own, `(goal, history, plan) -> float`."""


def build_corpus(
    narrations: Paths,
    output: Path | str,
    *,
    encoder: EncoderConfig | str = "minilm",
    reading: ReadingOptions = DEFAULTS,
    titles: Path | str | None = None,
    exclude: Paths = (),
    ids: Path | str | None = None,
    duplicates: Duplicates = "error",
    progress: Progress = SILENT,
) -> Corpus:
    """The corpus of files, folders or archives of narrations, in the folder `output`; as `recipe corpus build`.

    A second call opens the finished corpus, or continues a build that was stopped. `encoder` is a name or its settings,
    `titles` a file of titles, `exclude` files whose videos are kept out, `ids` a table of the ids that corpora have for
    these (docs/corpus.md), `duplicates` what happens to a video id that was read before.

    Raises InputError for files that cannot be read, ConfigError for an encoder that cannot be used, CorpusError for an
    `output` of other settings, and MissingExtra.
    """
    settings = EncoderConfig(name=encoder, dtype="auto") if isinstance(encoder, str) else encoder
    id_map = None if ids is None else Path(ids)
    try:
        sources, excluded = (
            (Path(paths),) if isinstance(paths, str | Path) else tuple(map(Path, paths))
            for paths in (narrations, exclude)
        )
    except TypeError as error:
        raise InputError(
            "narrations: a name of a file, folder or archive is expected; narrations as values are for "
            "recipe.corpus.build.build_corpus."
        ) from error
    exclusions = read_exclusions(excluded, ids=id_map) if excluded else None
    known = None if titles is None else Path(titles)
    stream, origin = narration_source(sources, reading, duplicates, exclusions, known)
    if note := licence_note({"name": settings.name}):
        _LOG.warning(note)
    build(stream, Path(output), CorpusConfig(encoder=settings), progress, origin=origin)
    return Corpus.open(output)


def plan(
    model: str | Path | Engine,
    *,
    goal: str,
    history: Sequence[str] = (),
    count: int = 1,
    scorer: Scorer | Function | None = None,
    sampling: SamplingConfig | None = None,
) -> list[Plan]:
    """`count` plans for one goal, in the order they were sampled, or the best first by `scorer`; as `recipe plan`.

    `model` is a folder, a hub id, `smollm2`, or an engine that `recipe.models.model.open_model` opened and that many
    calls share. `scorer` is a verifier, or a function of your own, `(goal, history, plan) -> float`. Completions
    without steps are left out, so that there may be fewer plans.

    Raises InputError for a blank goal, a history that is no list of texts, a count below 1 or a model that is not
    there; MissingExtra; with a scorer also its ComputeError or CorpusError.
    """
    request = Request(goal, as_steps(history))
    with ExitStack() as stack:
        engine = model if isinstance(model, Engine) else stack.enter_context(open_model(ModelConfig(model=str(model))))
        [answers] = Planner(engine, sampling).plan([request], count)
    plans = [answer for answer in answers if isinstance(answer, Plan)]
    if scorer is None or not plans:
        return plans
    [ranked] = rerank(FunctionReward(scorer) if callable(scorer) else scorer, [request], [plans])
    return [plans[sample] for sample in ranked.order]


def audit_rewards(
    corpus: Corpus,
    procedures: Path | str | Sequence[Procedure],
    *,
    verifiers: Verification | Sequence[Verification] | Mapping[str, Verification] = ("paper", "grounded"),
    extent: Extent = _ALL,
    progress: Progress = SILENT,
) -> Audit:
    """How well rewards on a corpus tell true continuations from corrupted ones; as `recipe reward audit`.

    `procedures` is a file of procedures, or procedures. Each of the `verifiers`, or the only one, is a name, settings,
    or a function of your own, `(goal, history, plan) -> float` (docs/own.md); as a mapping they have your names.
    Shares of the audit lie in 0..1.

    Raises InputError for a path in place of a corpus, for rows that are no procedures, where no procedure can be
    audited or a reward stands there twice; ConfigError for an unknown verifier; ComputeError where a reward scores
    none.
    """
    if not isinstance(corpus, Corpus):
        raise InputError(f"{corpus!r} is no corpus; open one first, with Corpus.open(folder).")
    read = read_procedures(Path(procedures)).procedures if isinstance(procedures, str | Path) else procedures
    # One for all rewards: they embed the same steps.
    embeddings = StepEmbeddings(corpus.encoder)
    audited = []
    if isinstance(verifiers, str | RewardConfig) or callable(verifiers):  # whose letters and fields could be iterated
        verifiers = [verifiers]
    named = verifiers.items() if isinstance(verifiers, Mapping) else (("", choice) for choice in verifiers)
    for name, choice in named:
        config = parse_config({"verifier": choice}, RewardConfig, "verifiers") if isinstance(choice, str) else choice
        verifier = Verifier(corpus, config, embeddings=embeddings)
        caution = verifier.config.contrast_problem(len(corpus)) or ""
        own = choice if isinstance(choice, str) else verifier.config.verifier
        audited.append(NamedScorer(name or own, verifier, caution))
    return audit_scorers(audited, corpus, read, embeddings.stacked, extent, progress=progress)
