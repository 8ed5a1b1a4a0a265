"""One contract for every way to a reward: the same plan earns the same number, and a failure is never a number.

Each trainer is played by a few lines written from its contract; `test_adapters_real.py` lets the trainers themselves
call, where they are installed.
"""

import asyncio
import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as drawn
from hypothesis import strategies as st
from prompt_scorer import served

from recipe.config import RewardConfig, load_config
from recipe.corpus.store import Corpus
from recipe.errors import ComputeError, ConfigError, InputError
from recipe.plan_text import plan_steps
from recipe.reward.trainers import easyr1, ms_swift, openrlhf, source, verifiers, verl
from recipe.reward.trainers.source import Row
from recipe.reward.trainers.trl import alignment_reward
from recipe.reward.verifier import Verifier

httpx2 = pytest.importorskip("httpx2")
pytest.importorskip("uvicorn")
pytest.importorskip("fastapi")

from recipe_apps.service.app import create_app  # noqa: E402

HISTORY = ("boil the water", "warm the pot")
COMPLETIONS = {
    "plan": "1. put tea leaves in the pot\n2. pour the water\n3. wait five minutes",
    "another": "1. pour the water\n2. wait five minutes",
    "empty": "",
    "blank": " \n\t\n",
    "no words": "...\n---",
    "preamble": "Sure! Here is the rest:\n\n1. put tea leaves in the pot\n2. pour the water\n\nEnjoy your tea!",
    "prose": "Put tea leaves in the pot, then pour the water and wait.",
    "bullets": "- **put** tea leaves in the pot\n* pour the `water`\n• wait five minutes",
    "German": "1. Teeblätter in die Kanne geben\n2. das heiße Wasser übergießen",
    "Chinese": "1. 把茶叶放进壶里\n2. 倒入热水",
    "Arabic": "1. ضع أوراق الشاي في الإبريق\n2. اسكب الماء",
    "emoji": "1. pour the water 🫖\n2. wait ⏳ five minutes",
    "copied history": "1. boil the water\n2. warm the pot",
    "many steps": "\n".join(f"{n}. pour the water {n} times" for n in range(1, 151)),
    "long step": "1. pour " + "the very hot " * 400 + "water",
}
ROWS = [
    *(Row("make tea", HISTORY, text) for text in COMPLETIONS.values()),
    Row("fry eggs", ("crack two eggs",), "1. whisk the eggs with milk\n2. pour the eggs"),
    Row("fry eggs", (), "1. crack two eggs\n2. pour the eggs"),
]
LOST = Row("change a tyre", ("lift the car",), "1. remove the unspeakable bolts")
SAVED = Row("change a tyre", ("lift the car",), "1. remove the bolts")
FAILING = [ROWS[0], LOST, ROWS[1], SAVED]
"""The encoder fails on one step, and with it on its group."""


Given = Mapping[str, Any]
"""A row as a trainer's data has it: goal, history and completion, which may be anything."""


def given(rows: Sequence[Row]) -> list[Given]:
    return [row._asdict() | {"history": list(row.history)} for row in rows]


def conversation(text: str) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": text}]


def columns(rows: Sequence[Given]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in ("goal", "history")}


def side(row: Given) -> Any:
    """What a trainer hands over in one field: the text of a JSON object, where the row can be written so."""
    try:
        return json.dumps({"goal": row["goal"], "history": row["history"], "example_id": "one"})
    except TypeError:
        return row


def prompt_text(row: Given) -> str:
    return f"<|im_start|>user\nGoal: {row['goal']}<|im_end|>\n<|im_start|>assistant\n"


def together(ask: Callable[[Given], Any], rows: Sequence[Given]) -> list[Any]:
    """The answers to all rows, awaited at the same time."""

    async def answers() -> list[Any]:
        return list(await asyncio.gather(*map(ask, rows)))

    return asyncio.run(answers())


def by_trl(rows: Sequence[Given]) -> list[float | None]:
    completions = [
        conversation(row["completion"]) if isinstance(row["completion"], str) else row["completion"] for row in rows
    ]
    further = {"completion_ids": [[0]] * len(rows), "trainer_state": None, "prompts": [row["goal"] for row in rows]}
    return asyncio.run(alignment_reward(completions=completions, **columns(rows), **further))


def by_verl(rows: Sequence[Given]) -> list[float | None]:
    def ask(row: Given) -> Any:
        history = row["history"] if not isinstance(row["history"], list) else np.array(row["history"], object)
        info = {"goal": row["goal"], "history": history, "num_turns": None}
        return verl.compute_score("recipe", row["completion"], "", info)

    return [result["score"] for result in together(ask, rows)]


def by_verl_remote(rows: Sequence[Given]) -> list[float | None]:
    with ThreadPoolExecutor(8) as pool:
        ask = lambda row: verl.compute_score_sync("recipe", row["completion"], side(row), {"num_turns": 1})["score"]  # noqa: E731
        return list(pool.map(ask, rows))


def openrlhf_query(row: Given) -> Any:
    return (
        prompt_text(row) + row["completion"] + "<|im_end|>" if isinstance(row["completion"], str) else row["completion"]
    )


def by_openrlhf(rows: Sequence[Given]) -> list[float | None]:
    def ask(row: Given) -> Any:
        return asyncio.to_thread(openrlhf.reward_func, [openrlhf_query(row)], [prompt_text(row)], [side(row)])

    return [result["rewards"][0] for result in together(ask, rows)]


def by_verifiers(rows: Sequence[Given]) -> list[float | None]:
    def ask(row: Given) -> Any:
        task = SimpleNamespace(goal=row["goal"], history=row["history"], prompt=None)
        return verifiers.alignment(task=task, trace=SimpleNamespace(last_reply=row["completion"]))

    return together(ask, rows)


def by_easyr1(rows: Sequence[Given]) -> list[float | None]:
    inputs = [{"response": row["completion"], "response_length": 9, "ground_truth": side(row)} for row in rows]
    return [scores["overall"] for scores in easyr1.compute_score(inputs)]


def by_ms_swift(rows: Sequence[Given]) -> list[float | None]:
    completions = [row["completion"] for row in rows]
    return ms_swift.AlignmentReward(args=None)(completions, **columns(rows), trainer_state=None)


def by_ms_swift_async(rows: Sequence[Given]) -> list[float | None]:
    completions = [row["completion"] for row in rows]
    return asyncio.run(ms_swift.AsyncAlignmentReward(args=None)(completions, **columns(rows), messages=completions))


Trainer = Callable[[Sequence[Given]], list[float | None]]
TAKES_NONE: dict[str, Trainer] = {"TRL": by_trl, "ms-swift": by_ms_swift, "ms-swift, asynchronous": by_ms_swift_async}
TAKES_NO_NONE: dict[str, Trainer] = {
    "verl": by_verl,
    "verl, manager remote": by_verl_remote,
    "OpenRLHF, local": by_openrlhf,
    "verifiers": by_verifiers,
    "EasyR1": by_easyr1,
}


SETTINGS = 'verifier = "grounded"\n[grounded]\npool_size = 2\nbackground_size = 2\n'


@pytest.fixture(scope="module")
def folder(talks_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, and settings beside it that are not the defaults."""
    path = tmp_path_factory.mktemp("contract")
    (path / "reward.toml").write_text(SETTINGS)
    return Path(shutil.copytree(talks_folder, path / "corpus"))


@pytest.fixture(scope="module")
def verifier(folder: Path) -> Verifier:
    return Verifier(Corpus.open(folder), load_config(folder.parent / "reward.toml", RewardConfig))


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """The real service on a real port, with a verifier of its own."""
    own = Verifier(Corpus.open(folder), load_config(folder.parent / "reward.toml", RewardConfig))
    with served(create_app(own)) as url:
        yield url


@pytest.fixture
def one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure of the service to compute is not asked about again."""
    monkeypatch.setattr("recipe.reward.client.ServiceClient.most_tries", {"compute_failed": 1})


@pytest.fixture(params=["corpus", "service"])
def origin(
    request: pytest.FixtureRequest,
    folder: Path,
    address: str,
    one_try: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """What the environment names: a corpus that is scored with in this process, or the service; no test shares it."""
    for name in ("RECIPE_CORPUS", "RECIPE_REWARD_CONFIG", "RECIPE_SERVICE", "RECIPE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    if request.param == "corpus":
        monkeypatch.setenv("RECIPE_CORPUS", str(folder))
        monkeypatch.setenv("RECIPE_REWARD_CONFIG", str(shutil.copy(folder.parent / "reward.toml", tmp_path)))
    else:
        monkeypatch.setenv("RECIPE_SERVICE", address)
        monkeypatch.setenv("RECIPE_TOKEN", tmp_path.name)
    return str(request.param)


def expected(verifier: Verifier, rows: Sequence[Row]) -> Any:
    """Each row scored by itself. Sums of float32 in another order differ in the last digit."""
    totals = [
        verifier.score(history=row.history, continuations=[plan_steps(row.completion)], goal=row.goal)[0].total
        for row in rows
    ]
    return pytest.approx(totals, abs=1e-6)


@pytest.mark.parametrize("name", TAKES_NONE | TAKES_NO_NONE)
def test_the_same_plan_earns_the_same_number(name: str, origin: str, verifier: Verifier) -> None:
    totals = (TAKES_NONE | TAKES_NO_NONE)[name](given(ROWS))
    assert totals == expected(verifier, ROWS)
    assert totals[2] == totals[3] == totals[4] == pytest.approx(0.0)
    assert len({round(total, 4) for total in totals if total is not None}) > 8


@pytest.mark.usefixtures("encoder_fails")
@pytest.mark.parametrize("name", TAKES_NONE)
def test_a_failure_is_none_for_its_group(name: str, origin: str, verifier: Verifier) -> None:
    tea, lost, more_tea, saved = TAKES_NONE[name](given(FAILING))
    assert lost is saved is None
    assert [tea, more_tea] == expected(verifier, ROWS[:2])


@pytest.mark.usefixtures("encoder_fails")
@pytest.mark.parametrize("name", TAKES_NO_NONE)
def test_where_none_is_not_taken_a_failure_is_an_error(name: str, origin: str, verifier: Verifier) -> None:
    with pytest.raises(ComputeError, match="the encoder is down"):
        TAKES_NO_NONE[name](given(FAILING))
    assert source.reward_source().failures > 0
    assert TAKES_NO_NONE[name](given(ROWS[:1])) == expected(verifier, ROWS[:1])


@pytest.mark.parametrize("origin", ["service"], indirect=True)
@pytest.mark.parametrize("name", TAKES_NONE | TAKES_NO_NONE)
def test_a_completion_beyond_the_services_limits_costs_no_other_prompt_its_reward(
    name: str, origin: str, verifier: Verifier
) -> None:
    wild = Row("fry eggs", ("crack two eggs",), "\n".join(f"stir {n}" for n in range(1000)))
    rows = [ROWS[0], wild, ROWS[-2]]
    if name in TAKES_NO_NONE:
        with pytest.raises(InputError, match="1000 steps"):
            TAKES_NO_NONE[name](given(rows))
        return
    tea, refused, eggs = TAKES_NONE[name](given(rows))
    assert refused is None
    assert [tea] == expected(verifier, rows[:1])
    # ms-swift counts a lone None as 0, so that it costs the group; elsewhere the others of the group keep theirs.
    assert eggs is None if name.startswith("ms-swift") else [eggs] == expected(verifier, rows[2:])


@pytest.mark.parametrize("name", TAKES_NONE | TAKES_NO_NONE)
def test_a_first_batch_that_cannot_be_read_stops_the_run(name: str, origin: str) -> None:
    blank = given([Row("make tea", (" ",), "1. pour")])
    with pytest.raises(InputError, match=r"blank|empty"):
        (TAKES_NONE | TAKES_NO_NONE)[name](blank)
    if name in TAKES_NONE:  # a bad prompt may fill a batch of its own
        assert None not in TAKES_NONE[name](given(ROWS[:1]))
        assert TAKES_NONE[name](blank) == [None]


HALF = "warm \udfff the pot"
PLAN = COMPLETIONS["another"]
UNREADABLE: dict[str, dict[str, Any]] = {
    "no goal": {"goal": None},
    "a goal of NaN": {"goal": math.nan},
    "a goal that is a list": {"goal": ["make tea"]},
    "half a character in the goal": {"goal": HALF},
    "no history": {"history": None},
    "a history of NaN": {"history": math.nan},
    "a history of NumPy's NaN": {"history": np.float64("nan")},
    "a history that is a text": {"history": "boil the water"},
    "a number in the history": {"history": ["boil the water", 3]},
    "None in the history": {"history": np.array(["boil the water", None], object)},
    "a list in the history": {"history": [["boil the water"]]},
    "a history of two dimensions": {"history": np.array([["boil the water"]])},
    "half a character in the history": {"history": ["boil the water", HALF]},
    "half a character in a history as JSON": {"history": '["\\ud800 boil"]'},
    "half a character in the completion": {"completion": f"1. {HALF}"},
    "no completion": {"completion": None},
}
"""What every trainer may hand over in place of a field of a row, where its data or its policy is broken."""
TURNS: dict[str, Any] = {
    "no message": [],
    "a number": 3,
    "NaN": math.nan,
    "no content": [{"role": "assistant"}],
    "no content behind a good turn": [{"role": "assistant", "content": PLAN}, {"role": "assistant", "tool_calls": []}],
    "a tool's turn alone": [{"role": "tool", "content": PLAN}],
    "a user's turn alone": [{"role": "user", "content": [{"type": "text", "text": PLAN}]}],
    "content of NaN": [{"role": "assistant", "content": math.nan}],
    "parts that are none": [{"role": "assistant", "content": [None]}],
    "a part whose text is a number": [{"role": "assistant", "content": [{"type": "text", "text": 3}]}],
    "half a character in a part": [{"role": "assistant", "content": [{"type": "text", "text": HALF}]}],
}
"""Conversations that hold no completion."""
GOOD: list[dict[str, Any]] = [
    {"goal": row.goal, "history": history, "completion": completion}
    for row, turn in ((row, conversation(row.completion)) for row in (Row("make tea", HISTORY, PLAN), *ROWS[-2:]))
    for history in (list(row.history), row.history, np.array(row.history, object), json.dumps(row.history))
    for completion in (row.completion, turn, [*turn, {"role": "tool", "content": "done"}])
]
BAD = [
    *(GOOD[0] | change for change in UNREADABLE.values()),
    *(GOOD[0] | {"completion": turns} for turns in TURNS.values()),
]


@pytest.mark.parametrize("name", ["TRL", "ms-swift"])
def test_rows_that_cannot_be_read_cost_no_other_row_its_reward(
    name: str, origin: str, caplog: pytest.LogCaptureFixture
) -> None:
    alone = {place: TAKES_NONE[name]([row])[0] for place, row in enumerate(GOOD)}

    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @drawn(
        st.lists(st.integers(0, len(GOOD) - 1), min_size=1, max_size=6),
        st.lists(st.tuples(st.integers(0, len(BAD) - 1), st.integers(0, 6)), max_size=6),
    )
    def holds(good: list[int], bad: list[tuple[int, int]]) -> None:
        caplog.clear()
        rows = [GOOD[place] for place in good]
        want = [alone[place] for place in good]
        for which, at in bad:
            rows.insert(at, BAD[which])
            want.insert(at, None)
        if name == "ms-swift":  # where a None counts as 0 unless its whole group is None
            lost = {repr((row["goal"], row["history"])) for row, total in zip(rows, want, strict=True) if total is None}
            mates = [repr((row["goal"], row["history"])) in lost for row in rows]
            want = [None if mate else total for mate, total in zip(mates, want, strict=True)]
        before = source.reward_source().failures
        totals = TAKES_NONE[name](rows)
        assert [total is None for total in totals] == [total is None for total in want]
        assert [total or 0 for total in totals] == pytest.approx([total or 0 for total in want], abs=1e-6)
        assert source.reward_source().failures == before + len(bad)
        assert len(caplog.records) == len(bad)

    holds()
    for name_of_case, row in zip((*UNREADABLE, *TURNS), BAD, strict=True):
        assert TAKES_NONE[name]([row]) == [None], name_of_case


@pytest.mark.parametrize("name", TAKES_NO_NONE)
def test_where_none_is_not_taken_a_bad_row_is_an_error_that_names_its_field(name: str, origin: str) -> None:
    for case, change in UNREADABLE.items():
        before = source.reward_source().failures
        with pytest.raises(InputError, match="completion|query" if "completion" in change else next(iter(change))):
            TAKES_NO_NONE[name]([GOOD[0] | change])
        assert source.reward_source().failures == before + 1, case
    assert TAKES_NO_NONE[name](GOOD[:1]) == pytest.approx(by_trl(GOOD[:1]), abs=1e-6)


def test_every_sample_of_a_batch_has_the_same_parts(origin: str) -> None:
    rows = given(ROWS)
    scores = together(lambda row: verl.compute_score("recipe", row["completion"], side(row)), rows)
    logs = [openrlhf.reward_func([openrlhf_query(r)], [prompt_text(r)], [side(r)])["extra_logs"] for r in rows]
    for batch in (scores, logs):
        assert len({frozenset(sample) for sample in batch}) == 1
        assert {"rho", "steps", "aligned_full"} <= set(batch[0])


Post = Callable[[str, object], Any]


@pytest.fixture
def post(address: str) -> Iterator[Post]:
    with httpx2.Client(base_url=address, timeout=300) as http:
        yield lambda path, body: http.post(path, json=body)


def verify_request(row: Row) -> dict[str, Any]:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": row.completion}]}
    metadata = {"goal": row.goal, "history": json.dumps(row.history)}
    return {"responses_create_params": {"input": [], "metadata": metadata}, "response": {"output": [message]}}


def openrlhf_request(row: Row) -> dict[str, Any]:
    [own] = given([row])
    return {"query": [openrlhf_query(own)], "prompts": [prompt_text(own)], "labels": [side(own)]}


def test_every_endpoint_gives_the_same_number(post: Post, verifier: Verifier) -> None:
    completions = [{"goal": row.goal, "history": row.history, "completion": row.completion} for row in ROWS]
    plans = [{"goal": row.goal, "history": row.history, "continuation": plan_steps(row.completion)} for row in ROWS]
    want = expected(verifier, ROWS)
    assert [post("/score", body).json()["reward"]["total"] for body in completions] == want
    assert [post("/score", body).json()["reward"]["total"] for body in plans] == want
    assert [post("/get_reward", openrlhf_request(row)).json()["rewards"][0] for row in ROWS] == want
    assert [post("/verify", verify_request(row)).json()["reward"] for row in ROWS] == want


def test_the_client_gives_the_verifiers_reward_with_every_part(address: str, verifier: Verifier) -> None:
    plans = [plan_steps(text) for text in COMPLETIONS.values()]
    want = verifier.score(history=HISTORY, continuations=plans, goal="make tea")
    rewards = source.reward_source({"service": address}).score_each(ROWS[: len(plans)])
    assert [reward.total for reward in rewards] == pytest.approx([reward.total for reward in want], abs=1e-6)
    for reward, local in zip(rewards, want, strict=True):
        assert [hit.narration for hit in reward.pool] == [hit.narration for hit in local.pool]
        assert (reward.best_narration, reward.steps, reward.gated) == (local.best_narration, local.steps, local.gated)
        assert reward.parts == pytest.approx(local.parts, abs=1e-6)


@pytest.mark.usefixtures("encoder_fails", "one_try")
def test_no_endpoint_gives_a_failure_a_number(address: str, post: Post) -> None:
    body = {"goal": LOST.goal, "history": LOST.history, "completion": LOST.completion}
    for path, request in (("/score", body), ("/get_reward", openrlhf_request(LOST))):
        answer = post(path, request)
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "compute_failed"
    verdict = post("/verify", verify_request(LOST)).json()
    assert verdict["_ng_failure_class"] == "judge_failed"  # what NeMo-Gym leaves out and asks for again
    with pytest.raises(ComputeError, match="the encoder is down"):
        source.reward_source({"service": address}).score_each([LOST])


def test_neither_or_both_origins_are_told_of(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    for name in ("RECIPE_CORPUS", "RECIPE_REWARD_CONFIG", "RECIPE_SERVICE", "RECIPE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=r"neither .* RECIPE_CORPUS and RECIPE_SERVICE"):
        source.reward_source()
    with pytest.raises(ConfigError, match="both"):
        source.reward_source({"corpus": str(folder), "service": "http://localhost:1"})
    monkeypatch.setenv("RECIPE_SERVICE", "http://localhost:1")
    local = source.reward_source({"corpus": folder})
    assert local is source.reward_source({"corpus": str(folder), "reward_router_address": "other keys are let be"})
    assert local is not source.reward_source()
