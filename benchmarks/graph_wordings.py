"""Steps in other words: how often a line finds its step, what is taken for one, and what whole plans score."""

import random
from statistics import fmean
from typing import Any

import numpy as np
from graph_plans import REWORDED, reworded, spoilt
from graph_study import SEED, Study, auc, said_of, told

from recipe.evaluation.validity.readings import Matcher, same_words, wording_vectors
from recipe.stats import mean_interval

THRESHOLD_CURVE = tuple(round(0.3 + 0.05 * n, 2) for n in range(13))
MARGINS = (0.0, 0.02, 0.05, 0.1)


def wordings(study: Study) -> dict[str, Any]:
    """Share of lines that find their step, by rewording and threshold; foreign lines that are taken for a step; and
    the validity of whole valid orders in other words."""
    rng = random.Random(SEED)
    matchers = dict(zip(study.graphs.by_key, _matchers(study, 0.0), strict=True))
    right: dict[str, list[tuple[bool, float]]] = {kind: [] for kind in REWORDED}
    for key, own in study.graphs.by_key.items():
        for kind in REWORDED:
            for step, text in said_of(own).items():
                said = reworded(text, kind, rng)
                found = matchers[key].exact(said) or matchers[key].near(study.embed([said])[0])
                meant = found.first
                right[kind].append((step in {one.step for one in meant}, meant[0].similarity if meant else 0.0))
    foreign = np.array(_foreign(study))
    curve = {
        str(threshold): {
            "foreign taken": float((foreign >= threshold).mean()),
            **{
                kind: fmean(hit and similarity >= threshold for hit, similarity in some) for kind, some in right.items()
            },
        }
        for threshold in sorted({*THRESHOLD_CURVE, study.threshold})
    }
    return {"lines": len(right["lower"]), "foreign lines": len(foreign), "by_threshold": curve, "plans": _plans(study)}


def _plans(study: Study) -> dict[str, Any]:
    """Validity of valid orders in other words, and AUC against the same with a swap."""
    reader, found = study.reader(), {}
    for kind in REWORDED:
        valid, swapped = [], []
        for one in study.normal:
            rng = random.Random(f"{SEED} {one.video_id} {kind}")
            own = study.graphs.of(one.goal)
            texts = {step: reworded(text, kind, rng) for step, text in said_of(own).items()}
            order = own.graph.draw(rng)
            plan = [texts[step] for step in order]
            valid.append((one.goal, reader.read(one.goal, (), plan).score().score))
            wrong = spoilt(own.graph, order, texts, tuple(texts.values()), rng)["swapped"]
            swapped.append((one.goal, reader.read(one.goal, (), wrong).score().score))
        goals = [goal for goal, _ in valid]
        found[kind] = {
            "validity": told(mean_interval([score for _, score in valid], goals)),
            "auc_swapped": told(auc(valid, swapped)),
        }
    return found


def margins(study: Study) -> dict[str, Any]:
    """What the margin does: validity of valid orders with short steps, and of the same with a swap."""
    found = {}
    for margin in MARGINS:
        reader = study.reader(margin)
        valid, swapped = [], []
        for one in study.normal:
            rng = random.Random(f"{SEED} {one.video_id} margin")
            own = study.graphs.of(one.goal)
            texts = {step: reworded(text, "short", rng) for step, text in said_of(own).items()}
            order = own.graph.draw(rng)
            valid.append(reader.read(one.goal, (), [texts[step] for step in order]).score().score)
            wrong = spoilt(own.graph, order, texts, tuple(texts.values()), rng)["swapped"]
            swapped.append(reader.read(one.goal, (), wrong).score().score)
        found[str(margin)] = {"valid": fmean(valid), "swapped": fmean(swapped)}
    return found


def _matchers(study: Study, threshold: float) -> list[Matcher]:
    vectors = wording_vectors(study.graphs, study.embed)
    return [Matcher(graph, own, threshold) for graph, own in zip(study.graphs, vectors, strict=True)]


def _foreign(study: Study) -> list[float]:
    """Similarity of steps that were performed for other goals to the nearest step of each goal."""
    steps = sorted({(one.goal, step.text) for one in study.normal for step in one.steps})
    vectors = study.embed([text for _, text in steps])
    found: list[float] = []
    for own, wording in zip(study.graphs, wording_vectors(study.graphs, study.embed), strict=True):
        known = {same_words(text) for text in said_of(own).values()}
        nearest = (vectors @ wording.T).max(axis=1)
        found += [
            float(similarity)
            for (goal, text), similarity in zip(steps, nearest, strict=True)
            if study.graphs.of(goal) is not own and same_words(text) not in known
        ]
    return found
