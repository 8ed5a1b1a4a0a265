"""How well encoders recognise the same step in other words, and whether they tell opposites apart.

    python benchmarks/same_step.py CORPUS [ENCODER ...]

CORPUS is one of the embedded world (`recipe world build`). Its encoder is compared with folders that `recipe corpus
adapt` wrote. A step of the world has three or more wordings, so that pairs of wordings are known exactly. Opposites and
their rewordings are those of opposites.txt. For goals that a corpus does not tell, the map of vectors is also learned
from the narrations of all goals but the world's held-out ones, and measured on the steps that only these have.
"""

import argparse
from collections.abc import Collection, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from common import add_json, table, write_result
from numpy.typing import NDArray

from recipe.artifacts import read_json
from recipe.config import AdaptationConfig, EncoderConfig
from recipe.corpus.adapt import (
    FALSE_POSITIVES,
    RECORD,
    Segments,
    held_out,
    learned_map,
    partners,
    step_pairs,
    unit,
)
from recipe.corpus.encoders import open_encoder
from recipe.corpus.store import Corpus
from recipe.world.graph import World
from recipe.world.load import load_world

OPPOSITES = Path(__file__).with_name("opposites.txt")
NAMES = {
    "auc": "AUC, other steps of all goals",
    "found": "found, other steps of all goals",
    "found_in_goal": "found, other steps of the same goal",
    "rewording_nearer": "rewording nearer than the opposite",
    "opposite_taken": "opposites above the threshold",
    "rewording_found": "rewordings above the threshold",
}
"""Columns of the table; the threshold is what 5% of the pairs of two steps of one goal reach."""
STEP_NAMES = {key: NAMES[key] for key in ("auc", "found", "found_in_goal")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="a corpus of the embedded world")
    parser.add_argument("encoders", type=Path, nargs="*", help="folders of adapted encoders")
    add_json(parser, "corpus-same_step")
    arguments = parser.parse_args()
    world = load_world()
    corpus = Corpus.open(arguments.corpus)
    mean = np.concatenate([corpus.embeddings(number) for number in range(len(corpus))]).mean(axis=0)
    texts = [wording for wordings in world.wordings.values() for wording in wordings]
    pairs = read_opposites(OPPOSITES)
    texts += [text for pair in pairs for text in pair]

    base = dict(zip(texts, corpus.encoder.encode(texts), strict=True))
    told = {
        "base": measures(world, pairs, base),
        "base, centred": measures(world, pairs, {text: unit(vector - mean) for text, vector in base.items()}),
    }
    for folder in arguments.encoders:
        encoder = open_encoder(EncoderConfig(name=str(folder)), fixed_shape=True)
        vectors = dict(zip(texts, encoder.encode(texts), strict=True))
        gate = read_json(folder / RECORD)["gate"]
        told[folder.name] = measures(world, pairs, vectors) | {"gate": gate}

    unknown = {name: graph for name, graph in world.goals.items() if graph.held_out}
    known = {step for name, graph in world.goals.items() if name not in unknown for step in graph.steps}
    only = {step: wordings for step, wordings in world.wordings.items() if step not in known}
    part = World(unknown, only, world.talk)
    mapping = map_without(corpus, unknown)
    untold = {
        "base": measures(part, pairs, base),
        "base, centred": measures(part, pairs, {text: unit(vector - mean) for text, vector in base.items()}),
        "adapted": measures(part, pairs, {text: unit(mapping @ vector) for text, vector in base.items()}),
    }

    first, last = told["base"], untold["base"]
    write_result(
        arguments.json,
        {"told": told, "untold": untold},
        title="The same step in other words",
        guide="corpus.md",
        body=[
            f"Encoders adapted on the embedded world ({len(corpus):,} narrations), without labels. Pairs of wordings "
            f"of one step against pairs of wordings of two; and {len(pairs)} pairs of opposites, each with a rewording "
            "of its own. In %; found at 5% false ones.",
            _table(told, f"All steps of the world, whose goals the corpus tells ({first['same']:,} pairs)", NAMES),
            _table(untold, f"Steps of goals that were left out of the corpus ({last['same']:,} pairs)", STEP_NAMES),
        ],
    )
    for kind, rows in (("told", told), ("not told", untold)):
        for name, row in rows.items():
            print(kind, name, {key: round(value, 3) for key, value in row.items() if isinstance(value, float)})


def _table(rows: Mapping[str, Mapping[str, Any]], title: str, names: Mapping[str, str]) -> dict[str, Any]:
    percent = {name: {names[key]: 100 * row[key] for key in names} for name, row in rows.items()}
    return table(percent, "encoder", title)


def map_without(corpus: Corpus, goals: Collection[str]) -> NDArray[np.float64]:
    """The map that is learned from the narrations of all other goals."""
    numbers = [number for number in range(len(corpus)) if corpus.narration(number).title not in goals]
    config = AdaptationConfig()
    segments = Segments(corpus, numbers, config.seed)
    side = held_out(segments, corpus, config.seed)
    compared = partners(corpus, segments, config.partners, side)
    learned = step_pairs(segments, [pair for pair in compared if not side[pair[0]]])
    return learned_map(segments, learned, config)


def read_opposites(path: Path) -> list[tuple[str, str, str, str]]:
    """A step, its opposite, and both in other words, a line each."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            step, opposite, step_again, opposite_again = line.split(" | ")
            rows.append((step, opposite, step_again, opposite_again))
    return rows


def measures(
    world: World, opposites: list[tuple[str, str, str, str]], vectors: Mapping[str, NDArray[np.float32]]
) -> dict[str, Any]:
    """Figures of an encoder, as shares, from its unit vectors [d] of all texts."""
    steps = [(step, wording) for step, wordings in world.wordings.items() for wording in wordings]
    rows = np.stack([vectors[wording] for _, wording in steps])
    first, second = np.triu_indices(len(steps), 1)
    similar = (rows @ rows.T)[first, second]
    owners = np.array([step for step, _ in steps])
    same = owners[first] == owners[second]
    goals = {frozenset(pair) for graph in world.goals.values() for pair in combinations(graph.steps, 2)}
    in_goal = np.array([frozenset(pair) in goals for pair in zip(owners[first], owners[second], strict=True)])

    threshold = np.quantile(similar[~same], 1.0 - FALSE_POSITIVES)
    threshold_in_goal = np.quantile(similar[in_goal & ~same], 1.0 - FALSE_POSITIVES)
    lists = np.array([[vectors[text] for text in row] for row in opposites])
    opposite = np.einsum("nd,nd->n", lists[:, 0], lists[:, 1])
    again = np.stack([np.einsum("nd,nd->n", lists[:, side], lists[:, side + 2]) for side in (0, 1)], axis=1)
    nearer = (again > opposite[:, None]).mean(axis=1)
    return {
        "same": int(same.sum()),
        "other": int((~same).sum()),
        "auc": auc(similar[same], similar[~same]),
        "found": float((similar[same] > threshold).mean()),
        "found_in_goal": float((similar[same] > threshold_in_goal).mean()),
        "rewording_nearer": float(nearer.mean()),
        "opposite_taken": float((opposite > threshold_in_goal).mean()),
        "rewording_found": float((again > threshold_in_goal).mean()),
        "opposite_similarity": float(opposite.mean()),
        "rewording_similarity": float(again.mean()),
    }


def auc(positive: NDArray[np.float32], negative: NDArray[np.float32]) -> float:
    """The probability that a positive is above a negative; ties do not occur."""
    ranks = np.concatenate([positive, negative]).argsort().argsort()[: len(positive)]
    count = len(positive)
    return float((ranks.sum() - count * (count - 1) / 2) / (count * len(negative)))


if __name__ == "__main__":
    main()
