"""Two systems on the same prompts: score the plans of both by a measure, compare them, and write one page.

python examples/evaluate_two_systems.py
"""

import json
import subprocess
import sys
from pathlib import Path

FOLDER = Path("evaluations")
STEPS = {
    "make tea": [
        "boil the water",
        "warm the pot",
        "add the tea leaves",
        "pour the water",
        "wait three minutes",
        "strain it",
    ],
    "fry an egg": ["heat a pan", "melt some butter", "crack the egg", "fry it slowly", "salt it", "serve it"],
    "patch a tube": [
        "take the wheel off",
        "pull out the tube",
        "find the hole",
        "sand it",
        "glue the patch",
        "inflate it",
    ],
}


def recipe(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "recipe", *words], cwd=FOLDER, check=True)


def write(name: str, rows: list[dict]) -> None:
    (FOLDER / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


FOLDER.mkdir(exist_ok=True)
examples = [
    {"example_id": f"mine/{goal}/{cut}", "source": "mine", "video_id": goal, "goal": goal, "history": steps[:cut],
     "continuation": steps[cut:], "cut": cut, "split": "test"}
    for goal, steps in STEPS.items() for cut in (1, 2, 3)
]  # fmt: skip
write("examples.jsonl", examples)
# In place of these, what your systems wrote (docs/evaluation.md): an example_id and a list of steps a line.
write("careful.jsonl", [{"example_id": row["example_id"], "steps": row["continuation"]} for row in examples])
write("hasty.jsonl", [{"example_id": row["example_id"], "steps": row["continuation"][-1:]} for row in examples])
for system in ("careful", "hasty"):
    recipe("evaluate", "match", f"{system}.jsonl", "--examples", "examples.jsonl", "--output", f"{system}.json")
recipe("evaluate", "compare", "careful.json", "hasty.json")
recipe("report", "careful.json", "hasty.json", "--examples", "examples.jsonl", "--output", "report.html")
