"""How many narrations of a pool are about the task: what is counted, against what is known.

    python benchmarks/pool_size.py --data DATA [--speech NARRATIONS.jsonl]

Of the goals of one fold a corpus has 0 to 100 narrations, of all others up to 32. Two videos of each goal are asked
for, with one to three steps that are done and with the goal alone; they are in no corpus. Counted are the narrations of
the grounded reward's pool that `CorpusCoverage.narrations_about` names; true are those of the goal. Sources are the
embedded world, step lists of COIN and YouCook2 in DATA, and automatic speech of YouCook2. The rule was chosen on the
development half of the goals; the other half was looked at once.
"""

import argparse
import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import add_json, table, write_result
from coverage_law import SharedIndex

from recipe.artifacts import read_jsonl
from recipe.config import EncoderConfig, RewardConfig
from recipe.corpus.encoders import open_encoder
from recipe.corpus.near_copies import without_copies
from recipe.data.benchmarks import BENCHMARKS
from recipe.data.procedures import read_procedures
from recipe.reward.coverage import TaskPrompt
from recipe.reward.embeddings import StepEmbeddings, TextEncoder
from recipe.reward.verifier import Verifier
from recipe.types import Narration, Procedure, Segment
from recipe.world.load import load_world
from recipe.world.narrator import narrate

SIZES = (0, 1, 4, 8, 32, 100)
OTHERS, ASKED = 32, 2
"""Narrations of goals that lose none, at most, and videos of each goal that are asked for."""
HALVES = ("development", "test")


class Told(NamedTuple):
    """A narration, and the steps of its video as an annotator writes them."""

    narration: Narration
    steps: Sequence[str]


Source = dict[str, list[Told]]
"""By goal."""


def main() -> None:
    """Count in all sources, print the tables, and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--speech", type=Path, help="narrations of YouCook2 with sentences, as JSON lines")
    parser.add_argument("--goals", type=int, default=30, help="of each source, at most")
    add_json(parser, "audit-pool_size")
    asked = parser.parse_args()
    recipes = read_procedures(asked.data / "youcook2" / "procedures.jsonl", "skip").procedures
    sources = {
        "world": world(),
        "lists of COIN": listed(BENCHMARKS["coin"].read(asked.data / "coin")),
        "lists of YouCook2": listed(recipes),
    }
    if asked.speech is not None:
        sources["speech of YouCook2"] = spoken(recipes, asked.speech)
    encoder = open_encoder(EncoderConfig(name="minilm"))
    embeddings = StepEmbeddings(encoder, 1 << 20)
    values: dict[str, dict[str, Any]] = {half: {} for half in HALVES}
    for name, source in sources.items():
        enough = [goal for goal, own in source.items() if len(own) > ASKED]
        chosen = sorted(enough, key=lambda goal: zlib.crc32(f"chosen{goal}".encode()))[: asked.goals]
        kept = {goal: source[goal] for goal in chosen}
        for half, row, counted in measure(kept, encoder, embeddings):
            values[half][f"{name}, {row}"] = counted
            print(f"{half:12} {name}, {row:5}", counted, flush=True)
    titles = {half: f"{half.capitalize()} half of the goals" for half in HALVES}
    write_result(
        asked.json,
        values,
        title="Narrations about the task",
        guide="audit.md",
        body=[
            "*True* and *counted* are means over prompts, of the narrations in the pool, a copy once. *Error* is the "
            "median of their difference, *none* the percentage of prompts for which none is counted. Precision is that "
            "of prompts for which some are.",
            *(table(values[half], "source, narrations of the goal", titles[half]) for half in HALVES),
        ],
        partial=asked.speech is None,
    )


def world() -> Source:
    """Narrations of each goal, and its steps in file order in the first wording."""
    own = load_world()
    return {
        goal: [
            Told(narration, [own.wordings[step][0] for step in own.graph(goal).after])
            for narration in narrate(own, SIZES[-1] + ASKED, seed=zlib.crc32(goal.encode()), goals=[goal])
        ]
        for goal in own.goals
    }


def listed(procedures: Sequence[Procedure]) -> Source:
    """Step lists as narrations."""
    lists: Source = {}
    for one in (one for one in procedures if one.goal and len(one.steps) > 1):
        texts = [step.text for step in one.steps]
        lists.setdefault(one.goal, []).append(Told(Narration(one.video_id, tuple(map(Segment, texts))), texts))
    return lists


def spoken(procedures: Sequence[Procedure], file: Path) -> Source:
    """What is said in the videos of procedures, 16 of a goal at most."""
    known = {one.video_id: one for one in procedures if one.goal and len(one.steps) > 1}
    speech: Source = {}
    for _, row in read_jsonl(file):
        said = tuple(Segment(text) for text in row["sentences"] if text.strip())
        if (one := known.get(row["video_id"])) is None or len(said) < 5 or len(speech.get(one.goal, ())) >= 16:
            continue
        steps = [step.text for step in one.steps]
        speech.setdefault(one.goal, []).append(Told(Narration(one.video_id, said), steps))
    return speech


def measure(
    source: Source, encoder: TextEncoder, embeddings: StepEmbeddings
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Half, number of narrations, and what is counted."""
    ordered = {goal: sorted(own, key=lambda told: zlib.crc32(told.narration.video_id.encode()))
               for goal, own in sorted(source.items())}  # fmt: skip
    embeddings.by_text(sorted({s.text for own in ordered.values() for told in own for s in told.narration.segments}))
    most = max(len(own) for own in ordered.values()) - ASKED
    for size in (size for size in SIZES if size <= most):
        counts: dict[str, list[tuple[int, int, int]]] = {half: [] for half in HALVES}
        for fold in (0, 1):
            kept, prompts = list[tuple[str, Narration]](), list[tuple[str, TaskPrompt]]()
            for goal, own in ordered.items():
                rest = [(goal, told.narration) for told in own[ASKED:]]
                if zlib.crc32(f"fold{goal}".encode()) % 2 != fold:
                    kept += rest[:OTHERS]
                    continue
                kept += rest[:size]
                if len(rest) >= size:
                    cuts = [1 + random.Random(f"{goal} {i}").randrange(3) for i in range(ASKED)]
                    histories = [tuple(told.steps[:cut]) for told, cut in zip(own, cuts, strict=False)]
                    prompts += [(goal, TaskPrompt(goal, history)) for history in (*histories, ())]
            narrations = [narration for _, narration in kept]
            vectors = [embeddings.stacked([segment.text for segment in one.segments]) for one in narrations]
            corpus = SharedIndex(encoder, narrations, vectors)
            verifier = Verifier(corpus, RewardConfig(verifier="grounded"), embeddings=embeddings)
            for goal, prompt in prompts:
                [reward] = verifier.score(goal=goal, history=prompt.history, continuations=[()])
                pool = [hit.narration for hit in reward.pool]
                about = verifier.coverage.narrations_about(prompt, pool)
                true = {number for number in pool if kept[number][0] == goal}
                half = HALVES[zlib.crc32(f"half{goal}".encode()) % 2]
                texts = [" ".join(segment.text for segment in narrations[number].segments) for number in true]
                counts[half].append((len(without_copies(texts)), len(about), len(true & about.keys())))
        for half, rows in counts.items():
            if not rows:
                continue
            true, counted, both = np.array(rows, np.float64).T
            named, told = counted > 0, true > 0
            yield half, str(size), {
                "prompts": len(rows),
                "true": float(true.mean()),
                "counted": float(counted.mean()),
                "precision": float((both[named] / counted[named]).mean()) if named.any() and size else None,
                "recall": float((both[told] / true[told]).mean()) if told.any() else None,
                "error": float(np.median(np.abs(counted - true))),
                "none": 100 * float((~named).mean()),
            }  # fmt: skip


if __name__ == "__main__":
    main()
