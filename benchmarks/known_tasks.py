"""How often a corpus says that it knows a task of another field, and that it does not know one that it tells.

    python benchmarks/known_tasks.py --data DATA [--speech NARRATIONS.jsonl] [--half development] [--name before]

Corpora are step lists of COIN (cooking; repair), CrossTask and YouCook2 in DATA, automatic speech of YouCook2, and
narrations of the embedded world, large and small. Told tasks are held-out videos of tasks of the corpus; tasks of other
fields are those of benchmarks/everyday_tasks.txt, of COIN's other domains and of the world's. Each has one step that is
done, two, or its goal alone. The limits were found on the development half: other goals of COIN, other videos, and the
list of the package. Runs under several names, such as that of an earlier version, are gathered in one file.
"""

import argparse
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from common import ROOT, add_json, table, write_result
from coverage_law import SharedIndex
from pool_size import listed

from recipe.artifacts import read_json, read_jsonl
from recipe.config import EncoderConfig, RewardConfig
from recipe.corpus.encoders import open_encoder
from recipe.data.benchmarks import BENCHMARKS
from recipe.data.coin import goal_of_class
from recipe.data.procedures import read_procedures
from recipe.reward.coverage import CoverageState, TaskPrompt
from recipe.reward.embeddings import StepEmbeddings
from recipe.reward.verifier import Verifier
from recipe.text import same_goal
from recipe.types import Narration, Procedure, Segment
from recipe.world.load import load_world
from recipe.world.narrator import narrate

STATES: dict[CoverageState, str] = {"known": "known", "partly": "in part", "unknown": "unknown"}
HALVES = ("development", "test")
LISTS = {
    "development": ROOT / "src" / "recipe" / "reward" / "everyday_tasks.txt",
    "test": ROOT / "benchmarks" / "everyday_tasks.txt",
}
COOKING = ("Dish", "Drink and Snack")
REPAIR = ("Vehicle", "Electrical Appliance", "Gadgets")
OTHER_DOMAINS = {
    "cooking": ("Vehicle", "Electrical Appliance", "Gadgets", "Furniture and Decoration", "Nursing and Care", "Sport"),
    "repair": ("Dish", "Drink and Snack", "Pets and Fruit", "Nursing and Care", "Sport"),
    "world": ("Nursing and Care", "Sport", "Drink and Snack", "Dish"),
}
"""COIN's domains that are other fields than those of a corpus; a domain that shares a task with them is in neither."""
NEAR_FIELDS = {
    "cooking": {"cooking", "baking", "drinks", "fishing", "parties", "cleaning", "vegetable garden", "nonsense"},
    "repair": {"car", "bicycle", "phones", "computers", "internet", "electrical", "lights and fans", "plumbing",
               "heating", "doors and windows", "jewellery", "snow and ice", "sewing", "nonsense"},
    "world": {"car", "bicycle", "electrical", "lights and fans", "plumbing", "doors and windows", "cleaning", "laundry",
              "ironing", "house painting", "floors and tiles", "furniture", "woodworking", "masonry", "heating",
              "snow and ice", "nonsense"},
}  # fmt: skip
"""Fields of the lists that may be those of a corpus. Nonsense is not counted as a task of a field."""
WORLD_DOMAINS = {"development": ("household",), "test": ("repair",)}


WORLD_OTHERS = {
    "cooking": ("first_aid", "repair", "crafts"),
    "repair": ("cooking", "first_aid", "gardening", "crafts"),
    "world": ("cooking", "first_aid", "gardening"),
}
PROMPTS = 150
"""Of each kind, at most."""
FORMS = {1: "1 step", 2: "2 steps", 0: "goal alone"}


class Case(NamedTuple):
    """A corpus, and held-out videos of its tasks."""

    name: str
    field: str
    narrations: Sequence[Narration]
    told: Sequence[TaskPrompt]


def main() -> None:
    """Count the states of both kinds of tasks against each corpus."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--speech", type=Path, help="narrations of YouCook2 with sentences, as JSON lines")
    parser.add_argument("--videos", type=int, default=1000, help="of --speech, at most")
    parser.add_argument("--half", choices=HALVES, default="test")
    parser.add_argument("--name", default="now", help="what this run is called in the table")
    add_json(parser, "audit-known_tasks")
    asked = parser.parse_args()
    encoder = open_encoder(EncoderConfig(name="minilm"))
    embeddings = StepEmbeddings(encoder, 1 << 20)
    found: dict[str, dict[str, Any]] = {}
    for case in cases(asked.data, asked.speech, asked.videos, asked.half):
        vectors = [embeddings.stacked([segment.text for segment in one.segments]) for one in case.narrations]
        corpus = SharedIndex(encoder, case.narrations, vectors)
        knows = Verifier(corpus, RewardConfig(verifier="grounded"), embeddings=embeddings).coverage
        kinds = {"told": drawn(case.told), "other fields": drawn(other_fields(asked.data, case.field, asked.half))}
        for done, form in FORMS.items():
            row: dict[str, Any] = {}
            for kind, prompts in kinds.items():
                cut = [replace(prompt, history=prompt.history[:done]) for prompt in prompts]
                counts = Counter(own.state for own in knows.of(cut) if own is not None)
                row |= {f"{kind}: {word}": 100 * counts[state] / len(cut) for state, word in STATES.items()}
            found[f"{case.name}, {form}"] = row
            print(f"{case.name:44} {form:10}", *(f"{value:5.1f}" for value in row.values()), flush=True)
        print({kind: len(prompts) for kind, prompts in kinds.items()}, flush=True)
    if asked.half == "development":
        return
    earlier = read_json(asked.json)["values"] if asked.json.is_file() else {}
    runs = {name: rows for name, rows in earlier.items() if name != "embedded world"} | {asked.name: found}
    write_result(
        asked.json,
        runs,
        title="Tasks that a corpus knows",
        guide="audit.md",
        body=body(runs),
        partial=asked.speech is None,
    )


def body(runs: dict[str, dict[str, dict[str, float]]]) -> list[str | dict[str, Any]]:
    """Of the run `now`, a row for each corpus; of other fields' tasks by the goal alone what most are called known."""
    rows: dict[str, dict[str, Any]] = {}
    for name, row in runs["now"].items():
        corpus, _, form = name.rpartition(", ")
        columns = {FORMS[1]: ("told", "other fields"), FORMS[0]: ("told",)}.get(form, ())
        for kind in columns:
            shares = (f"{row[f'{kind}: {word}']:.0f}" for word in STATES.values())
            rows.setdefault(corpus, {})[f"{kind}, {form}"] = "/".join(shares)
    most = max(row["other fields: known"] for name, row in runs["now"].items() if name.endswith(FORMS[0]))
    return [
        "Percent of prompts whose task is known/known in part/not known: of held-out videos of the corpus's tasks "
        f"(*told*), and of tasks of other fields. By the goal alone at most {most:.0f}% of these are called known.",
        table(rows, "corpus"),
    ]


def cases(data: Path, speech: Path | None, videos: int, half: str) -> Iterator[Case]:
    """The corpora of a half."""
    coin = [one for one in BENCHMARKS["coin"].read(data / "coin") if _half(one.goal) == half]
    domains = coin_domains(data)
    for field, own in (("cooking", COOKING), ("repair", REPAIR)):
        goals = sorted({one.goal for one in coin if domains[one.goal] in own})
        for name, few, lists in ((f"{field}, COIN", goals, 8), (f"{field}, COIN, 12 lists", goals[:6], 2)):
            yield step_lists(name, field, [one for one in coin if one.goal in few], lists)
        if field == "repair":
            yield step_lists("repair, COIN, 58 lists", field, [one for one in coin if one.goal in goals], 2, most=58)
    recipes = read_procedures(data / "youcook2" / "procedures.jsonl", "skip").procedures
    if half == "test":
        yield step_lists("cooking, CrossTask", "cooking", _cooked(BENCHMARKS["crosstask"].read(data / "crosstask")), 8)
    ours = [one for one in recipes if one.goal and _half_of_videos(one.video_id) == half]
    yield step_lists("cooking, recipes of YouCook2", "cooking", ours, 3, held_out=1)
    if speech is not None:
        yield from spoken(recipes, speech, videos, half)
    world, seed = load_world(), HALVES.index(half)
    goals = [goal for goal in world.goals if world.graph(goal).domain in WORLD_DOMAINS[half]]
    told = [TaskPrompt(goal, tuple(world.wordings[step][0] for step in world.graph(goal).after)) for goal in goals]
    for count in (1, 4):
        narrations = [one for goal in goals for one in narrate(world, count, seed=seed, goals=[goal])]
        named = [replace(one, video_id=f"{place}") for place, one in enumerate(narrations)]
        yield Case(f"{WORLD_DOMAINS[half][0]}, world, {len(named)} narrations", "world", named, told)


def step_lists(
    name: str, field: str, procedures: Sequence[Procedure], lists: int, most: int = 1 << 20, held_out: int = 4
) -> Case:
    """So many step lists of each goal, `most` in all, and as prompts `held_out` others of the same goals at most."""
    narrations, told = list[Narration](), list[TaskPrompt]()
    for goal, own in sorted(listed(procedures).items()):
        ranked = sorted(own, key=lambda one: zlib.crc32(one.narration.video_id.encode()))
        kept = ranked[held_out:][:lists]
        if kept and len(narrations) < most:
            narrations += [one.narration for one in kept]
            told += [TaskPrompt(goal, tuple(one.steps), one.narration.video_id) for one in ranked[:held_out]]
    return Case(
        f"{name}, {len(narrations[:most])} lists" if "lists" not in name else name, field, narrations[:most], told
    )


def spoken(recipes: Sequence[Procedure], speech: Path, videos: int, half: str) -> Iterator[Case]:
    """Large and small corpora of speech; told are recipes of videos of the half, less the prompt's own."""
    said = {row["video_id"]: [text for text in row["sentences"] if text.strip()] for _, row in read_jsonl(speech)}
    order = sorted(
        (name for name, texts in said.items() if len(texts) >= 5), key=lambda name: sha256(name.encode()).hexdigest()
    )
    known = {one.video_id: one for one in recipes if one.goal and len(one.steps) > 1}
    for count in (videos, 60, 12):
        # The development half has videos at even places; a large corpus of the test half has all.
        chosen = order[:count] if half == "test" and count == videos else order[HALVES.index(half) :: 2][:count]
        narrations = [Narration(name, tuple(map(Segment, said[name]))) for name in chosen]
        goals = Counter(same_goal(known[name].goal) for name in chosen if name in known)
        told = [
            TaskPrompt(one.goal, tuple(step.text for step in one.steps), name)
            for name, one in known.items()
            if _half_of_videos(name) == half and goals[same_goal(one.goal)] > (name in chosen)
        ]
        yield Case(f"cooking, speech of {len(chosen):,} videos", "cooking", narrations, told)


def other_fields(data: Path, field: str, half: str) -> list[TaskPrompt]:
    """Tasks of other fields than a corpus's: of the half's list, of COIN and of the world."""
    rows = [[part.strip() for part in line.split("|")] for line in LISTS[half].read_text(encoding="utf-8").splitlines()]
    prompts = [TaskPrompt(row[1], tuple(row[2:])) for row in rows if len(row) > 1 and row[0] not in NEAR_FIELDS[field]]
    domains, seen = coin_domains(data), Counter[str]()
    for one in BENCHMARKS["coin"].read(data / "coin"):
        if _half(one.goal) == half and domains[one.goal] in OTHER_DOMAINS[field] and "milk" not in one.goal:
            seen[one.goal] += 1
            if seen[one.goal] == 1 and len(one.steps) > 1:
                prompts.append(TaskPrompt(one.goal, tuple(step.text for step in one.steps)))
    world = load_world()
    graphs = [world.graph(goal) for goal in world.goals]
    return prompts + [
        TaskPrompt(own.goal, tuple(world.wordings[step][0] for step in own.after))
        for own in graphs
        if own.domain in WORLD_OTHERS[field] and _half(own.goal) == half
    ]


def drawn(prompts: Sequence[TaskPrompt]) -> list[TaskPrompt]:
    """At most `PROMPTS` of them, the same every time."""
    return sorted(prompts, key=lambda one: zlib.crc32(f"{one.goal}{one.history}".encode()))[:PROMPTS]


@cache
def coin_domains(data: Path) -> dict[str, str]:
    """The domain of each goal, from the first sheet of COIN's taxonomy."""
    with zipfile.ZipFile(data / "coin" / "taxonomy.xlsx") as book:
        strings, sheet = (book.read(f"xl/{name}").decode() for name in ("sharedStrings.xml", "worksheets/sheet1.xml"))
    texts = ["".join(re.findall(r"<t[^>]*>(.*?)</t>", one)) for one in re.findall(r"<si>(.*?)</si>", strings, re.S)]
    rows = [re.findall(r"<v>(\d+)</v>", row) for row in re.findall(r"<row .*?</row>", sheet, re.S)[1:]]
    return {goal_of_class(texts[int(row[1])]): texts[int(row[0])] for row in rows if len(row) > 1}


def _cooked(procedures: Sequence[Procedure]) -> list[Procedure]:
    return [one for one in procedures if one.goal.startswith(("Make", "Grill"))]


def _half(goal: str) -> str:
    return HALVES[int(sha256(f"h{goal}".encode()).hexdigest()[:8], 16) % 2]


def _half_of_videos(video_id: str) -> str:
    return HALVES[sha256(video_id.encode()).hexdigest() >= "8"]


if __name__ == "__main__":
    main()
