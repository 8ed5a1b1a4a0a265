"""What a self-trained reward gains over the grounded one that it stands on, set by set.

    python benchmarks/self_trained.py --data DATA --speech corpora/youcook2-speech --world runs/demo

DATA holds the folders of the benchmarks, as `recipe data` reads them, and `youcook2/procedures.jsonl`. The speech
corpus is built from narrations of YouCook2 by `recipe corpus build`; its titles are the goals of the videos. Sets:

    lists-dev    60 training videos of COIN and 40 of CrossTask, against 8 lists of other training videos a task and the
                 recipes of YouCook2's training videos; settings were chosen on it
    speech-dev   80 training videos of YouCook2, whose narrations leave the corpus of speech; the same
    lists        test videos of COIN and CrossTask, with 8 lists of training videos a task
    speech       validation videos of YouCook2 against the speech of its training videos
    niv, captaincook4d   test videos, with 8 lists a task where there are as many
    world        the best of 10 plans of the demo's base model, by exact validity

Each reward is trained on its own corpus by `recipe.mining.self_training`; no annotation of a set is read. Differences
are paired by prompt, with intervals by goal. A choice is the best of 16 edited true continuations, by F1 in order.
"""

import argparse
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import add_json, table, write_result
from coverage_law import SharedIndex
from numpy.typing import NDArray

from recipe.alignment import backends
from recipe.audit.classes import CORRUPTIONS, GROUP_OF, GROUPS
from recipe.audit.perturb import ALTERNATIVE, TRUE, AuditPrompt, build_prompts, select
from recipe.audit.score import prompt_means, wins
from recipe.config import EncoderConfig, RewardConfig
from recipe.corpus.encoders import open_encoder
from recipe.corpus.store import Corpus
from recipe.data.benchmarks import read_benchmarks, require_benchmarks
from recipe.data.examples import read_examples
from recipe.data.procedures import read_procedures
from recipe.mining.pseudo_prompts import PartOfCorpus, edited_plans, foreign_steps, other_words
from recipe.mining.self_training import PairKind, PseudoPrompt, compute_numbers, pseudo_set, run_gate, train
from recipe.planning.prediction_files import read_predictions
from recipe.reward.embeddings import NarrationIndex, StepEmbeddings, Vectors
from recipe.reward.grounded import GroundedMethod
from recipe.reward.plan_features import plan_features
from recipe.reward.scorer import PromptGroup, Steps, score_or_raise
from recipe.reward.self_trained import PositionModel, SelfTrained
from recipe.stats import mean_interval
from recipe.text import same_goal
from recipe.types import Narration, Procedure, Segment
from recipe.world.load import load_world
from recipe.world.validity import ValidityScorer

CONFIG = RewardConfig(verifier="grounded")
WAYS: dict[str, tuple[PairKind, ...]] = {
    "classes, edits": ("classes", "edits"),
    "classes": ("classes",),
    "edits": ("edits",),
}
"""What the nets learn from; the first is what the command does."""
CHOSEN, SAMPLED, COVERING = 16, 100, 8
DEVELOPED = ("lists-dev", "speech-dev")
SETS = (*DEVELOPED, "lists", "speech", "niv", "captaincook4d")
DIFFERENT = "left out in turn"


class AuditSet(NamedTuple):
    """Prompts and the corpus that they are audited on."""

    prompts: list[AuditPrompt]
    corpus: NarrationIndex


class Scored(NamedTuple):
    """One prompt's plans, their grounded rewards and numbers."""

    prompt: AuditPrompt
    plans: list[Steps]
    totals: NDArray[np.float64]
    numbers: NDArray[np.float32]

    def rewards(self, trained: SelfTrained | None, grounded: bool = True) -> dict[Steps, float]:
        """The reward of each plan, with a net where there is one."""
        shares = np.zeros(len(self.plans)) if trained is None else trained.shares(self.numbers)
        shares[[not plan for plan in self.plans]] = 0.0
        return dict(zip(self.plans, map(float, self.totals * grounded + shares), strict=True))


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--speech", type=Path, help="corpus of YouCook2's speech; without it those sets are left out")
    parser.add_argument("--world", type=Path, help="folder of `recipe demo`; without it the world is left out")
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    add_json(parser, "reward-self_trained")
    arguments = parser.parse_args()
    embeddings = StepEmbeddings(open_encoder(EncoderConfig(name="minilm")), 1 << 20)
    speech = None if arguments.speech is None else Corpus.open(arguments.speech)
    measured = {
        name: measure(name, audit_set(name, arguments.data, embeddings, speech), embeddings)
        for name in arguments.sets
        if speech is not None or not name.startswith("speech")
    }
    world = None if arguments.world is None else measure_world(arguments.world, embeddings)
    write(arguments.json, measured, world, partial=len(measured) < len(SETS) or world is None)


def write(target: Path, measured: Mapping[str, Any], world: Mapping[str, Any] | None, partial: bool) -> None:
    """Write all figures as a result."""
    body: list[Any] = [
        "Percent; MEAN / WORST of the audit's classes. Settings were chosen on the sets named dev; each other set was "
        "looked at once. In the first table, nets learn from the audit's classes and edits, as the command does."
    ]
    rows = {
        name: {
            "prompts": one["prompts"],
            "grounded": one["grounded"]["figure"],
            "with the net": one["ways"][first_way()]["figure"],
            "difference": one["ways"][first_way()]["difference"],
            "alternative": f"{one['grounded']['alternative']} to {one['ways'][first_way()]['alternative']}",
            "gate": "use" if one["gate"]["use"] else "do not use",
        }
        for name, one in measured.items()
    }
    body.append(table(rows, "set", "With a self-trained net"))
    rows = {
        name: {way: f"{own['figure']}, {own['difference']}" for way, own in one["ways"].items()}
        | ({DIFFERENT: f"{one['left']['figure']}, {one['left']['difference']}"} if "left" in one else {})
        for name, one in measured.items()
    }
    body.append(table(rows, "set", "By what the nets learn from; in the last column no class of the group measured"))
    rows = {name: one["choice"] for name, one in measured.items()}
    body.append(table(rows, "set", f"F1 in order of the best of {CHOSEN} edited true continuations"))
    rows = {
        f"{name}: {line['measure']}": {key: line[key] for key in ("grounded", "with the net", "difference", "prompts")}
        for name, one in measured.items()
        for line in one["gate"]["rows"]
    }
    body.append(table(rows, "set", "The reward's own test, on pseudo-prompts of goals that the nets have not seen"))
    if world is not None:
        body.append(
            table(world["rows"], "chosen by", f"Exact validity of the best of 10 plans, {world['prompts']} prompts")
        )
    write_result(
        target,
        {"sets": dict(measured), "world": world},
        title="A self-trained reward",
        guide="reward.md",
        body=body,
        partial=partial,
    )


def first_way() -> str:
    """What the command learns from."""
    return next(iter(WAYS))


def audit_set(name: str, data: Path, embeddings: StepEmbeddings, speech: NarrationIndex | None) -> AuditSet:
    """The prompts and the corpus of a set."""
    recipes = list(read_procedures(data / "youcook2" / "procedures.jsonl", on_bad="skip").procedures)
    if name.startswith("speech"):
        assert speech is not None
        told = {speech.narration(number).video_id: number for number in range(len(speech))}
        if name == "speech-dev":
            known = [one for one in recipes if one.split == "train" and one.video_id in told]
            prompts = build_prompts(select(known, 0, 80), embeddings.stacked, 0)
            return AuditSet(prompts, PartOfCorpus(speech, [told[prompt.video_id] for prompt in prompts]))
        tests = [one for one in recipes if one.split in ("val", "validation") and one.video_id not in told]
        return AuditSet(build_prompts(select(tests, 0, 100), embeddings.stacked, 0), speech)

    limits = {"niv": 100, "captaincook4d": 60} if name in ("niv", "captaincook4d") else {"coin": 60, "crosstask": 40}
    prompts, covering = [], list[Procedure]()
    for source, limit in limits.items():
        if source != name and name in ("niv", "captaincook4d"):
            continue
        procedures = read_benchmarks(require_benchmarks(data, [source]))
        splits = ("train",) if name == "lists-dev" else ("test", "val") if source == "captaincook4d" else ("test",)
        audited = [one for one in procedures if one.split in splits]
        own = build_prompts(select(audited, 0, limit), embeddings.stacked, 0)
        prompts += own
        covering += _covering(procedures, own)
    chosen = [one for one in recipes if one.split == "train"] + covering
    narrations = [Narration(one.video_id, tuple(Segment(step.text) for step in one.steps), one.goal) for one in chosen]
    embeddings.by_text([segment.text for one in narrations for segment in one.segments])
    stacks = [embeddings.stacked([segment.text for segment in one.segments]) for one in narrations]
    return AuditSet(prompts, SharedIndex(_Encoder(embeddings), narrations, stacks))


class _Encoder:
    """The encoder behind embeddings that are kept."""

    def __init__(self, embeddings: StepEmbeddings) -> None:
        self._embeddings = embeddings

    def encode(self, texts: Sequence[str]) -> Vectors:
        return self._embeddings.stacked(texts)


def _covering(procedures: Sequence[Procedure], prompts: Sequence[AuditPrompt]) -> Iterator[Procedure]:
    """The first 8 training videos of each audited task by a hash of their ids, none of them audited."""
    audited = {prompt.video_id for prompt in prompts}
    left = dict.fromkeys((same_goal(prompt.goal) for prompt in prompts), COVERING)
    for one in sorted(procedures, key=_digest):
        if (
            one.split == "train"
            and one.video_id not in audited
            and len(one.steps) > 1
            and left.get(same_goal(one.goal))
        ):
            left[same_goal(one.goal)] -= 1
            yield one


def _digest(procedure: Procedure) -> str:
    return hashlib.sha256(procedure.video_id.encode()).hexdigest()


def measure(name: str, audited: AuditSet, embeddings: StepEmbeddings) -> dict[str, Any]:
    """All figures of a set."""
    prompts, index = audited
    found = pseudo_set(index, CONFIG)
    places = compute_numbers(found, index, CONFIG, None)
    foreign = foreign_steps(prompts, embeddings.stacked)
    reworded = other_words(index, embeddings.stacked, [step for p in prompts for step in (*p.history, *p.true)])
    edits = [edited_plans(prompt, own, reworded, CHOSEN, 5) for prompt, own in zip(prompts, foreign, strict=True)]
    scored = scored_prompts(index, prompts, [[plan.steps for plan in own] for own in edits], places, embeddings)
    goals = [same_goal(prompt.goal) for prompt in prompts]
    before = win_shares(scored, None)
    values: dict[str, Any] = {
        "prompts": len(prompts),
        "narrations": len(index),
        "kind": found.pseudo.kind,
        "pseudo_prompts": len(found.prompts),
        "grounded": {"figure": figure(before), "alternative": alternative(scored, None)},
        "ways": {},
    }
    chosen = [_chosen(one, own, None) for one, own in zip(scored, edits, strict=True)]
    values["choice"] = {
        "random": float(np.mean([np.mean([plan.quality for plan in own]) for own in edits])),
        "best": float(np.mean([max(plan.quality for plan in own) for own in edits])),
        "grounded": float(np.mean(chosen)),
    }
    for way, kinds in WAYS.items():
        trained = train(found.prompts, places, kinds=kinds)
        after = win_shares(scored, trained)
        values["ways"][way] = {
            "figure": figure(after),
            "difference": difference(prompt_means(after) - prompt_means(before), goals),
            "alternative": alternative(scored, trained),
            "classes": dict(zip(CORRUPTIONS, map(float, np.nanmean(after, axis=0)), strict=True)),
        }
        with_net = np.array([_chosen(one, own, trained) for one, own in zip(scored, edits, strict=True)])
        values["choice"][f"net: {way}"] = f"{with_net.mean():.3f}, {difference(with_net - chosen, goals, 3)}"
    if name in DEVELOPED:
        left = left_out(found.prompts, scored, places)
        gained = prompt_means(left) - prompt_means(before)
        values["left"] = {"figure": figure(left), "difference": difference(gained, goals)}
    gate = run_gate(found.prompts, places)
    lines = [
        {
            "measure": row.measure,
            "grounded": f"{100 * row.grounded:.1f}",
            "with the net": f"{100 * row.with_net.mean:.1f}",
            "difference": f"{100 * row.difference.mean:+.1f}" + _ends(row.difference.low, row.difference.high, 100, 1),
            "prompts": row.difference.observations,
        }
        for row in gate.rows
    ]
    values["gate"] = {"use": gate.use, "reason": gate.reason, "rows": lines}
    print(name, {key: value for key, value in values.items() if key != "ways"}, flush=True)
    for way, own in values["ways"].items():
        print("  ", way, own["figure"], own["difference"], "alternative", own["alternative"], flush=True)
    return values


def scored_prompts(
    index: NarrationIndex,
    prompts: Sequence[AuditPrompt],
    further: Sequence[Sequence[Steps]],
    places: PositionModel,
    embeddings: StepEmbeddings,
) -> list[Scored]:
    """All plans of each prompt, with their numbers."""
    method, scored = GroundedMethod(index, CONFIG, backends.load("auto")), []
    for prompt, more in zip(prompts, further, strict=True):
        plans = list(dict.fromkeys([*prompt.variants.values(), *more]))
        group = PromptGroup(prompt.goal, prompt.history, plans)
        [(rewards, alignment)] = method.rewards_and_alignments([group], embeddings.by_text(method.texts(group)))
        numbers = plan_features(alignment, rewards, places(alignment.texts.vectors))
        scored.append(Scored(prompt, plans, np.array([reward.total for reward in rewards]), numbers))
    return scored


def win_shares(scored: Sequence[Scored], trained: SelfTrained | None) -> NDArray[np.float64]:
    """Whether the true continuation wins, [prompts, classes]; NaN where a prompt has no plan of a class."""
    rows = []
    for one in scored:
        rewards, variants = one.rewards(trained), one.prompt.variants
        true = rewards[variants[TRUE]]
        rows.append([wins(true, rewards[variants[name]]) if name in variants else np.nan for name in CORRUPTIONS])
    return np.array(rows, np.float64)


def left_out(prompts: Sequence[PseudoPrompt], scored: Sequence[Scored], places: PositionModel) -> NDArray[np.float64]:
    """The shares of each group's classes by nets that no class of the group was shown to, nor any edit."""
    shares = np.full((len(scored), len(CORRUPTIONS)), np.nan)
    for group in GROUPS:
        others = [
            replace(one, prompt=replace(one.prompt, variants=_without(one.prompt.variants, group))) for one in prompts
        ]
        after = win_shares(scored, train(others, places, kinds=("classes",)))
        for column, name in enumerate(CORRUPTIONS):
            if GROUP_OF[name] == group:
                shares[:, column] = after[:, column]
    return shares


def _without(variants: Mapping[str, Steps], group: str) -> dict[str, Steps]:
    return {name: plan for name, plan in variants.items() if GROUP_OF.get(name) != group}


def alternative(scored: Sequence[Scored], trained: SelfTrained | None) -> str:
    """In how many of 100 prompts the true continuation beats another true one."""
    shares = []
    for one in scored:
        if ALTERNATIVE in one.prompt.variants:
            rewards = one.rewards(trained)
            shares.append(wins(rewards[one.prompt.true], rewards[one.prompt.variants[ALTERNATIVE]]))
    return f"{100 * np.mean(shares):.0f}" if shares else "-"


def _chosen(one: Scored, edits: Sequence[Any], trained: SelfTrained | None) -> float:
    """The quality of the edited plan with the highest reward."""
    rewards = one.rewards(trained)
    return float(max(edits, key=lambda plan: rewards[plan.steps]).quality)


def figure(shares: NDArray[np.float64]) -> str:
    """MEAN / WORST over classes, in percent."""
    known = [column[np.isfinite(column)].mean() for column in shares.T if np.isfinite(column).any()]
    return f"{100 * np.mean(known):.1f} / {100 * min(known):.0f}"


def difference(values: NDArray[np.float64], goals: Sequence[str], digits: int = 1) -> str:
    """A paired difference with its interval, in percent where it is one of shares."""
    interval = mean_interval(values, goals)
    scale = 100 if digits == 1 else 1
    return f"{scale * interval.mean:+.{digits}f}" + _ends(interval.low, interval.high, scale, digits)


def _ends(low: float | None, high: float | None, scale: int, digits: int) -> str:
    if low is None or high is None:
        return ""
    return f" [{scale * low:+.{digits}f}, {scale * high:+.{digits}f}]"


def measure_world(run: Path, embeddings: StepEmbeddings) -> dict[str, Any]:
    """The validity of what each reward chooses among the base model's plans."""
    corpus, validity = Corpus.open(run / "corpus"), ValidityScorer(load_world())
    found = pseudo_set(corpus, CONFIG)
    places = compute_numbers(found, corpus, CONFIG, None)
    examples = read_examples(run / "data" / "test.jsonl")
    examples = examples[:: max(len(examples) // SAMPLED, 1)][:SAMPLED]
    sampled: dict[str, list[Steps]] = {}
    for prediction in read_predictions(run / "predictions" / "base.jsonl"):
        sampled.setdefault(prediction.example_id, []).append(prediction.steps)
    prompts = [AuditPrompt(one.goal, "world", one.video_id, one.history, {TRUE: one.continuation}) for one in examples]
    plans = [sampled[one.example_id] for one in examples]
    scored = scored_prompts(corpus, prompts, plans, places, embeddings)
    groups = [PromptGroup(one.goal, one.history, own) for one, own in zip(prompts, plans, strict=True)]
    valid = [
        {plan: reward.total for plan, reward in zip(group.plans, rewards, strict=True)}
        for group, rewards in zip(groups, score_or_raise(validity, groups), strict=True)
    ]
    goals = [same_goal(prompt.goal) for prompt in prompts]
    before = np.array([_best_plan(one, own, None) for one, own in zip(scored, valid, strict=True)])
    rows: dict[str, Any] = {
        "chance, of different plans": {"validity": float(np.mean([np.mean([*own.values()]) for own in valid]))},
        "exact validity": {"validity": float(np.mean([max(own.values()) for own in valid]))},
        "grounded": {"validity": float(before.mean())},
    }
    for way, kinds in WAYS.items():
        trained = train(found.prompts, places, kinds=kinds)
        after = np.array([_best_plan(one, own, trained) for one, own in zip(scored, valid, strict=True)])
        rows[f"net: {way}"] = {"validity": float(after.mean()), "difference": difference(after - before, goals, 3)}
    gate = run_gate(found.prompts, places)
    print("world", rows, gate.use, gate.reason, flush=True)
    return {"prompts": len(prompts), "rows": rows, "gate": {"use": gate.use, "reason": gate.reason}}


def _best_plan(one: Scored, valid: Mapping[Steps, float], trained: SelfTrained | None) -> float:
    """The validity of the plan with the highest reward, the first of equals."""
    rewards = one.rewards(trained)
    return valid[max(valid, key=rewards.__getitem__)]


if __name__ == "__main__":
    main()
