"""What frames say of steps: read from a stand-in's probabilities, kept, mixed into the reward, and explained."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models.endpoint_server import Reply, Server, completion, serving
from tests.reward.conftest import MemoryCorpus
from typer.testing import CliRunner

from recipe.cli.reward import app
from recipe.config import FrameQuestionsConfig, RewardConfig
from recipe.errors import BudgetSpent, ComputeError, InputError
from recipe.explain.explain import as_row, explain
from recipe.explain.records import Links
from recipe.reward.frames import FrameQuestions, SeenStep, frames_score, yes_share
from recipe.reward.scorer import PromptGroup, outcomes_of
from recipe.reward.verifier import Verifier
from recipe.types import Example, Frames, Reward

pytest.importorskip("openai")

HISTORY = ("boil the water", "warm the pot")
PLAN = ["warm the pot", "pour the water"]
EXAMPLE = Example("e/1", "here", "v1", "tea", HISTORY, ("put tea leaves in the pot",), 2, until=1.5)
YES = {"boil the water": (0.9, 0.1), "warm the pot": (0.8, 0.2), "pour the water": (0.25, 0.6)}
"""P(done) and P(next) that the stand-in has for a step."""


def clip(seed: int = 0) -> Frames:
    images = np.random.default_rng(seed).integers(0, 256, (2, 28, 28, 3), dtype=np.uint8)
    return Frames(images, np.array([0.5, 1.0]), 2.0)


def told(likeliest: dict[str, float] | None) -> Reply:
    """An answer whose first tokens have these probabilities; None gives no log-probabilities."""
    body = json.loads(completion("yes").body)
    if likeliest is not None:
        listed = [{"token": text, "logprob": math.log(p), "bytes": None} for text, p in likeliest.items()]
        body["choices"][0]["logprobs"] = {"content": [listed[0] | {"top_logprobs": listed}]}
    return Reply(body=json.dumps(body))


def by_step(body: dict[str, Any], _: int) -> Reply:
    """Half of the mass is on other words, and yes and no have several spellings."""
    text = body["messages"][-1]["content"][-1]["text"]
    [step] = [step for step in YES if f"\n{step}\n" in text]
    yes = YES[step]["completed this step" not in text]
    return told({"Yes": yes / 4, " yes": yes / 4, "No": (1 - yes) / 4, "▁NO.": (1 - yes) / 4, "The": 0.5})


@contextmanager
def asking(
    answer: Callable[[dict[str, Any], int], Reply] = by_step, **settings: Any
) -> Iterator[tuple[Server, FrameQuestions]]:
    """A stand-in, and the questions that are put to it about the example."""
    with serving(answer) as server:
        config = FrameQuestionsConfig(model="m", endpoint=server.url, **settings)
        questions = FrameQuestions(config)
        questions.show([EXAMPLE], lambda _: clip())
        yield server, questions


@given(
    st.floats(0.02, 1.0),
    st.floats(0.0, 1.0),
    st.lists(st.sampled_from(["yes", "Yes", " YES", "▁yes", "yes."]), min_size=1),
)
def test_spellings_of_a_word_count_together(mass: float, share: float, spellings: list[str]) -> None:
    yes = [(text, math.log(max(mass * share / len(spellings), 1e-12))) for text in spellings]
    found = yes_share([*yes, ("No", math.log(max(mass * (1 - share), 1e-12)))])
    assert found == pytest.approx(share, abs=1e-6)


@pytest.mark.parametrize("word", ["yesterday", "not", "none", "The", "", "y"])
def test_another_word_is_neither(word: str) -> None:
    assert yes_share([(word, 0.0)]) is None


def test_a_plan_of_new_steps_whose_first_is_ready_scores_highest() -> None:
    assert frames_score([SeenStep(0.0, 1.0), SeenStep(0.0, 0.0)]) == 1.0
    assert frames_score([SeenStep(1.0, 0.0)]) == 0.0
    assert frames_score([]) == 0.0


def test_the_probabilities_are_those_of_the_first_token() -> None:
    with asking() as (server, questions):
        seen = questions.seen("tea", HISTORY, [*PLAN, "pour the water"])
        assert seen == [pytest.approx(YES[step]) for step in (*PLAN, "pour the water")]
        assert len(server.requests) == 4  # two questions about each of two steps
        body = server.requests[0]
        assert (body["max_tokens"], body["temperature"], body["logprobs"], body["top_logprobs"]) == (1, 0.0, True, 20)
        kinds = [part["type"] for part in body["messages"][-1]["content"]]
        assert kinds == ["text", "text", "image_url", "text", "image_url", "text"]
        texts = {request["messages"][-1]["content"][-1]["text"] for request in server.requests}
        assert len(texts) == 4
        assert all("```\ntea\n```" in text for text in texts)
        questions.seen("tea", HISTORY, PLAN)
        assert len(server.requests) == 4


def test_the_questions_may_be_worded_otherwise(tmp_path: Path) -> None:
    own = tmp_path / "own.txt"
    own.write_text("[shown]\nLook.\n[step]\n$goal\n$step\n[done]\ncompleted this step?\n[next]\nnext?\n")
    with asking(prompt=own) as (server, questions):
        [seen] = questions.seen("tea", HISTORY, PLAN[:1])
        texts = [request["messages"][-1]["content"][-1]["text"] for request in server.requests]
    assert seen == pytest.approx(YES[PLAN[0]])
    about = "\n```\ntea\n```\n```\nwarm the pot\n```\n"
    assert sorted(texts) == [f"{about}completed this step?", f"{about}next?"]


@pytest.mark.parametrize(
    ("text", "named"),
    [("Is it done?", "section"), ("[shown]\na\n[step]\n$goal\n[done]\nb\n[next]\nc", "takes"), (None, "own.txt")],
)
def test_another_text_is_no_prompt(tmp_path: Path, text: str | None, named: str) -> None:
    own = tmp_path / "own.txt"
    if text is not None:
        own.write_text(text)
    with asking(prompt=own) as (server, questions), pytest.raises(InputError, match=named) as caught:
        questions.seen("tea", HISTORY, PLAN)
    assert str(own) in str(caught.value)
    assert not server.requests


def test_answers_are_kept_by_clip_step_model_and_question(tmp_path: Path) -> None:
    with asking(cache=tmp_path) as (server, first):
        first.seen("tea", HISTORY, PLAN)
        again = FrameQuestions(first.config)
        again.show([EXAMPLE], lambda _: clip())
        assert again.seen("tea", HISTORY, PLAN) == first.seen("tea", HISTORY, PLAN)
        assert len(server.requests) == 4
        assert (again.model.ledger.answers, again.model.ledger.cached) == (0, 4)
        assert (first.model.ledger.answers, first.model.ledger.tokens_in) == (4, 400)
        later = FrameQuestions(first.config)
        later.show([EXAMPLE], lambda _: clip(1))  # another cut shows other frames
        later.seen("tea", HISTORY, PLAN)
        assert len(server.requests) == 8
        other = FrameQuestions(first.config.model_copy(update={"model": "n"}))
        other.show([EXAMPLE], lambda _: clip())
        other.seen("tea", HISTORY, PLAN)
        assert len(server.requests) == 12


def test_the_budget_holds(tmp_path: Path) -> None:
    with asking(cache=tmp_path, max_calls=3) as (server, questions):
        with pytest.raises(BudgetSpent):
            questions.seen("tea", HISTORY, PLAN)
        assert len(server.requests) == 3


def test_an_answer_that_is_neither_yes_nor_no_is_no_number() -> None:
    sentence = r"'warm the pot' is neither yes nor no but begins with 'The'"
    with (
        asking(lambda body, before: told({"The": 0.9, "yes": 0.001})) as (_, questions),
        pytest.raises(ComputeError, match=sentence),
    ):
        questions.seen("tea", HISTORY, PLAN)


def refusing(body: dict[str, Any], _: int) -> Reply:
    return Reply(400, '{"error": {"message": "logprobs are not supported"}}') if "logprobs" in body else told(None)


@pytest.mark.parametrize("answer", [refusing, lambda body, before: told(None)], ids=["refused", "left out"])
def test_an_endpoint_without_log_probabilities_is_one_sentence(answer: Callable[..., Reply]) -> None:
    with asking(answer) as (_, questions), pytest.raises(InputError, match="no log-probabilities"):
        questions.seen("tea", HISTORY, PLAN)


def test_a_text_model_is_one_sentence(tiny_model: Path) -> None:
    questions = FrameQuestions(FrameQuestionsConfig(model=str(tiny_model), device="cpu"))
    questions.show([EXAMPLE], lambda _: clip())
    with pytest.raises(InputError, match=r"reads text only.*frames\.model"):
        questions.seen("tea", HISTORY, PLAN)


def test_a_prompt_without_a_video_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("av")
    questions = FrameQuestions(FrameQuestionsConfig(model="m", endpoint="http://localhost:9/v1"))
    with pytest.raises(InputError, match="no video is known that shows what was done for 'tea'"):
        questions.seen("tea", HISTORY, PLAN)
    questions.show([EXAMPLE])
    with pytest.raises(InputError, match=r"no folder of videos is given; give --videos or frames\.videos"):
        questions.seen("tea", HISTORY, PLAN)
    folder = FrameQuestionsConfig(model="m", endpoint="http://localhost:9/v1", videos=tmp_path)
    questions = FrameQuestions(folder)
    questions.show([EXAMPLE])
    with pytest.raises(InputError, match="no video 'v1' of here"):
        questions.seen("tea", HISTORY, PLAN)


def test_a_local_model_answers_both_questions(tiny_video_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = FrameQuestionsConfig(model=str(tiny_video_model), device="cpu", batch_size=3)
    questions = FrameQuestions(config)
    questions.show([EXAMPLE], lambda _: clip())
    with questions.model as model:
        plain = model.answer

        # Its tokens are bytes, of which none is yes or no.
        def spelt(*given: Any, **options: Any) -> list[Any]:
            answers = plain(*given, **options)
            assert all(len(answer.first_tokens) == 20 for answer in answers)
            return [answer._replace(first_tokens=(("yes", -1.0), ("no", -2.0))) for answer in answers]

        monkeypatch.setattr(model, "answer", spelt)
        [seen] = questions.seen("tea", HISTORY, ["pour"])
    assert seen == pytest.approx((1 / (1 + math.exp(-1)),) * 2)


@pytest.mark.parametrize("verifier", ["paper", "grounded"])
def test_the_weight_adds_what_the_frames_say(corpus: MemoryCorpus, verifier: str) -> None:
    plans = [PLAN, ["pour the water"], []]
    plain = Verifier(corpus, RewardConfig(verifier=verifier)).score(goal="tea", history=HISTORY, continuations=plans)
    with asking(weight=0.5) as (_, questions):
        mixed = Verifier(corpus, RewardConfig(verifier=verifier, frames=questions.config))
        mixed.frames = questions
        rewards = mixed.score(goal="tea", history=HISTORY, continuations=plans)
    scores = [(1 - (0.8 + 0.25) / 2 + 0.2) / 2, (0.75 + 0.6) / 2, 0.0]
    assert [reward.parts["frames"] for reward in rewards] == pytest.approx(scores)
    for reward, before, score in zip(rewards, plain, scores, strict=True):
        assert reward.total == pytest.approx(before.total + 0.5 * score)
        assert {**reward.parts, "frames": 0.0} == {**before.parts, "frames": 0.0}


def test_without_a_weight_nothing_is_asked(corpus: MemoryCorpus) -> None:
    config = FrameQuestionsConfig(model="m", endpoint="http://localhost:9/v1")
    plain, evidence = (Verifier(corpus, RewardConfig(frames=frames)) for frames in (None, config))
    groups = [PromptGroup.of("tea", HISTORY, [PLAN])]
    assert plain.score_groups(groups) == evidence.score_groups(groups)


def test_a_failure_is_of_its_own_plans(corpus: MemoryCorpus) -> None:
    with asking(weight=1.0) as (_, questions):
        verifier = Verifier(corpus, RewardConfig(frames=questions.config))
        verifier.frames = questions
        unknown = PromptGroup.of("eggs", ["crack two eggs"], [PLAN])
        [[known], [failure]] = outcomes_of(verifier, [PromptGroup.of("tea", HISTORY, [PLAN]), unknown])
    assert isinstance(known, Reward)
    assert isinstance(failure, InputError)


def test_settings_without_frames_are_written_as_before() -> None:
    assert "frames" not in RewardConfig().model_dump()
    held = RewardConfig(frames=FrameQuestionsConfig(model="m", weight=0.25))
    assert RewardConfig.model_validate(held.model_dump()) == held


def test_an_explanation_tells_what_the_frames_say(corpus: MemoryCorpus) -> None:
    with asking() as (_, questions):
        verifier = Verifier(corpus, RewardConfig(verifier="grounded", frames=questions.config))
        verifier.frames = questions
        row = as_row(explain(verifier, HISTORY, PLAN, "tea"), Links())
    found = [step["frames"] for step in row["steps"]]
    assert [step["done"] for step in found] == pytest.approx([0.9, 0.8, 0.8, 0.25])
    assert [step["next"] for step in found] == pytest.approx([0.1, 0.2, 0.2, 0.6])
    assert "frames" not in row["reward"]["parts"]
    assert any("mean probability of 0.85" in sentence for sentence in row["summary"])
    assert any("0.53, most likely “warm the pot” (0.80)" in sentence for sentence in row["summary"])


def test_the_command_shows_the_frames_of_an_example(
    talks_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("av", "jinja2", "torch"):
        pytest.importorskip(package)
    from recipe.world.clips import write_clip

    monkeypatch.setenv("COLUMNS", "180")
    write_clip(tmp_path / "videos" / "v1.mp4", Frames(np.full((6, 28, 28, 3), 90, np.uint8), np.arange(6) / 2, 2.0))
    row = {"example_id": "e/1", "source": "here", "video_id": "v1", "goal": "tea", "until": 1.5}
    row |= {"history": HISTORY, "continuation": PLAN}
    (tmp_path / "examples.jsonl").write_text(json.dumps(row) + "\n")
    with serving(by_step) as server:
        settings = f'verifier = "grounded"\nframes = {{ model = "m", endpoint = "{server.url}", weight = 0.5 }}\n'
        (tmp_path / "reward.toml").write_text(settings)
        asked = ["explain", "--corpus", talks_folder, "--examples", tmp_path / "examples.jsonl", "--example", "e/1"]
        asked += ["--config", tmp_path / "reward.toml"]
        shown = [*asked, "--videos", tmp_path / "videos"]
        page = tmp_path / "page.html"

        def run(*arguments: object) -> Any:
            return CliRunner().invoke(app, list(map(str, arguments)))

        written = run(*shown, "--html", page)
        assert written.exit_code == 0, written.output
        value = json.loads(run(*shown, "--json").stdout)
        refused = run(*asked, "--json")
    assert "done" in written.stdout
    assert "0.25" in written.stdout
    assert "m: 6 answers about frames now and 0 from the cache" in written.stdout
    assert "from the frames of the history" in " ".join(written.stdout.split())
    assert value["frames"]["model"] == "m"
    assert value["frames"]["answers"] == 6
    assert value["steps"][-1]["frames"] == pytest.approx({"done": 0.25, "next": 0.6})
    assert "by its frames done 0.25, next 0.60" in page.read_text()
    assert isinstance(refused.exception, InputError)
    assert "give --videos or frames.videos" in str(refused.exception)
