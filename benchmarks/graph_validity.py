"""How well validity against task graphs tells right plans from wrong ones, on CaptainCook4D.

    python benchmarks/graph_validity.py CAPTAINCOOK4D [--encoder minilm] [--every 1]

Measures whether the recordings are valid orders of their graphs; AUC of validity between valid plans and plans spoilt
in one way, and between recordings without and with errors; how often reworded lines find their step, by threshold; and
what a single reference makes of another valid order. Writes benchmarks/results/graph_validity.json.
"""

import argparse
import json
import random
from collections import Counter, defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from graph_plans import SPOILT, Steps, finish, spoilt
from graph_study import SEED, Study, auc, open_study, performed, said_of, told
from graph_wordings import margins, wordings

from recipe.artifacts import write_json
from recipe.data.task_graphs import GoalGraph
from recipe.evaluation.judge.plans import Case
from recipe.evaluation.judge.proxy import ProxyJudge
from recipe.evaluation.matching import NearestStep, StepMatcher, ordered_f1, step_f1
from recipe.evaluation.validity.readings import GraphPlan, same_words, threshold_of
from recipe.stats import mean_interval, spearman
from recipe.types import Example, Procedure, Verdict

RESULT = Path(__file__).parent / "results" / "graph_validity.json"


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--every", type=int, default=1, help="Only each so manieth recording.")
    arguments = parser.parse_args()
    found = measure(arguments.folder, arguments.encoder, arguments.every)
    write_json(RESULT, found)
    print(json.dumps(found, indent=2))


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
    groups = {
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
    first = {step: index for index, step in reversed(list(enumerate(reading.plan)))}
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
