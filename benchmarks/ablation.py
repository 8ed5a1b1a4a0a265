"""What each part of the grounded reward is worth: the audit's classes with one part taken out at a time.

    python benchmarks/ablation.py corpora/asr corpora/steps --procedures a.jsonl --procedures b.jsonl --limit 100

Corpora must not hold the procedures' videos. Shows MEAN, WORST and the correlation with length, in percent.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from common import add_json, table, write_result

from recipe.alignment.reference import FreeAlignment
from recipe.audit.measure import measure
from recipe.audit.perturb import AuditPrompt, build_prompts, select
from recipe.audit.results import RewardAudit
from recipe.audit.score import NamedScorer
from recipe.config import GroundedConfig, RewardConfig
from recipe.corpus.store import Corpus
from recipe.data.procedures import read_procedures
from recipe.reward import grounded
from recipe.reward.embeddings import StepEmbeddings
from recipe.reward.scorer import Prompt
from recipe.reward.verifier import Verifier

METHOD = "recipe.reward.grounded"
CHOOSE_POOLS, GAINS = grounded.choose_pools, grounded.gains
"""As they are before a part is replaced."""

Part = tuple[Mapping[str, Any], Mapping[str, Any]]
"""Settings that differ, and names in modules that are replaced, as `module.name`."""


def _only(index: int) -> Callable[..., grounded.Gains]:
    """Gains by one of the two alignments alone."""

    def gains(aligned: FreeAlignment, weight: np.ndarray) -> grounded.Gains:
        alone = FreeAlignment(aligned[index], aligned[index])
        return GAINS(alone, weight)._replace(matched=aligned.matched @ weight)

    return gains


def _evenly(pool: FreeAlignment) -> np.ndarray:
    return np.full(pool.matched.shape[1], 1.0 / pool.matched.shape[1])


def _best_alone(pool: FreeAlignment) -> np.ndarray:
    return np.asarray(np.eye(pool.matched.shape[1])[int(pool.matched[0].argmax())])


def _any_length(self: grounded.NarrationLengths, number: int, draw: np.random.Generator) -> np.ndarray:
    return draw.choice(self.order, min(32, len(self.order)), replace=False)


def _goal_only(prompt: Prompt) -> list[tuple[str, ...]]:
    return [(prompt[0],)]


def _history_only(prompt: Prompt) -> list[tuple[str, ...]]:
    return [prompt[1]]


PARTS: dict[str, Part] = {
    "grounded": ({}, {}),
    "without relevance (corpus alone)": ({"relevance": 0.0}, {}),
    "without the vote on order": ({}, {f"{METHOD}.order_agreement": lambda precedence: 0.0}),
    "without background": ({}, {f"{METHOD}.choose_pools": None}),
    "background of any length": ({}, {f"{METHOD}.NarrationLengths.alike": _any_length}),
    "one-to-one alignment only": ({}, {f"{METHOD}.gains": _only(0)}),
    "coverage alignment only": ({}, {f"{METHOD}.gains": _only(1)}),
    "all narrations alike": ({}, {f"{METHOD}.weights": _evenly}),
    "the best narration alone": ({}, {f"{METHOD}.weights": _best_alone}),
    "pool by the goal only": ({}, {f"{METHOD}._queries": _goal_only}),
    "pool by the history only": ({}, {f"{METHOD}._queries": _history_only}),
    "25 narrations": ({"pool_size": 25, "background_size": 25}, {}),
    "floor at the median": ({}, {f"{METHOD}.FLOOR": 0.5}),
    "paraphrases as new as in R0": ({}, {f"{METHOD}._NOVELTY": (0.5, 1.0)}),
    "without price": ({"price": 0.0}, {}),
    "horizon 4": ({"horizon": 4.0}, {}),
    "horizon 1000 (no length in the denominator)": ({"horizon": 1000.0}, {}),
}


def main() -> None:
    """Run every part on every corpus."""
    arguments = _arguments()
    procedures = [one for path in arguments.procedures for one in read_procedures(path, "skip").procedures]
    found: dict[str, dict[str, dict[str, float]]] = {}
    for folder in arguments.corpus:
        corpus = Corpus.open(folder)
        embeddings = StepEmbeddings(corpus.encoder)  # each text is encoded once in all
        videos = frozenset(corpus.narration(number).video_id for number in range(len(corpus)))
        selection = select(procedures, 0, arguments.limit, videos)
        prompts = build_prompts(selection, embeddings.stacked)
        for name, part in PARTS.items():
            figures = _figures(_scored(corpus, embeddings, prompts, part))
            found.setdefault(name, {})[folder.name] = figures
            print(f"{folder.name:10} {name:45} " + "  ".join(f"{k} {v:6.1f}" for k, v in figures.items()), flush=True)
    write_result(
        arguments.json,
        {"limit": arguments.limit, "prompts": len(prompts), "parts": found},
        title="Ablation of the grounded reward",
        guide="reward.md",
        body=[
            f"The audit of {len(prompts)} prompts a corpus, with one part taken out at a time: MEAN / WORST in "
            "percent, and the "
            "correlation of a reward with the length of its plan.",
            table({name: {at: _cell(row) for at, row in rows.items()} for name, rows in found.items()}, "part"),
        ],
    )


def _scored(corpus: Corpus, embeddings: StepEmbeddings, prompts: list[AuditPrompt], part: Part) -> RewardAudit:
    settings, replaced = part
    config = RewardConfig(verifier="grounded", grounded=GroundedConfig(**settings))
    with _replacing(replaced):
        verifier = Verifier(corpus, config, embeddings=embeddings)
        return measure("grounded", NamedScorer("grounded", verifier).score(prompts), {}, None, None)


@contextmanager
def _replacing(names: Mapping[str, Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for name, value in names.items():
            stack.enter_context(patch(name, value or _without_background))
        yield


def _without_background(*arguments: Any) -> grounded.NarrationPools:
    return CHOOSE_POOLS(*arguments)._replace(background=())


def _figures(result: RewardAudit) -> dict[str, float]:
    length = result.length_correlation or 0.0
    return {"MEAN": 100 * result.mean.mean, "WORST": 100 * result.worst.mean, "length": 100 * length}


def _cell(row: Mapping[str, float]) -> str:
    return f"{row['MEAN']:.1f} / {row['WORST']:.0f} / {row['length'] / 100:+.2f}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, nargs="+", help="corpus folders")
    parser.add_argument("--procedures", type=Path, action="append", required=True)
    parser.add_argument("--limit", type=int, default=100, help="procedures of each source")
    add_json(parser, "reward-ablation")
    return parser.parse_args()


if __name__ == "__main__":
    main()
