"""What judging costs besides the judge itself: from plans to the table, at an endpoint that answers at once.

    python benchmarks/judge_overhead.py [--quick]

The endpoint of `judge.py` answers every request with the same verdict, so that what is measured is ours: building
cases, rendering prompts, asking with `--concurrency` requests under way, keeping each answer, reading it, and the
table with its intervals. The last column is a second run on the same cache, which asks nothing.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from common import add_json, table, write_result
from judge import instant

from recipe.config import JudgeConfig, ModelConfig
from recipe.evaluation.judge.llm import JudgingCost, LlmJudge
from recipe.evaluation.judge.measures import RubricMeasure
from recipe.evaluation.judge.plans import cases_of
from recipe.evaluation.judge.verdicts import CRITERIA, verdict_rows, write_verdicts
from recipe.evaluation.measures import summarise
from recipe.models.model import open_model
from recipe.planning.predictions import Prediction
from recipe.types import Example

WORDS = ("pour", "stir", "cut", "heat", "the", "a", "pan", "water", "onion", "with", "into", "lid", "spoon", "slowly")


class Cost(NamedTuple):
    """Milliseconds a judgement."""

    wall: float
    cpu: float
    """Processor time of this process."""


def examples(count: int, turn: int) -> list[Example]:
    """Made-up examples of a usual size, none of which was asked before."""
    draw = random.Random(turn)

    def steps(most: int) -> tuple[str, ...]:
        return tuple(" ".join(draw.choices(WORDS, k=6)) for _ in range(draw.randint(1, most)))

    sources = ("coin", "crosstask", "niv", "egoper")
    return [
        Example(f"r{turn}/{n}", sources[n % 4], f"r{turn}/v{n // 2}", f"goal {n % 50}", steps(8), steps(8), 1)
        for n in range(count)
    ]


def timed(work: Callable[[], object], count: int) -> Cost:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    each = 1e3 / count
    return Cost((time.perf_counter() - wall) * each, (time.process_time() - cpu) * each)


def judged(url: str, asked: list[Example], folder: Path, concurrency: int) -> None:
    """The whole way of `recipe evaluate judge`, without its start."""
    plans = [Prediction(one.example_id, one.continuation[::-1]) for one in asked]
    cases = cases_of(asked, plans).cases
    config = ModelConfig(endpoint=url, model="judge", concurrency=concurrency, cache=folder / "cache")
    with open_model(config) as model:
        judge = LlmJudge(model, "judge", JudgeConfig())
        rows = judge.judge(cases)
        scores = summarise(RubricMeasure(judge.identity), "plans", verdict_rows(rows), asked)
    assert all(group.counts.unscored == 0 for group in scores.groups)
    write_verdicts(folder / "rows.jsonl", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concurrency", type=int, default=64, help="requests under way at once")
    parser.add_argument("--plans", type=int, default=2000, help="judgements of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    add_json(parser, "judge-overhead")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.plans = 2, 500
    found: dict[str, list[Cost]] = {"first run": [], "second run, all kept": []}
    verdict = json.dumps(dict.fromkeys(CRITERIA, 3))
    with instant(verdict) as url, tempfile.TemporaryDirectory() as at:
        for turn in range(arguments.rounds + 1):
            asked = examples(arguments.plans if turn else 100, turn)
            folder = Path(at) / str(turn)
            costs = [timed(lambda: judged(url, asked, folder, arguments.concurrency), len(asked)) for _ in found]  # noqa: B023
            if turn:  # the first round imports and warms up
                for rounds, cost in zip(found.values(), costs, strict=True):
                    rounds.append(cost)
    sized = examples(200, 1)
    prompt = JudgingCost.of(
        cases_of(sized, [Prediction(one.example_id, one.continuation) for one in sized]).cases, JudgeConfig()
    )
    setting = {name: getattr(arguments, name) for name in ("concurrency", "plans", "rounds")}
    setting["characters of a prompt"] = 4 * prompt.prompt_tokens // prompt.calls
    result = {
        name: {
            "wall, ms": statistics.median(cost.wall for cost in rounds),
            "fastest round": min(cost.wall for cost in rounds),
            "processor, ms": statistics.median(cost.cpu for cost in rounds),
        }
        for name, rounds in found.items()
    }
    for name, values in result.items():
        print(f"{name}:", ", ".join(f"{what} {value:.3g}" for what, value in values.items()))
    print(setting)
    write_result(
        arguments.json,
        {"setting": setting} | result,
        title="The overhead of judging",
        guide="judge.md",
        body=[
            f"{arguments.concurrency} requests under way, {arguments.plans:,} plans with prompts of "
            f"{setting['characters of a prompt']:,} characters, {arguments.rounds} rounds; milliseconds a verdict.",
            table(result),
        ],
        partial=arguments.plans < parser.get_default("plans"),
    )


if __name__ == "__main__":
    main()
