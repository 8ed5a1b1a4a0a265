"""Write the generated end of docs/paper.md from the regimes and scales; `--check` fails when it is stale.

The check also fails where the page names a place that is not in the code.
"""

import ast
import re
import sys
from pathlib import Path
from textwrap import fill

from results import write_pages

from recipe.config import GRPOConfig, SFTConfig
from recipe_studies.reproduce.study import names, regime, scale, training_config
from recipe_studies.reproduce.tables import TABLES

WIDTH = 160
ROOT = Path(__file__).parents[1]
TARGET = Path(__file__).with_name("paper.md")
BEGIN, END = "<!-- generated -->\n", "<!-- /generated -->\n"
PLACE = re.compile(r"`([\w/]+\.py):(\w+)`")
PATHS = {"model": "m", "examples": "e", "output": "o"}
OURS = ("eighth", "quarter", "half", "phi", "grounded")
"""Ends of the names of regimes that no table of the paper has; so have those that begin with `pool`."""
SCALES = ("0.5b", "3b", "7b")
"""Of the paper."""
GPUS, HOURS = 2, 48
"""That train, of the four, and two days (appendix A.5)."""


def missing_places(text: str) -> list[str]:
    """The places of a text that no file below `src` has."""
    absent = []
    for file, name in PLACE.findall(text):
        path = ROOT / "src" / file
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if path.is_file() else ()
        known = {name for node in nodes for name in _names(node)}
        if name not in known:
            absent.append(f"{file}:{name}")
    return absent


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def runs_of_rl(name: str) -> int:
    """Runs of RL that the paper's tables and figures have at a scale, each once."""
    papers = [paper for paper in TABLES if paper.name != "weak" or name == "3b"]
    rewarded = {own for paper in papers for own in paper.regimes if regime(own).grpo is not None}
    printed = {own for own in rewarded if not own.endswith(OURS) and not own.startswith("pool")}
    printed -= {"rl-weak-0", "ablation-gate-plain"}  # that is `rl`, and another reading of `ablation-gate`
    if name == "3b":
        return len(printed)
    return len({own for own in printed if not own.startswith(("ablation", "video"))} | {"rl-weak-100"})


def step_bounds() -> tuple[int, int]:
    """Steps of a run if all the paper's hours of training went to RL, and if half of them did."""
    seconds = sum(runs_of_rl(name) * scale(name).cost.grpo_step_seconds for name in SCALES)
    return int(GPUS * HOURS * 3600 / seconds), int(GPUS * HOURS * 3600 / seconds / 2)


def render() -> str:
    """The generated end of the page."""
    whole, half = step_bounds()
    counted = [(name, runs_of_rl(name), scale(name).cost.grpo_step_seconds) for name in SCALES]
    [steps] = {scale(name).grpo["steps"] for name in SCALES}
    parts = " + ".join(f"{runs} × {seconds:g}" for _, runs, seconds in counted)
    total = sum(runs * seconds for _, runs, seconds in counted)
    stated = (
        "The paper gives no number of steps. It says that the policy is above the gate within the first few thousand "
        f"steps (A.3), that the whole pipeline took about two days on four H200, of which {GPUS} trained, and that RL "
        "was the most demanding stage (A.5). From this follows:"
    )
    steps_of = (
        f"- {GPUS} × {HOURS} h = {GPUS * HOURS} hours of a GPU for training.",
        f"- Runs of RL in its tables and figures: {', '.join(f'{runs} at `{name}`' for name, runs, _ in counted)}.",
        f"- One step of all of them takes {parts} = {total:g} s, by `[cost]` of the scales.",
        f'- If RL has all these hours, a run has {whole:,} steps; if half of them, the least that "most demanding" '
        f"allows, {half:,}.",
        f"- The scales take **{steps:,}**, two thirds of the hours. Every scale has the same number, because A.4 gives "
        "one set of settings for all.",
    )
    assumed = (
        "This assumes that the two days held each run once and were spent on training, one GPU a run, eight prompts a "
        "step, videos as cheap as text, and the seconds of a step, which are calculated and not measured. "
        f"{steps * 8:,} prompts are seen, of about 40,000 examples that SFT sees three times. By the same costs SFT "
        "does not fit into the hours that are left: the paper trained on fewer examples, or faster. The table `steps` "
        "has accuracy after an eighth, a quarter, half and all of the steps; `--steps` sets another number."
    )
    lines = [
        "## How long RL is trained",
        "",
        fill(stated, WIDTH),
        "",
        *(fill(line, WIDTH, subsequent_indent="  ") for line in steps_of),
        "",
        fill(assumed, WIDTH),
        "",
        "## Regimes",
        "",
        "What each trains at the scale `3b`, from the function that expands it.",
        "",
        "| regime | SFT | RL, steps | training examples | prompt | reward |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name in names("regimes"):
        own = regime(name)
        examples = "annotated" if own.weak is None else f"{own.weak:.0%} weak"
        if own.labels == "corpus":
            examples = "pseudo-labels of the corpus"
        rl, reward = "", ""
        if own.grpo is not None:
            config = training_config(scale("3b"), own, "grpo", {**PATHS, "corpus": "c"}, 0)
            default = GRPOConfig.model_validate({**PATHS, "corpus": "c"}).reward
            assert isinstance(config, GRPOConfig)
            changed = [f"`{key} = {value!r}`" for key, value in config.reward if value != getattr(default, key)]
            rl, reward = f"GRPO, {config.steps:,}", ", ".join(changed) or "the paper's"
        elif own.best_of_n is not None:
            rl, reward = "best-of-N rounds", f"`{own.best_of_n.get('reward', {})}`"
        prompt = "frames" if own.input == "video" else "Φ's history" if own.prompts == "perceived" else "as the reward"
        trained = own.sft is not None or own.rewarded
        cells = (f"`{name}`", "yes" if own.sft is not None else "", rl, examples, prompt, reward)
        lines.append("| " + " | ".join(cells if trained else (cells[0], "", "", "", "", "")) + " |")
    lines += [
        "",
        "## Scales",
        "",
        "| scale | model | encoder | RL: steps × prompts × plans | SFT: epochs × batch | plans a prompt |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name in names("scales"):
        own_scale = scale(name)
        grpo = training_config(own_scale, regime("rl"), "grpo", {**PATHS, "corpus": "c"}, 0)
        sft = training_config(own_scale, regime("sft-annotated"), "sft", PATHS, 0)
        assert isinstance(grpo, GRPOConfig)
        assert isinstance(sft, SFTConfig)
        cells = (
            f"`{name}`",
            own_scale.model or own_scale.title,
            own_scale.corpus.encoder.name,
            f"{grpo.steps:,} × {grpo.prompts_per_step} × {grpo.group_size}",
            f"{sft.epochs} × {sft.batch_size}",
            str(own_scale.samples),
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page, or check it; exits with the places that are not in the code."""
    head, _, rest = TARGET.read_text(encoding="utf-8").partition(BEGIN)
    text = head + BEGIN + "\n" + render() + "\n" + END + rest.partition(END)[2]
    if absent := missing_places(text):
        sys.exit(f"docs/paper.md names what is not in the code: {', '.join(absent)}")
    write_pages({TARGET: text}, "--check" in sys.argv)


if __name__ == "__main__":
    main()
