"""How often a corpus says that it knows a foreign task, and that it does not know one that it tells.

    python benchmarks/known_tasks.py CORPUS TASKS.jsonl [--name NAME]

TASKS are procedures or examples of tasks that CORPUS tells; those of benchmarks/foreign.txt are of other worlds. The
results of several corpora are gathered in one file, by their names.
"""

import argparse
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from common import ROOT, add_json, table, write_result

from recipe.artifacts import read_json
from recipe.audit.coverage import read_tasks, spread_prompts
from recipe.config import RewardConfig
from recipe.corpus.store import Corpus
from recipe.reward.coverage import TaskPrompt
from recipe.reward.verifier import Verifier

STATES = ("known", "partly", "unknown")


def main() -> None:
    """Count the states of both kinds of tasks, with a history and by the goal alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("tasks", type=Path)
    parser.add_argument("--name", default="corpus", help="what the corpus is called in the table")
    parser.add_argument("--prompts", type=int, default=120)
    add_json(parser, "audit-known_tasks")
    arguments = parser.parse_args()
    lines = (ROOT / "benchmarks" / "foreign.txt").read_text(encoding="utf-8").splitlines()
    rows = [[part.strip() for part in line.split("|")] for line in lines if line and not line.startswith("#")]
    foreign = [TaskPrompt(goal, (first, second)) for goal, first, second, *_ in rows]
    told = spread_prompts(read_tasks(arguments.tasks), 2)[: arguments.prompts]
    verifier = Verifier(Corpus.open(arguments.corpus), RewardConfig(verifier="grounded"))

    found: dict[str, Any] = {}
    for form in ("goal and history", "goal alone"):
        for kind, prompts in (("told", told), ("foreign", foreign)):
            asked = prompts if form == "goal and history" else [replace(prompt, history=()) for prompt in prompts]
            counts = Counter(own.state for own in verifier.coverage.of(asked) if own is not None)
            found[f"{form}, {kind}"] = {state: 100 * counts[state] / len(asked) for state in STATES}
    earlier = read_json(arguments.json)["values"] if arguments.json.is_file() else {}
    whole = earlier | {arguments.name: {"prompts": len(told), "foreign": len(foreign), "percent": found}}
    bodies = [
        table(
            {
                form: {state: f"{share:.1f}" for state, share in shares.items()}
                for form, shares in own["percent"].items()
            },
            f"{name}: {own['prompts']} told, {own['foreign']} foreign prompts",
        )
        for name, own in whole.items()
    ]
    write_result(
        arguments.json,
        whole,
        title="Tasks that a corpus knows",
        guide="audit.md",
        body=["Percent of prompts by state.", *bodies],
    )
    for form, shares in found.items():
        print(f"{form:26}", "  ".join(f"{state} {share:5.1f}" for state, share in shares.items()))


if __name__ == "__main__":
    main()
