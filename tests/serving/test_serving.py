"""The planner page's service: every event once and in order, evidence, cancelling, limits, feedback."""

import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import SecretStr
from tests.serving.conftest import SALAD, TEA, HeldEngine, SlowEngine, SteppedEngine, httpx2, plan_text

from recipe.config import CorpusConfig, EncoderConfig, RewardConfig, SearchConfig
from recipe.corpus.build import build_corpus
from recipe.corpus.change import add_to, remove_from
from recipe.corpus.store import Corpus
from recipe.data.examples import read_examples
from recipe.errors import InputError
from recipe.evaluation.agreement import read_ratings
from recipe.explain.records import Links
from recipe.models.protocol import Answer, ModelRequest, WrittenPieces
from recipe.planning.planner import Planner
from recipe.planning.prediction_files import read_predictions
from recipe.planning.search import PlanSearch
from recipe.reward.scorer import PromptGroup, Steps
from recipe.reward.verifier import Verifier
from recipe.types import Narration, Reward, Segment

from recipe_apps.serving.feedback import FeedbackStore  # isort: skip
from recipe_apps.serving.evidence import CorpusEvidence, open_evidence  # isort: skip


def kinds(events: list[Any]) -> list[str]:
    return [event.kind for event in events]


def test_a_plan_is_streamed_with_its_evidence(serve: Any) -> None:
    with serve([plan_text(TEA), plan_text(SALAD)]) as page:
        run = page.begin(history=["boil the water"], plans=2)
        events = page.events(run)
        assert [event.number for event in events] == list(range(1, len(events) + 1))
        assert kinds(events)[:2] == ["queued", "started"]
        assert kinds(events)[-2:] == ["ranking", "done"]
        steps = [event.data for event in events if event.kind == "step"]
        assert [step["text"] for step in steps if step["plan"] == 0] == list(TEA)
        assert [step["number"] for step in steps if step["plan"] == 1] == [1, 2, 3, 4, 5]
        plans = {event.data["plan"]: event.data for event in events if event.kind == "plan"}
        assert [row["state"] for row in plans[0]["evidence"]] == ["supported"] * 5
        assert [row["state"] for row in plans[1]["evidence"]] == ["unsupported"] * 5
        assert len(plans[0]["adds"]) == 5
        [coverage] = [event.data for event in events if event.kind == "coverage"]
        assert coverage["state"] == "known"
        ranking = events[-2].data
        assert ranking["order"] == [0, 1]
        assert ranking["rewards"][0] > ranking["rewards"][1]
        assert ranking["same"] == [[1, 2, 3, 4, 5], [None] * 5]
        ground = plans[0]["evidence"][0]["grounds"][0]
        assert (ground["text"], ground["title"], ground["when"]) == ("now warm the pot", "How to make tea", "0:10–0:18")
        assert ground["link"] == f"https://www.youtube.com/watch?v={ground['video_id']}&t=10s"
        evidence = [event for event in events if event.kind == "evidence"]
        assert {(one.data["plan"], one.data["number"]) for one in evidence} == {
            (p, n) for p in (0, 1) for n in range(1, 6)
        }


def test_a_run_is_read_as_the_page_shows_it_and_kept_as_a_file(serve: Any) -> None:
    hostile = "<img src=x onerror=1> [click](javascript:1)"
    with serve([plan_text((hostile, *TEA)), plan_text(SALAD)], pause=0.01) as page:
        run = page.begin(history=["boil the water"], plans=2)
        while len(page.events(run, most=8)) < 8:
            pass
        early = page.client.get(f"/api/runs/{run}").json()
        assert early["state"] == "running"
        events = page.events(run)
        told = {event.data["plan"]: event.data for event in events if event.kind == "plan"}
        ranking, done = events[-2].data, events[-1].data
        state = page.client.get(f"/api/runs/{run}").json()
        schema = page.client.get("/openapi.json").json()
        answer = schema["paths"]["/api/runs/{identity}"]["get"]["responses"]["200"]["content"]["application/json"]
        of_run = schema["components"]["schemas"][answer["schema"]["$ref"].rpartition("/")[2]]["properties"]
        assert set(state) == set(early) == set(of_run)
        assert [row["plan"] for row in early["plans"]] == [0, 1]
        assert [row["plan"] for row in state["plans"]] == ranking["order"]
        assert [row["rank"] for row in state["plans"]] == [1, 2]
        for row in state["plans"]:
            assert row == told[row["plan"]] | {"rank": row["rank"]}
            assert len(row["evidence"]) == len(row["steps"]) == len(row["adds"])
        [coverage] = [event.data for event in events if event.kind == "coverage"]
        assert (state["coverage"], state["tokens"], state["seconds"]) == (coverage, done["tokens"], done["seconds"])
        assert state["events"] == len(events)
        file = page.client.get(f"/api/runs/{run}.json")
        assert file.json() == state
        assert file.headers["content-disposition"].startswith("attachment")
        one = page.client.get(f"/api/runs/{run}.json", params={"plan": 1}).json()
        assert [row["plan"] for row in one["plans"]] == [1]
        text = page.client.get(f"/api/runs/{run}.md", params={"plan": 0})
        assert text.headers["content-type"] == "text/markdown; charset=utf-8"
        assert "<img" not in text.text
        assert "[click](" not in text.text
        lines = text.text.split("\n")
        assert lines.index("1. boil the water") < lines.index(f"2. **{TEA[0]}**")
        assert f"](<{told[0]['evidence'][1]['grounds'][0]['link']}>)" in text.text
        assert not any(step in text.text for step in SALAD)
        assert all(f"**{step}**" in page.client.get(f"/api/runs/{run}.md").text for step in (*TEA, *SALAD))
        for address in (f"{run}.md?plan=7", f"{run}.pdf"):
            assert page.client.get(f"/api/runs/{address}").status_code in (404, 422)
        assert page.client.get("/api/runs/none.md").json()["error"]["code"] == "unknown_run"


def test_what_is_said_of_a_step_leaves_with_it(serve: Any) -> None:
    with serve(engine=(engine := HeldEngine()), evidence=None) as page:
        run = page.app.state.page.runs.require(identity := page.begin(plans=1))
        said = {"plan": 0, "number": 1, "state": "supported", "matched_in": 1, "pool": 2, "about": 1, "grounds": []}
        shown = []
        for text, evidence in (("warm the pot", said), ("wait", None)):
            run.plans[0] = (text,)
            run.publish("step", {"plan": 0, "number": 1, "text": text})
            if evidence:
                run.publish("evidence", evidence)
            [plan] = page.client.get(f"/api/runs/{identity}").json()["plans"]
            shown.append((plan["steps"], len(plan["evidence"])))
        engine.go.set()
    assert shown == [(["warm the pot"], 1), (["wait"], 0)]


def test_equal_plans_are_one_and_counted(serve: Any) -> None:
    shouted = [step.upper().replace(" ", "\t") for step in TEA]
    with serve([plan_text(SALAD), plan_text(TEA), plan_text(shouted)]) as page:
        events = page.events(run := page.begin(history=["boil the water"], plans=6))
        ranking = events[-2].data
        assert ranking["samples"] == [2, 4, 0, 0, 0, 0]
        assert ranking["order"] == [1, 0]
        assert [event.data["samples"] for event in events if event.kind == "plan"] == [2, 4]
        plans = page.client.get(f"/api/runs/{run}").json()["plans"]
        assert [(row["plan"], row["rank"], row["samples"]) for row in plans] == [(1, 1, 4), (0, 2, 2)]


def test_tokens_that_an_endpoint_does_not_count_are_no_zero(serve: Any) -> None:
    class Uncounted(SlowEngine):
        def stream_all(self, requests: Sequence[ModelRequest], stopped: Any = lambda _: False) -> WrittenPieces:
            for place, piece in super().stream_all(requests, stopped):
                known = isinstance(piece, Answer) and requests[place].sample
                yield place, piece._replace(tokens_out=0) if known else piece

    for plans, counted in ((1, True), (2, False)):  # of two plans one is not counted, so that there is no sum
        with serve(engine=Uncounted([plan_text(TEA)])) as page:
            done = page.events(run := page.begin(plans=plans))[-1].data
            assert (done["tokens"] is not None) is counted
            assert page.client.get(f"/api/runs/{run}").json()["tokens"] == done["tokens"]


def test_a_client_that_comes_back_gets_each_event_once(serve: Any) -> None:
    with serve(pause=0.01) as page:
        run = page.begin(plans=2)
        got, most = [], 1
        while not got or got[-1].kind != "done":
            got += page.events(run, after=len(got), most=most)
            most += 1
        assert [event.number for event in got] == list(range(1, len(got) + 1))
        assert page.events(run) == got
        end = page.client.get(f"/api/runs/{run}/events", params={"after": len(got)})
        assert end.status_code == 204


def test_a_run_is_over_only_once_its_last_event_can_be_read(serve: Any) -> None:
    """Readers hold no lock: one that looks while the last event is added must not end without it."""
    with serve(engine=(engine := HeldEngine())) as page:
        run = page.app.state.page.runs.require(identity := page.begin(plans=1))

        class Events(list[bytes]):
            def append(self, event: bytes) -> None:
                over.append(run.over)
                super().append(event)

        over: list[bool] = []
        run.events = Events(run.events)
        engine.go.set()
        assert page.events(identity)[-1].kind == "done"
        assert not run.publish("failed", {}, "failed")
    assert over == [False] * len(over) != []
    assert b"event: done" in run.events[-1]


def test_a_run_that_ends_while_it_is_read_is_shown_whole_or_not_as_done(serve: Any) -> None:
    with serve(engine=(engine := HeldEngine())) as page:
        run = page.app.state.page.runs.require(identity := page.begin(plans=1))

        class Events(list[bytes]):
            def __iter__(self) -> Iterator[bytes]:
                shown = [*super().__iter__()]
                run.publish("done", {"seconds": 1.0, "tokens": 5}, "done")
                return iter(shown)

        run.events = Events(run.events)
        early, late = (page.client.get(f"/api/runs/{identity}").json() for _ in range(2))
        engine.go.set()
    assert (early["state"] == "done", early["seconds"]) == (False, None)
    assert (late["state"], late["seconds"]) == ("done", 1.0)


def test_what_was_asked_for_a_cancelled_run_is_forgotten(serve: Any) -> None:
    with serve(engine=(engine := HeldEngine())) as page:
        worker, run = page.app.state.page.evidence, page.begin(plans=1)
        assert "coverage" in kinds(page.events(run, most=3))
        page.client.delete(f"/api/runs/{run}")
        assert worker.known
        engine.go.set()
        assert page.events(page.begin(plans=1))[-1].kind == "done"
        until = time.monotonic() + 60
        while worker.known:
            assert time.monotonic() < until


def test_an_unknown_task_is_said_to_be_unknown(serve: Any) -> None:
    with serve(["1. quarry gneiss\n2. polish basalt"]) as page:
        events = page.events(page.begin("vulcanise obsidian", history=["excavate granite"], plans=1))
        [coverage] = [event.data for event in events if event.kind == "coverage"]
        assert coverage["state"] == "unknown"
        [plan] = [event.data for event in events if event.kind == "plan"]
        assert [row["state"] for row in plan["evidence"]] == ["unsupported", "unsupported"]


def test_without_a_corpus_plans_come_without_evidence(serve: Any) -> None:
    with serve([plan_text(TEA), plan_text(TEA[:2])], evidence=None) as page:
        events = page.events(run := page.begin(plans=2))
        assert "evidence" not in kinds(events)
        ranking = {"order": [0, 1], "rewards": [None, None], "same": [[1, 2, 3, 4, 5], [1, 2]], "samples": [1, 1]}
        assert events[-2].data == ranking
        first = page.client.get(f"/api/runs/{run}").json()["plans"][0]
        assert (first["steps"], first["reward"], first["rank"], first["evidence"]) == (list(TEA), None, None, [])
        info = page.client.get("/api/info").json()
        assert info["corpus"] is None
        assert info["verifier"] is None


def test_a_cancelled_run_is_written_no_further(serve: Any) -> None:
    engine = SlowEngine([plan_text(TEA)], pause=0.05)
    with serve(engine=engine) as page:
        run, other = page.begin(plans=2), page.begin(plans=1)
        page.events(run, most=3)
        assert page.client.delete(f"/api/runs/{run}").json()["state"] == "cancelled"
        words = dict(engine.words)
        assert kinds(page.events(run))[-1] == "cancelled"
        assert page.events(other)[-1].kind == "done"
        assert all(engine.words[place] <= words[place] + 1 for place in (0, 1))
        assert page.client.delete(f"/api/runs/{run}").status_code == 200


def test_those_who_wait_know_their_place_and_are_written_together(serve: Any) -> None:
    engine = SlowEngine([plan_text(TEA)], pause=0.03)
    with serve(engine=engine) as page:
        first = page.begin(plans=1)
        page.events(first, most=2)
        waiting = [page.begin(plans=1) for _ in range(3)]
        assert [page.client.get(f"/api/runs/{run}").json()["position"] for run in waiting] == [1, 2, 3]
        page.client.delete(f"/api/runs/{waiting[0]}")
        moved = [event.data["position"] for event in page.events(waiting[2]) if event.kind == "queued"]
        assert moved == [3, 2]
        assert page.events(waiting[1])[-1].kind == "done"
        assert engine.batches == [1, 2]


def test_hundreds_of_idle_readers_leave_room_for_others(serve: Any) -> None:
    """Of 256 readers 128 are of one address and 16 of one run."""
    engine = HeldEngine()
    with serve(engine=engine) as page, ExitStack() as stack:

        def visitor(address: str) -> Any:
            transport = httpx2.HTTPTransport(local_address=address, limits=httpx2.Limits(max_connections=None))
            return stack.enter_context(httpx2.Client(base_url=page.url, timeout=300, transport=transport))

        def read(client: Any, run: str) -> Any:
            return stack.enter_context(client.stream("GET", f"/api/runs/{run}/events"))

        idle, another, honest = (visitor(f"127.0.0.{n}") for n in (2, 3, 4))
        runs = [page.begin(plans=1) for _ in range(10)]
        answers = [read(idle, run) for run in runs for _ in range(18)]
        counts = Counter((answer.status_code, answer.headers.get("retry-after")) for answer in answers)
        assert counts == {(200, None): 128, (429, "1"): 52}
        assert [sum(one.is_success for one in answers[at : at + 18]) for at in range(0, 180, 18)] == [16] * 8 + [0, 0]
        refused = answers[-1]
        refused.read()
        assert refused.json()["error"]["code"] == "too_many_readers"
        assert read(honest, runs[0]).status_code == 429, "a run has readers enough, whoever they are"
        assert read(honest, runs[9]).status_code == 200
        more = [page.begin(plans=1) for _ in range(8)]
        assert Counter(read(another, run).status_code for run in more for _ in range(16)) == {200: 127, 429: 1}
        for answer in answers:
            answer.close()
        while page.app.state.page.readers.total() > 3 * 128:  # each counts in all, of its run and of its address
            time.sleep(0.01)
        assert read(idle, runs[0]).status_code == 200
        engine.go.set()
    assert not page.app.state.page.readers


def test_one_visitor_fills_half_of_the_queue_at_most(serve: Any) -> None:
    engine = HeldEngine()
    with serve(engine=engine) as page:
        other = httpx2.Client(base_url=page.url, transport=httpx2.HTTPTransport(local_address="127.0.0.2"))
        page.events(page.begin(plans=1), most=2)

        def asked(client: Any, count: int) -> list[int]:
            return [client.post("/api/runs", json={"goal": "make tea"}).status_code for _ in range(count)]

        assert asked(page.client, 34) == [202] * 32 + [429] * 2
        assert asked(other, 33) == [202] * 32 + [429]
        refused = other.post("/api/runs", json={"goal": "make tea"}).json()["error"]
        assert (refused["code"], refused["message"][:2]) == ("queue_full", "64")
        other.close()
        page.app.state.page.runs.close(running=True)
        engine.go.set()
    with serve(engine=(engine := HeldEngine()), per_address=1) as page:
        page.events(run := page.begin(plans=1), most=2)
        assert asked(page.client, 2) == [202, 429]
        while page.app.state.page.readers:
            time.sleep(0.01)
        reading = [page.client.stream("GET", f"/api/runs/{run}/events") for _ in range(2)]
        with reading[0] as first, reading[1] as second:
            assert (first.status_code, second.status_code) == (200, 429)
        engine.go.set()


def test_the_same_key_is_the_same_run(serve: Any) -> None:
    with serve() as page:
        assert page.begin(key="a") == page.begin(key="a") != page.begin(key="b")


def test_a_failure_is_told_and_the_next_run_works(serve: Any) -> None:
    with serve() as page:
        for goal, told in (("explode", "the model failed"), ("crash", "its log tells why"), ("too long", "too long")):
            last = page.events(page.begin(goal, plans=1))[-1]
            assert last.kind == "failed"
            assert told in last.data["message"]
        assert page.events(page.begin(plans=1))[-1].kind == "done"
        assert page.client.get("/healthz").status_code == 200


def test_runs_that_nobody_reads_are_cancelled_and_old_ones_forgotten(serve: Any) -> None:
    with serve(engine=(engine := HeldEngine())) as page:
        run = page.begin(plans=1)
        known = page.app.state.page.runs.require(run)
        known.last_read -= 61
        while not known.over:
            time.sleep(0.05)
        assert known.state == "cancelled"
        engine.go.set()
        assert page.client.get(f"/api/runs/{run}").status_code == 200
        known.last_read, known.ended = known.last_read - 1_000, known.ended - 901
        while page.client.get(f"/api/runs/{run}/events").status_code != 404:
            known.last_read -= 1_000
            time.sleep(0.2)
        refused = page.client.get(f"/api/runs/{run}")
        assert refused.json()["error"]["code"] == "unknown_run"


BAD_REQUESTS = [
    ({"goal": " "}, 422, "invalid_field"),
    ({"goal": "\x00\u202e"}, 422, "invalid_field"),
    ({"goal": "x" * 501}, 422, "too_long"),
    ({"goal": "tea", "history": ["boil", ""]}, 422, "invalid_field"),
    ({"goal": "tea", "history": ["boil"] * 101}, 422, "too_many_steps"),
    ({"goal": "tea", "plans": 9}, 413, "too_many_plans"),
    ({"goal": "tea", "plans": 0}, 422, "invalid_field"),
    ({"goal": "tea", "plan": 1}, 422, "unknown_field"),
    ({"goal": "tea", "clip": "a"}, 422, "invalid_field"),
    ({"goal": "tea", "clip": "a", "until": 3.0}, 422, "bad_clip"),
    ({"goal": "tea", "kind": "reading", "clip": "a", "until": 3.0}, 422, "bad_clip"),
    ({}, 422, "missing_field"),
    ({"goal": "x" * 300_000}, 413, "body_too_large"),
    ({"goal": "tea", "plans": 1, "key": "k" * 101}, 422, "invalid_field"),
]


def test_bad_requests_are_refused_in_one_sentence(serve: Any) -> None:
    with serve() as page:
        for body, status, code in BAD_REQUESTS:
            answer = page.client.post("/api/runs", json=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), body
            assert answer.json()["error"]["message"].endswith((".", "?"))
        run = page.begin(plans=1)
        page.events(run)
        answer = page.client.post(f"/api/runs/{run}/feedback", json={"plan": 0, "comment": "fine"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "not_kept")


def test_other_sites_get_nothing(serve: Any) -> None:
    with serve() as page:
        plain = page.client.post("/api/runs", content='{"goal": "tea"}', headers={"Content-Type": "text/plain"})
        assert (plain.status_code, plain.json()["error"]["code"]) == (415, "not_json")
        foreign = page.client.get("/api/info", headers={"Host": "planner.example"})
        assert (foreign.status_code, foreign.json()["error"]["code"]) == (403, "foreign_host")
        policy = page.client.get("/api/info").headers["content-security-policy"]
        assert "default-src 'none'" in policy
    with serve(token=SecretStr("secret")) as page:
        assert page.client.get("/").status_code == 401
        assert page.client.get("/", auth=("any", "secret")).status_code == 200


def test_what_changed_is_told_with_the_order_that_narrations_say(serve: Any) -> None:
    with serve() as page:
        run = page.begin(history=["boil the water"], plans=1)
        page.events(run)
        now = ["boil the water", "warm the pot", "feed the cat", "pour the water"]
        found = page.client.post(f"/api/runs/{run}/deviation", json={"plan": 0, "history": now}).json()
        assert [step["state"] for step in found["steps"]] == ["done", "skipped", "done", "open", "open"]
        assert found["unexpected"] == [2]
        assert found["rest"] == ["add the leaves", "steep for four minutes", "pour the tea"]
        [order] = found["orders"]
        assert (order["before"], order["after"]) == ("add the leaves", "pour the water")
        assert order["says"] > 10 * order["against"]
        assert order["grounds"][0]["before"]["text"] == "now add the leaves"


@pytest.mark.parametrize("verifier", ["grounded", "paper"])
def test_a_plan_that_grows_by_a_step_costs_one_reward(tea_corpus: Corpus, verifier: str) -> None:
    """What was scored is known; the figures are those of one fresh scoring of all beginnings.

    They are equal up to the last bits of float32: a matrix product rounds otherwise where it has other columns beside.
    """
    scored: list[Steps] = []

    class Counting(Verifier):
        def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Reward]]:
            scored.extend(plan for group in groups for plan in group.plans)
            return super().score_groups(groups)

    prompt, config = ("make tea", ("boil the water",)), RewardConfig(verifier=verifier)
    evidence = CorpusEvidence(Counting(tea_corpus, config))
    for count in range(1, len(TEA) + 1):
        plans = [(prompt, TEA[:count]), (prompt, SALAD[:count])]
        grown = evidence.gains(plans)
    assert sorted(scored) == sorted({steps[:count] for steps in (TEA, SALAD) for count in range(len(TEA) + 1)})
    rewards, adds = evidence.without_each_step(prompt, [TEA, SALAD])
    assert len(scored) == len(set(scored)) == 11 + 2 * (len(TEA) - 1), "the plan without its last step is known"

    fresh = Verifier(tea_corpus, config)
    for steps, own, reward, added in zip((TEA, SALAD), grown, rewards, adds, strict=True):
        beginnings = fresh.score(goal=prompt[0], history=prompt[1], continuations=[steps[:n] for n in range(6)])
        parts = [one.parts for one in beginnings]
        values = (
            [part["gain"] - part["background"] for part in parts]
            if verifier == "grounded"
            else [one.total for one in beginnings]
        )
        assert own == pytest.approx(list(np.diff(values)), abs=1e-6)
        shorter = [steps[:n] + steps[n + 1 :] for n in range(5)]
        whole, *without = fresh.score(goal=prompt[0], history=prompt[1], continuations=[steps, *shorter])
        assert reward.total == pytest.approx(whole.total, abs=1e-6)
        assert added == pytest.approx([whole.total - one.total for one in without], abs=1e-6)


def test_of_planned_steps_with_one_text_the_first_is_done(evidence: Any) -> None:
    plan = ("warm the pot", "steep for four minutes", "steep for four minutes", "pour the tea")
    found = evidence.deviation("make tea", ("boil the water",), plan, ("boil the water", *plan[:2]))
    assert [step["state"] for step in found["steps"]] == ["done", "done", "open", "open"]
    assert found["orders"] == []


def test_feedback_is_kept_where_evaluation_reads_it(serve: Any, tmp_path: Path) -> None:
    keep = tmp_path / "kept"
    with serve([plan_text(TEA), plan_text(SALAD)], keep=keep) as page:
        run = page.begin(history=["boil the water"], plans=2)
        page.events(run)

        def say(**said: Any) -> int:
            return int(page.client.post(f"/api/runs/{run}/feedback", json={"plan": 0} | said).status_code)

        scores = dict.fromkeys(page.client.get("/api/info").json()["criteria"], 4)
        assert say(rater="ann", scores=scores, comment="fine") == 201
        assert say(rater="ann", step=2, verdict="reject") == 201
        assert say(rater="ann", step=1, verdict="correct", text="rinse the pot") == 201
        assert say(step=9, verdict="keep") == 422
        assert say(scores={"taste": 3}) == 422
        assert say(scores={"clarity": 6}) == 422
        lines = page.client.get("/api/ratings").text.splitlines()
        assert len(lines) == 1
    [example] = read_examples(keep / "examples.jsonl")
    assert example.continuation == ("rinse the pot", *TEA[2:])
    assert [one.sample for one in read_predictions(keep / "predictions.jsonl")] == [0, 1]
    [(rater, rated)] = read_ratings(keep / "ratings.jsonl").items()
    assert (rater, [plan.sample for plan in rated]) == ("human: ann", [0])
    assert all({name: own[name] for name in scores} == scores for own in rated.values())
    with serve(keep=keep) as page:  # another run of the server goes on with the folder
        again = page.begin(plans=1)
        page.events(again)
        said = {"plan": 0, "rater": "ann", "scores": scores}
        assert page.client.post(f"/api/runs/{again}/feedback", json=said).status_code == 201
    assert len(read_ratings(keep / "ratings.jsonl")["human: ann"]) == 2


def test_a_service_starts_whatever_a_kill_left_of_its_files(serve: Any, tmp_path: Path) -> None:
    keep = tmp_path / "kept"
    with serve([plan_text(TEA)], keep=keep) as page:  # a verdict and no rating: one file stays empty
        page.events(run := page.begin(plans=1))
        for step in (1, 2):
            said = {"plan": 0, "rater": "änn", "step": step, "verdict": "keep"}
            assert page.client.post(f"/api/runs/{run}/feedback", json=said).status_code == 201
    assert (keep / "ratings.jsonl").read_bytes() == b""
    whole = {file.name: file.read_bytes() for file in keep.iterdir()}
    assert len(whole) == 4
    for name, content in whole.items():
        ends = {0, 1, len(content) // 2, content.find(b"\xc3") + 1, len(content) - 2, len(content) - 1, len(content)}
        for end in sorted({min(max(end, 0), len(content)) for end in ends}):
            (keep / name).write_bytes(content[:end])
            FeedbackStore(keep)
            # What is left are whole rows, and of what was cut a copy.
            left, cut = (keep / name).read_bytes(), list(keep.glob(f"{name}.damaged-*"))
            assert content.startswith(left.rstrip(b"\n"))
            assert left.count(b"\n") == content[:end].count(b"\n") or not cut
            assert [file.read_bytes() for file in cut] == ([] if left == content[:end] else [content[:end]])
            FeedbackStore(keep)  # it is told once
            assert list(keep.glob(f"{name}.damaged-*")) == cut
            for file in cut:
                file.unlink()
        (keep / name).unlink()
        FeedbackStore(keep)
        (keep / name).write_bytes(content)
    (keep / "steps.jsonl").write_bytes(b'{"example_id": "a"}\n' + whole["steps.jsonl"])
    with pytest.raises(InputError, match="line 1, field 'sample'"):
        FeedbackStore(keep)
    (keep / "steps.jsonl").write_bytes(b'{"example_id": "a"\n' + whole["steps.jsonl"])
    with pytest.raises(InputError, match="line 1"):  # no cut: somebody has changed the file
        FeedbackStore(keep)


def test_metrics_count_what_happened(serve: Any) -> None:
    with serve() as page:
        page.events(page.begin(plans=1))
        text = ""
        while 'recipe_page_runs_total{state="done"} 1.0' not in text or 'identity}/events"' not in text:
            text = page.client.get("/metrics").text
        assert 'recipe_page_runs_total{state="done"} 1.0' in text
        assert "recipe_page_first_step_seconds_count 1.0" in text
        assert 'endpoint="/api/runs/{identity}/events"' in text


def test_steps_of_a_thought_are_replaced_by_those_of_the_plan(serve: Any) -> None:
    thought = plan_text(SALAD)
    texts = [f"{thought}\n</think>\n{plan_text(TEA[:2])}", f"<think>{thought}\n</think>\n{plan_text(TEA)}"]
    with serve(texts) as page:
        events = page.events(page.begin(plans=2))
    plans = {event.data["plan"]: event.data for event in events if event.kind == "plan"}
    assert (plans[0]["steps"], plans[1]["steps"]) == (list(TEA[:2]), list(TEA))
    numbers: dict[int, list[int]] = {0: [], 1: []}
    shown: dict[int, dict[int, str]] = {0: {}, 1: {}}
    for event in events:
        if event.kind == "step":
            numbers[event.data["plan"]].append(event.data["number"])
            shown[event.data["plan"]][event.data["number"]] = event.data["text"]
    assert numbers == {0: [1, 2, 3, 4, 1, 2], 1: [1, 2, 3, 4, 5]}  # the last step of a list waits for its end
    for number, steps in ((0, TEA[:2]), (1, TEA)):
        assert [shown[number][place] for place in range(1, len(steps) + 1)] == list(steps)
        assert {row["number"] for row in plans[number]["evidence"]} <= set(range(1, len(steps) + 1))


def test_new_runs_ask_the_corpus_that_is_there_now_and_old_ones_theirs(
    tmp_path: Path, serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    narrations = [Narration(f"v{n}", tuple(map(Segment, TEA[n % 3 :]))) for n in range(12)]
    folder = build_corpus(narrations, tmp_path / "c", CorpusConfig(encoder=EncoderConfig(name="hash:64")))
    evidence = open_evidence(Corpus.open(folder), RewardConfig(), Links())
    with serve(evidence=evidence, pause=0.05) as page:
        worker = page.app.state.page.evidence
        begun = page.begin(plans=1)
        assert "coverage" in kinds(page.events(begun, most=3))
        grown = add_to(Corpus.open(folder), [Narration("new", tuple(map(Segment, SALAD)))])
        while worker.corpus is evidence:
            time.sleep(0.01)
        for run, pool in ((begun, 12), (page.begin(plans=1), 13)):
            [plan] = [event.data for event in page.events(run) if event.kind == "plan"]
            assert {row["pool"] for row in plan["evidence"]} == {pool}
        info = page.client.get("/api/info").json()
        assert info["corpus"] | {"too_small": None} == {
            "id": grown.manifest["id"],
            "narrations": 13,
            "segments": grown.manifest["segments"],
            "too_small": None,
        }
        # A corpus that cannot be served is told of, and the one that is served stays.
        now, damaged = worker.corpus, Path(shutil.copytree(folder, tmp_path / "damaged"))
        remove_from(Corpus.open(damaged), ["v3"])
        for file in (damaged / "shards").rglob("*.*"):
            file.write_bytes(b"")
        folder.rename(tmp_path / "before")
        damaged.rename(folder)
        while "cannot be served" not in caplog.text:
            time.sleep(0.01)
        assert worker.corpus is now


def test_a_composed_plan_appears_as_its_steps_are_chosen(serve: Any, evidence: Any) -> None:
    engine = SteppedEngine((SALAD, TEA))
    planner = Planner(engine)
    search = PlanSearch(planner, evidence.verifier, SearchConfig(search="recombine", width=2, samples=2))
    with serve(planner=planner, search=search) as page:
        assert page.client.get("/api/info").json()["search"]["search"] == "recombine"
        events = page.events(page.begin(history=["boil the water"], plans=2))
        assert kinds(events)[-2:] == ["ranking", "done"]
        plans = [event.data for event in events if event.kind == "plan"]
        assert plans[0]["steps"] == list(TEA)
        assert [row["state"] for row in plans[0]["evidence"]] == ["supported"] * 5
        steps = [event.data for event in events if event.kind == "step"]
        assert {step["plan"] for step in steps} == {0, 1}
        assert steps[0]["number"] == 1
        assert max(step["number"] for step in steps) > 1
        done = events[-1].data
        assert done["tokens"] == done["search"]["tokens_out"] > 0
        assert done["search"]["encodings"] == len({*TEA, *SALAD})
        failed = page.events(page.begin("too long"))[-1]
        assert (failed.kind, failed.data["message"]) == ("failed", "the prompt is too long; shorten the history.")
