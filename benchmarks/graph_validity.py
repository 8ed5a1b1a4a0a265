"""How well validity against task graphs tells right plans from wrong ones, on CaptainCook4D.

    python benchmarks/graph_validity.py CAPTAINCOOK4D [--encoder minilm] [--every 1]

Measures whether the recordings are valid orders of their graphs; AUC of validity between valid plans and plans spoilt
in one way, and between recordings without and with errors; how often reworded lines find their step, by threshold; and
what a single reference makes of another valid order.
"""

import argparse
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from common import add_json, table, write_result

from recipe.artifacts import read_json, to_json
from recipe.audit.perturb import wordings as audit_wordings
from recipe.config import EncoderConfig
from recipe.corpus.encoders import open_encoder
from recipe.data.captaincook4d import read_captaincook4d
from recipe.data.task_graphs import GoalGraph, TaskGraphs, read_task_graphs
from recipe.errors import ComputeError
from recipe.evaluation.judge.plans import Case
from recipe.evaluation.judge.proxy import ProxyJudge
from recipe.evaluation.matching import Embed, NearestStep, StepMatcher, ordered_f1, step_f1
from recipe.evaluation.validity.readings import (
    MARGIN,
    THRESHOLDS,
    GraphPlan,
    GraphReader,
    Matcher,
    same_words,
    threshold_of,
    wording_vectors,
)
from recipe.stats import Interval, bootstrap_interval, mean_interval, resampled_totals, spearman
from recipe.types import Example, Procedure, Verdict
from recipe.world.graph import TaskGraph

Steps = tuple[str, ...]

SPOILT = {
    "swapped": "two steps exchanged, the later of which waits for the other",
    "shuffled": "all steps in random order, which is not valid",
    "dropped": "one required step left out",
    "halved": "only the first half of the steps",
    "repeated": "one step said again later",
    "alien": "one step of another goal put in",
    "replaced": "one step replaced by one of another goal",
    "offgoal": "steps of another goal only",
}
"""Ways to spoil a valid plan, in words."""

REWORDED: dict[str, str] = {
    "lower": "lower case, no punctuation",
    "bare": "and no articles and determiners",
    "no_amounts": "and no numbers, units and brackets",
    "short": "and nothing after the first object: a verb with its object",
    "spoken": "the whole step in a spoken sentence, its verb replaced by a synonym where one is known",
}
"""Ways to say a step in other words, in words."""

_DETERMINERS = re.compile(r"\b(?:a|an|the|some|your|this|that|these|those|it|them|its)\b\s*")
_AMOUNTS = re.compile(
    r"\([^)]*\)|\b\d+(?:[./-]\d+)*\s*-?(?:tbsp|tsp|tablespoons?|teaspoons?|cups?|oz|ounces?|g|grams?|ml|inch(?:es)?|cm"
    r"|seconds?|secs?|minutes?|mins?|pieces?)?\b(?:\s+of\b)?"
)
_REST = re.compile(
    r"\b(?:in|into|on|onto|to|with|from|for|until|till|over|and|or|at|by|so|using|about|of|while|when|before|after)\b.*"
)


def finish(graph: TaskGraph, done: Sequence[str], rng: random.Random) -> Steps:
    """A random valid order of the steps that are left after `done`, which a valid order begins with."""
    order = list(done)
    while ready := graph.ready(set(order), set(graph.after)):
        order.append(rng.choice(ready))
    return tuple(order[len(done) :])


def spoilt(
    graph: TaskGraph, plan: Steps, texts: Mapping[str, str], foreign: Steps, rng: random.Random
) -> dict[str, Steps]:
    """A valid plan of step ids spoilt in each way that it admits, as texts; `foreign` is said of another goal."""
    said = [texts[step] for step in plan]
    present = set(graph.after)
    found: dict[str, Sequence[str]] = {}
    # Steps in the same words are one to a reader: exchanging them spoils nothing.
    pairs = [
        (i, j)
        for j, b in enumerate(plan)
        for i, a in enumerate(plan[:j])
        if a in graph.before(b, present) and said.count(said[i]) == said.count(said[j]) == 1
    ]
    if pairs:
        i, j = rng.choice(pairs)
        found["swapped"] = _exchanged(said, i, j)
        found["shuffled"] = [texts[step] for step in _invalid_order(graph, plan, pairs, rng)]
    at = rng.randrange(len(said))
    stranger = rng.choice(foreign)
    found["dropped"] = said[:at] + said[at + 1 :]
    found["halved"] = said[: len(said) // 2]
    again = rng.randrange(at + 1, len(said) + 1)
    found["repeated"] = [*said[:again], said[at], *said[again:]]
    found["alien"] = [*said[:at], stranger, *said[at:]]
    found["replaced"] = [*said[:at], stranger, *said[at + 1 :]]
    found["offgoal"] = foreign[: len(said)]
    return {name: tuple(found[name]) for name in SPOILT if name in found}


def reworded(text: str, kind: str, rng: random.Random) -> str:
    """A step in other words, by a rule of `REWORDED`; as it was where the rule would leave nothing.

    >>> reworded("Add 1/2 tsp of the salt (fine) to a bowl.", "short", random.Random(0))
    'add salt'
    """
    if kind == "spoken":
        return audit_wordings().paraphrase(text, rng)
    said = " ".join(re.sub(r"[.,;:!?]+(?=\s|$)", " ", text.lower()).split())
    kinds = list(_RULES)
    for name in kinds[: kinds.index(kind) + 1] if kind in kinds else ():
        said = _RULES[name](said) or said
    return said


def _without(pattern: re.Pattern[str]) -> Callable[[str], str]:
    return lambda text: " ".join(pattern.sub(" ", text).split())


def _verb_and_object(text: str) -> str:
    verb, _, rest = text.partition(" ")
    return f"{verb} {_REST.sub('', rest)}".strip()


_RULES: dict[str, Callable[[str], str]] = {
    "bare": _without(_DETERMINERS),
    "no_amounts": _without(_AMOUNTS),
    "short": _verb_and_object,
}


def separation(
    valid: Sequence[float], spoiled: Sequence[float], clusters: tuple[Sequence[str], Sequence[str]]
) -> Interval:
    """AUC: the chance that a valid plan scores above a spoilt one, equal scores counted half, drawn by cluster.

    `clusters` name the goals of the valid and of the spoilt plans. Raises ComputeError without plans of both kinds.
    """
    if not valid or not spoiled:
        raise ComputeError("an AUC was asked of no valid or no spoilt plan.")
    names = sorted({*clusters[0], *clusters[1]})
    place = {name: row for row, name in enumerate(names)}
    rows, columns = (np.array([place[name] for name in some]) for some in clusters)
    first, second = np.asarray(valid, dtype=np.float64)[:, None], np.asarray(spoiled, dtype=np.float64)[None]
    wins = (first > second) + 0.5 * (first == second)
    won = np.zeros((len(names), len(names)))
    np.add.at(won, (rows[:, None], columns[None]), wins)
    pairs = np.outer(np.bincount(rows, minlength=len(names)), np.bincount(columns, minlength=len(names)))
    mean = float(won.sum() / pairs.sum())
    drawn = resampled_totals(np.eye(len(names)))
    above, all_pairs = ((drawn @ table * drawn).sum(axis=1) for table in (won, pairs))
    drawn = np.divide(above, all_pairs, out=np.full(len(above), np.nan), where=all_pairs > 0)
    return bootstrap_interval(mean, drawn, len(valid) + len(spoiled), len(names))


def _exchanged(said: Sequence[str], i: int, j: int) -> list[str]:
    found = list(said)
    found[i], found[j] = found[j], found[i]
    return found


def _invalid_order(
    graph: TaskGraph, plan: Steps, pairs: Sequence[tuple[int, int]], rng: random.Random
) -> Iterator[str]:
    """The steps in random order, one of whose dependencies at least is broken."""
    while True:
        order = rng.sample(range(len(plan)), len(plan))
        place = {index: at for at, index in enumerate(order)}
        if any(place[i] > place[j] for i, j in pairs):
            return iter([plan[index] for index in order])


ERRORS = "annotation_json/error_annotations.json"
SEED = 0


@dataclass(frozen=True)
class Study:
    """What is measured on, and with."""

    graphs: TaskGraphs
    recordings: list[Procedure]
    """In the order of their names, steps as performed."""
    tags: Mapping[str, frozenset[str]]
    """Categories of error of each recording; empty for a normal one."""
    embed: Embed
    threshold: float

    @property
    def normal(self) -> list[Procedure]:
        """The recordings without errors."""
        return [one for one in self.recordings if not self.tags[one.video_id]]

    def reader(self, margin: float = MARGIN) -> GraphReader:
        """A reader of plans."""
        return GraphReader(self.graphs, self.embed, self.threshold, margin=margin)


def open_study(folder: Path, encoder: str = "minilm", every: int = 1) -> Study:
    """CaptainCook4D with an encoder that embeds each text once."""
    embed = _remembered(open_encoder(EncoderConfig(name=encoder)).encode)
    procedures = [one for one in read_captaincook4d(folder) if one.steps]
    graphs = read_task_graphs(folder)
    threshold = THRESHOLDS.get(encoder) or threshold_of(graphs, embed)
    tags = {
        one["recording_id"]: frozenset(
            error["tag"] for step in one["step_annotations"] for error in step.get("errors", ())
        )
        | (frozenset({"some error"}) if one["is_error"] else frozenset())
        for one in read_json(folder / ERRORS)
    }
    return Study(graphs, procedures[::every], tags, embed, threshold)


def performed(procedure: Procedure) -> list[str]:
    return [step.text for step in procedure.steps]


def said_of(own: GoalGraph) -> dict[str, str]:
    return {step: said[0] for step, said in own.wordings.items()}


def auc(valid: Sequence[tuple[str, float]], wrong: Sequence[tuple[str, float]]) -> Interval:
    clusters = [goal for goal, _ in valid], [goal for goal, _ in wrong]
    return separation([score for _, score in valid], [score for _, score in wrong], clusters)


def told(value: Interval | None) -> dict[str, Any]:
    return {} if value is None else {name: part for name, part in to_json(value).items() if part not in (None, "")}


def _remembered(embed: Embed) -> Embed:
    known: dict[str, np.ndarray] = {}

    def once(texts: Sequence[str]) -> np.ndarray:
        if new := sorted({text for text in texts if text not in known}):
            known.update(zip(new, embed(new), strict=True))
        return np.stack([known[text] for text in texts])

    return once


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


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--every", type=int, default=1, help="only each so manieth recording")
    add_json(parser, "evaluation-task_graphs")
    arguments = parser.parse_args()
    found = measure(arguments.folder, arguments.encoder, arguments.every)
    print(json.dumps(found, indent=2))
    write_result(
        arguments.json,
        found,
        title="Validity against task graphs, on CaptainCook4D",
        guide="evaluation.md",
        body=body(found),
        partial=arguments.every > 1,
    )


def body(found: dict[str, Any]) -> list[str | dict[str, Any]]:
    """The tables of the results page."""
    columns = {"auc": "AUC", "auc_against_drawn": "AUC, drawn only", "auc_against_recorded": "AUC, recorded only"}
    apart: dict[str, dict[str, Any]] = {what: {} for what in SPOILT.values()}
    for name, part in found["separation"].items():
        for kind, what in SPOILT.items():
            apart[what] |= {f"{name}: {title}": part[key][kind] for key, title in columns.items()}
    by_threshold = found["wordings"]["by_threshold"]
    worded = {
        kind: {
            "found": by_threshold[str(found["threshold"])][kind],
            "validity": row["validity"],
            "AUC": row["auc_swapped"],
        }
        for kind, row in found["wordings"]["plans"].items()
    }
    references = found["references"]
    return [
        f"The encoder is {found['encoder']}, the threshold {found['threshold']}; intervals draw recipes.",
        table(found["recordings"], "recordings", "Are the recordings valid orders of their own graphs?"),
        table(apart, "a valid plan spoilt:", "Valid against spoilt plans"),
        table(found["natural_errors"], "recordings with", "Errors that people made"),
        table(worded, "wording", f"Lines in other words ({found['wordings']['lines']} of each)"),
        table(by_threshold, "threshold", "Lines that find their step, and foreign lines that are taken for one"),
        table(found["margins"], "margin", "Validity of valid orders in short words, and of the same with a swap"),
        table(references["means"], "plan", "What a single reference makes of another valid order"),
        table(
            {
                "AUC of another valid order against an exchange": references[
                    "auc of another valid order against swapped"
                ],
                "Spearman's rank correlation with validity": references["spearman of validity with"],
            }
        ),
    ]


def measure(folder: Path, encoder: str = "minilm", every: int = 1) -> dict[str, Any]:
    """All figures as plain values, on each `every`-th recording."""
    study = open_study(folder, encoder, every)
    return {
        "encoder": encoder,
        "threshold": study.threshold,
        "threshold_by_rule": threshold_of(study.graphs, study.embed),
        "recordings": recorded(study),
        "separation": {"whole": spoilt_plans(study, cut=False), "continuations": spoilt_plans(study, cut=True)},
        "natural_errors": natural_errors(study),
        "wordings": wordings(study),
        "margins": margins(study),
        "references": references(study),
    }


def recorded(study: Study) -> dict[str, Any]:
    """How far recordings are valid orders of their own graphs, by kind, and what keeps them from it."""
    reader, found = study.reader(), {}
    for kind, some in (("normal", study.normal), ("with errors", _erroneous(study))):
        why, scores, perfect = Counter[str](), [], []
        for one in some:
            reading = reader.read(one.goal, (), performed(one))
            score = reading.score()
            scores.append(score.score)
            perfect.append(float(score.perfect))
            why.update(
                name
                for name, is_so in (
                    ("not valid", not score.perfect),
                    ("order", score.order < 1),
                    ("order of overlapping steps only", score.order < 1 and _overlapping_only(one, reading)),
                    ("missing steps", score.coverage < 1),
                    ("repeated steps", score.repeated > 0),
                    ("other steps", score.alien + score.unrecognised > 0),
                )
                if is_so
            )
        goals = [one.goal for one in some]
        if some:
            found[kind] = {
                "recordings": len(some),
                "valid": told(mean_interval(perfect, goals)),
                "validity": told(mean_interval(scores, goals)),
                "because": dict(why),
            }
    return found


def spoilt_plans(study: Study, cut: bool) -> dict[str, Any]:
    """AUC of validity between valid plans, drawn from the graphs, or recorded, and plans spoilt in each way."""
    reader = study.reader()
    drawn: list[tuple[str, float]] = []
    recordings: list[tuple[str, float]] = []
    wrong: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for one in study.normal:
        rng = random.Random(f"{SEED} {one.video_id} {cut}")
        own = study.graphs.of(one.goal)
        texts = said_of(own)
        order = own.graph.draw(rng)
        at = rng.randint(2, len(order) - 3) if cut else 0
        history, plan = [texts[step] for step in order[:at]], order[at:]
        other = study.graphs.of(rng.choice([g.graph.goal for g in study.graphs if g is not own]))
        known = {same_words(text) for text in texts.values()}
        foreign = tuple(text for text in said_of(other).values() if same_words(text) not in known)
        drawn.append((one.goal, reader.read(one.goal, history, [texts[step] for step in plan]).score().score))
        done = performed(one)
        place = round(at / len(order) * len(done))
        recordings.append((one.goal, reader.read(one.goal, done[:place], done[place:]).score().score))
        for kind, steps in spoilt(own.graph, plan, texts, foreign, rng).items():
            wrong[kind].append((one.goal, reader.read(one.goal, history, steps).score().score))
    valid = drawn + recordings
    return {
        "valid": {
            "drawn": fmean(score for _, score in drawn),
            "recorded": fmean(score for _, score in recordings),
            "plans": len(valid),
        },
        "auc": {kind: told(auc(valid, wrong[kind])) for kind in SPOILT},
        "auc_against_drawn": {kind: told(auc(drawn, wrong[kind])) for kind in SPOILT},
        "auc_against_recorded": {kind: told(auc(recordings, wrong[kind])) for kind in SPOILT},
        "mean_validity": {kind: fmean(score for _, score in wrong[kind]) for kind in SPOILT},
    }


def natural_errors(study: Study) -> dict[str, Any]:
    """AUC of validity between recordings without errors and with errors of a kind; and its parts."""
    reader = study.reader()
    scored = [(one, reader.read(one.goal, (), performed(one)).score()) for one in study.recordings]
    groups: dict[str, Callable[[frozenset[str]], bool]] = {
        "any error": lambda tags: bool(tags),
        "order error": lambda tags: "Order Error" in tags,
        "missing step": lambda tags: "Missing Step" in tags,
        "order error or missing step": lambda tags: bool(tags & {"Order Error", "Missing Step"}),
        "neither": lambda tags: bool(tags) and not tags & {"Order Error", "Missing Step"},
    }
    normal = [(one.goal, score.score) for one, score in scored if not study.tags[one.video_id]]
    found = {}
    for name, belongs in groups.items():
        chosen = [(one.goal, score) for one, score in scored if belongs(study.tags[one.video_id])]
        if chosen and normal:
            found[name] = {
                "recordings": len(chosen),
                "validity": fmean(score.score for _, score in chosen),
                "order": fmean(score.order for _, score in chosen),
                "coverage": fmean(score.coverage for _, score in chosen),
                "auc": told(auc(normal, [(goal, score.score) for goal, score in chosen])),
            }
    return found


def references(study: Study) -> dict[str, Any]:
    """What validity, agreement with a single reference and the proxy judge give to the reference, another valid order
    of the same steps, and spoilt plans."""
    reader, proxy, matcher = study.reader(), ProxyJudge(study.embed), StepMatcher(study.embed)
    rows: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    nearest = {key: NearestStep(study.embed, list(said_of(own).values())) for key, own in study.graphs.by_key.items()}
    goals: dict[str, list[str]] = defaultdict(list)
    cases: list[tuple[str, Case]] = []
    for one in study.normal:
        rng = random.Random(f"{SEED} {one.video_id} reference")
        own = study.graphs.of(one.goal)
        texts, order = said_of(own), own.graph.draw(rng)
        at = rng.randint(2, len(order) - 3)
        history, reference = tuple(texts[s] for s in order[:at]), tuple(texts[s] for s in order[at:])
        another = _another(own, order, at, rng)
        plans: dict[str, Steps] = {"the reference": reference}
        if another:
            plans["another valid order"] = tuple(texts[step] for step in another)
        plans |= spoilt(own.graph, order[at:], texts, reference, rng)
        for name in ("the reference", "another valid order", "swapped", "shuffled", "dropped"):
            if name not in plans:
                continue
            steps = plans[name]
            name_step = nearest[next(k for k, g in study.graphs.by_key.items() if g is own)]
            goals[name].append(one.goal)
            rows[name]["validity"].append(reader.read(one.goal, history, steps).score().score)
            rows[name]["step F1"].append(step_f1(name_step(steps), name_step(reference)))
            rows[name]["step F1 in order"].append(ordered_f1(name_step(steps), name_step(reference)))
            example = Example(one.video_id, one.source, one.video_id, one.goal, history, reference, at)
            matched = matcher.agreement(example, steps)
            rows[name]["matched step F1"].append(matched.f1)
            rows[name]["matched step F1 in order"].append(matched.ordered_f1)
            cases.append((name, Case(example, steps)))
    for (name, _), judged in zip(cases, proxy.judge([case for _, case in cases]), strict=True):
        if isinstance(judged.outcome, Verdict):
            rows[name]["proxy judge"].append(judged.outcome.total / 30)
    valid, swapped = rows["another valid order"], rows["swapped"]
    apart = {
        measure: auc(
            list(zip(goals["another valid order"], valid[measure], strict=True)),
            list(zip(goals["swapped"], swapped[measure], strict=True)),
        )
        for measure in valid
    }
    everything = [(goal, name, at) for name, some in goals.items() for at, goal in enumerate(some)]
    ours = np.array([rows[name]["validity"][at] for _, name, at in everything])
    return {
        "spearman of validity with": {
            measure: told(
                spearman(
                    ours,
                    np.array([rows[name][measure][at] for _, name, at in everything]),
                    [goal for goal, _, _ in everything],
                )
            )
            for measure in valid
            if measure != "validity"
        },
        "means": {
            name: {measure: told(mean_interval(values, goals[name])) for measure, values in measures.items()}
            for name, measures in rows.items()
        },
        "auc of another valid order against swapped": {measure: told(value) for measure, value in apart.items()},
    }


def _another(own: GoalGraph, order: Steps, at: int, rng: random.Random, tries: int = 50) -> Steps | None:
    """Another valid order of the same continuation, None where there is hardly one."""
    texts = said_of(own)
    wanted = [texts[step] for step in order[at:]]
    drawn = (finish(own.graph, order[:at], rng) for _ in range(tries))
    return next((plan for plan in drawn if [texts[step] for step in plan] != wanted), None)


def _overlapping_only(procedure: Procedure, reading: GraphPlan) -> bool:
    """Whether each dependency that a recording breaks is of steps that went on at the same time."""
    first = {step: index for index, step in reversed(list(enumerate(reading.plan))) if step is not None}
    broken = [
        (procedure.steps[first[earlier]], procedure.steps[index])
        for step, index in first.items()
        if step in reading.graph.after
        for earlier in reading.graph.after[step]
        if first.get(earlier, -1) > index
    ]
    missing = any(a not in first for step in first if step in reading.graph.after for a in reading.graph.after[step])
    return not missing and all(a.start is not None and b.end is not None and a.start < b.end for a, b in broken)


def _erroneous(study: Study) -> list[Procedure]:
    return [one for one in study.recordings if study.tags[one.video_id]]


if __name__ == "__main__":
    main()
