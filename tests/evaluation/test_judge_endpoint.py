"""The judge at an endpoint on its worst day: no verdict is lost, none is invented, and the ledger is right."""

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openai")
from tests.models.endpoint_server import Reply, completion, opened, serving

from recipe.config import JudgeConfig, ModelConfig
from recipe.evaluation.judge.llm import LlmJudge
from recipe.evaluation.judge.plans import Case
from recipe.evaluation.judge.verdicts import CRITERIA, Judgement
from recipe.types import Example, Unscored, Verdict

SIX = dict(zip(CRITERIA, (4, 3, 5, 2, 1, 0), strict=True))
WHOLE = json.dumps(SIX)
VERDICT = Verdict(**SIX)
GOOD = completion(WHOLE)
LINES = "\n".join(f"{name}: {score}" for name, score in SIX.items())
TWICE = WHOLE[:-1] + ', "clarity": 5}'
BUSY = Reply(429, json.dumps({"error": {"message": "slow down"}}), headers=(("Retry-After", "0.1"),))
TOO_LONG = Reply(400, json.dumps({"error": {"message": "maximum context length is 8192 tokens"}}))
REFUSAL = completion("I'm sorry, but I can't help with that.")

DAYS: dict[str, tuple[list[Reply], Verdict | str]] = {
    "answers at once": ([GOOD], VERDICT),
    "is busy twice": ([BUSY, BUSY, GOOD], VERDICT),
    "breaks down": ([Reply(500, "oh no"), Reply(503), GOOD], VERDICT),
    "is too slow": ([GOOD._replace(delay=90.0), GOOD], VERDICT),
    "drips": ([GOOD._replace(drip=0.5), GOOD], VERDICT),
    "sends half a body": ([GOOD._replace(body=GOOD.body[:40]), GOOD], VERDICT),
    "drops the connection": ([GOOD._replace(drop=True), GOOD], VERDICT),
    "shows a proxy's page": ([Reply(body="<html>Welcome</html>", kind="text/html"), GOOD], VERDICT),
    "sends an error with 200": ([Reply(body='{"error": "overloaded"}'), GOOD], VERDICT),
    "talks": ([completion(f"Well {{...}}.\n```json\n{WHOLE}\n```\nI hope it helps.")], VERDICT),
    "forgets the JSON": ([completion(LINES)], VERDICT),
    "writes halves": ([completion(json.dumps(SIX | {"clarity": 2.5}))] * 2, "clarity is not one whole number"),
    "contradicts itself": ([completion(TWICE), GOOD], VERDICT),
    "contradicts itself for ever": ([completion(TWICE)] * 2, "clarity is not one whole number"),
    "refuses": ([REFUSAL] * 2, "no verdict: \"I'm sorry"),
    "refuses once": ([REFUSAL, GOOD], VERDICT),
    "says nothing": ([completion("")] * 2, "the answer is empty"),
    "is filtered": ([completion(None, "content_filter")] * 2, "empty|filter"),
    "is cut off": ([completion(WHOLE[:60], "length")] * 2, "cut off"),
    "is too long": ([TOO_LONG], "no answer came: .*maximum context length"),
}
"""What the endpoint does about a plan, request by request, and what the judge is to make of it."""
MANY = 4
"""Plans for each of them."""


def cases() -> list[Case]:
    example = Example("e", "coin", "v", "make tea", ("boil",), ("pour",), 1)
    return [Case(example, (f"{day} {n}",), sample) for n in range(MANY) for sample, day in enumerate(DAYS)]


def plan_of(body: dict[str, Any]) -> str:
    text = body["messages"][1]["content"]
    plan: str = json.loads(text.split(" begins -----\n")[1].split("\n----- data ")[0])["prediction"][0]
    return plan


def readable(reply: Reply) -> bool:
    return reply.status == 200 and '"choices"' in reply.body and not (reply.drop or reply.drip or reply.delay)


@pytest.mark.thorough
@pytest.mark.usefixtures("quick_retries")
def test_no_verdict_is_lost_and_none_is_invented(tmp_path: Path) -> None:
    lock, asked = threading.Lock(), Counter[str]()

    def answer(body: dict[str, Any], before: int) -> Reply:
        plan = plan_of(body)
        with lock:
            asked[plan] += 1
            turn = asked[plan] - 1
        replies, _ = DAYS[plan.rsplit(" ", 1)[0]]
        return replies[min(turn, len(replies) - 1)]

    def run() -> tuple[list[Judgement], dict[str, Any]]:
        config = ModelConfig(endpoint=server.url, model="m", timeout=10.0, concurrency=16)
        with opened(config, tmp_path / "cache") as engine:
            judge = LlmJudge(engine, "m", JudgeConfig())
            return judge.judge(cases()), engine.ledger.to_json()

    with serving(answer) as server:
        rows, ledger = run()
        requests = asked.copy()
        again, free = run()

    found = {row.steps[0]: row.outcome for row in rows}
    for plan, outcome in found.items():
        expected = DAYS[plan.rsplit(" ", 1)[0]][1]
        if isinstance(expected, Verdict):
            assert outcome == expected, plan
        else:
            assert isinstance(outcome, Unscored), plan
            with pytest.raises(AssertionError, match=expected):
                raise AssertionError(outcome.reason)
    assert len(rows) == len(found) == MANY * len(DAYS)
    assert again == rows
    paid = MANY * sum(readable(reply) for replies, _ in DAYS.values() for reply in replies)
    assert (ledger["answers"], ledger["cached"]) == (paid, 0)
    assert (ledger["tokens_in"], ledger["tokens_out"]) == (100 * paid, 10 * paid)
    assert (free["answers"], free["cached"], free["tokens_in"]) == (0, paid, 0)
    assert requests == {plan: len(DAYS[plan.rsplit(" ", 1)[0]][0]) for plan in found}
    assert ledger["retries"] == requests.total() - paid - MANY
    # What was refused is not kept, since another day may bring another answer.
    assert {plan.rsplit(" ", 1)[0] for plan in asked - requests} == {"is too long"}


@pytest.mark.parametrize("structured", ["json_schema", "off"])
def test_a_judge_is_the_same_whether_it_answers_anew_or_from_the_cache(structured: str, tmp_path: Path) -> None:
    def answer(body: dict[str, Any], _: int) -> Reply:
        if structured == "off" and "response_format" in body:
            return Reply(400, json.dumps({"error": {"message": "response_format is not supported"}}))
        return GOOD

    found = []
    with serving(answer) as server:
        for _ in range(2):  # the second time from the cache
            config = ModelConfig(endpoint=server.url, model="m", concurrency=1)
            with opened(config, tmp_path / "cache") as engine:
                judge = LlmJudge(engine, "m", JudgeConfig())
                rows = judge.judge(cases()[:5])
                found.append(judge.identity)
                assert [row.outcome for row in rows] == [VERDICT] * 5
    assert [one.settings["structured"] for one in found] == [structured] * 2
    assert found[0] == found[1]
