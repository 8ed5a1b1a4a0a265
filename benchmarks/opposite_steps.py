"""How well words tell opposites from the same step, and what that changes in the planner page.

    python benchmarks/opposite_steps.py CORPUS [--procedures FILE] [--show N]

Texts are those of opposites.txt and opposites_said.txt; nobody who wrote the latter knew the words of
`recipe.explain.opposites`. "Taken for done" is the planner page's check of what was done, by the encoder of CORPUS
alone and with the words. With --procedures, true plans are aligned with the corpus: of the segments that would be
quoted as evidence, the share that the words leave out. These are false alarms, but for segments that do say the
opposite; --show prints some to be read.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from common import add_json, table, write_result

from recipe.config import RewardConfig
from recipe.corpus.store import Corpus
from recipe.data.procedures import read_procedures
from recipe.data.supervision import cut_at
from recipe.explain.explain import CLOSE, step_grounds
from recipe.explain.opposites import says_opposite
from recipe.reward.coverage import TaskPrompt
from recipe.reward.scorer import PromptGroup
from recipe.reward.verifier import Verifier
from recipe_apps.serving import evidence
from recipe_apps.serving.evidence import CorpusEvidence

FOLDER = Path(__file__).parent
Pairs = list[tuple[str, str]]
SEED = 0


def read_lists() -> dict[str, tuple[Pairs, Pairs]]:
    """Pairs of opposites, and pairs of the same step, of each list."""
    lists = dict[str, tuple[Pairs, Pairs]]()
    name = ""
    for line in (FOLDER / "opposites_said.txt").read_text(encoding="utf-8").split("\n"):
        if line.startswith("#"):
            name = line[2:].split(":")[0]
        elif line:
            step, opposite, same = line.split(" | ")
            opposites, alike = lists.setdefault(f"said, {name}", ([], []))
            opposites.append((step, opposite))
            alike.append((step, same))
    written, reworded = lists.setdefault("written", ([], [])), lists.setdefault("written, in other words", ([], []))
    for line in (FOLDER / "opposites.txt").read_text(encoding="utf-8").split("\n"):
        if line and not line.startswith("#"):
            step, opposite, step_again, opposite_again = line.split(" | ")
            written[0].append((step, opposite))
            reworded[0].append((step, opposite_again))
            written[1].append((step, step_again))
            reworded[1].append((opposite, opposite_again))
    return lists


def share(pairs: Pairs, taken: Callable[[str, str], bool]) -> float:
    return 100 * float(np.mean([taken(step, text) for step, text in pairs]))


def of_evidence(verifier: Verifier, procedures: Path, prompts: int) -> tuple[dict[str, int], Pairs]:
    """Of true plans: segments near enough to be quoted, those that the words leave out, and these with their steps."""
    read = read_procedures(procedures, on_bad="skip").procedures
    examples = [cut_at(own, len(own.steps) // 2) for own in read if len(own.steps) > 3]
    chosen = np.random.default_rng(SEED).permutation(len(examples))[:prompts]
    groups = [PromptGroup(examples[i].goal, examples[i].history, [examples[i].continuation]) for i in sorted(chosen)]
    quoted, steps, left_out = 0, 0, Pairs()
    for group, pool in zip(groups, verifier.align_groups(groups), strict=True):
        prompt, numbers = TaskPrompt(group.goal, group.history), [aligned.hit.narration for aligned in pool]
        about = verifier.coverage.narrations_about(prompt, numbers)
        for number, step in enumerate(group.plans[0], start=len(group.history)):
            grounds = step_grounds(number, step, pool, about, verifier.corpus)
            near = [own for own in grounds if own.similarity >= CLOSE]
            quoted += len(near)
            steps += 1
            for ground in near:
                if ground.opposite:
                    left_out.append((step, verifier.corpus.narration(ground.narration).segments[ground.segment].text))
    return {"prompts": len(groups), "steps": steps, "quoted": quoted, "left out": len(left_out)}, left_out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--procedures", type=Path, help="true plans whose evidence is looked at")
    parser.add_argument("--prompts", type=int, default=300)
    parser.add_argument("--show", type=int, default=0, metavar="N", help="print N segments that are left out")
    add_json(parser, "planning-opposites")
    arguments = parser.parse_args()
    verifier = Verifier(Corpus.open(arguments.corpus), RewardConfig(verifier="grounded"))
    judge = CorpusEvidence(verifier)

    def done(step: str, text: str) -> bool:
        return judge.same([text], [step]) == [0]

    rows: dict[str, dict[str, Any]] = {}
    for name, (opposites, alike) in read_lists().items():
        with patch.object(evidence, "says_opposite", lambda *_: False):
            before = share(opposites, done), share(alike, done)
        rows[name] = {
            "pairs": len(opposites),
            "opposites found by words": share(opposites, says_opposite),
            "same step called opposite": share(alike, says_opposite),
            "opposites taken for done, before": before[0],
            "now": share(opposites, done),
            "same step taken for done, before": before[1],
            "now, same step": share(alike, done),
        }
    values: dict[str, Any] = {"lists": rows}
    body: list[Any] = ["Shares in %.", table(rows, "list")]
    if arguments.procedures is not None:
        counts, left_out = of_evidence(verifier, arguments.procedures, arguments.prompts)
        values["evidence"] = counts
        body.append(
            f"True plans of {counts['prompts']} prompts with {counts['steps']} steps: of {counts['quoted']:,} segments "
            f"that are near enough to be quoted, the words leave out {counts['left out']} "
            f"({100 * counts['left out'] / counts['quoted']:.2f}%)."
        )
        for index in np.random.default_rng(SEED).permutation(len(left_out))[: arguments.show]:
            print(*left_out[index], sep=" | ")
    write_result(
        arguments.json, values, title="Opposites are no evidence, and nothing done", guide="planning.md", body=body
    )
    print(*(f"{name}: {row}" for name, row in rows.items()), sep="\n")


if __name__ == "__main__":
    main()
