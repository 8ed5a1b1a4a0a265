"""`recipe reward audit`: its table, its JSON, its files, and the page that needs nothing but itself."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer
from prompt_scorer import Page
from tests.conftest import built_corpus
from typer.testing import CliRunner

from recipe.cli import app
from recipe.config import SamplingConfig
from recipe.data.examples import read_examples
from recipe.data.procedures import write_procedures
from recipe.errors import InputError
from recipe.models.protocol import Answer
from recipe.planning.prediction_files import read_predictions, write_predictions
from recipe.planning.predictions import Prediction
from recipe.prompting import PLAIN
from recipe.types import Narration, Procedure, Segment, Step

TASKS = {
    "brew tea": ["boil the water", "warm the pot", "add the leaves", "pour the water", "wait a bit", "serve the tea"],
    "fix a tyre": ["lift the car", "undo the bolts", "take the wheel off", "fit the spare", "lower the car"],
    "bake bread": ["weigh flour", "mix the dough", "knead it", "let it rise", "shape a loaf", "bake it"],
}


@pytest.fixture(scope="module")
def corpus_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    told = [
        Narration(f"told {goal} {n}", tuple(Segment(f"now {step} number {n}") for step in steps))
        for goal, steps in TASKS.items()
        for n in range(4)
    ]
    return built_corpus(tmp_path_factory.mktemp("audit") / "corpus", told).folder


def rewards_of(output: str) -> dict[str, Any]:
    """The rewards in the JSON of an audit by name."""
    return {one["name"]: one for one in json.loads(output)["rewards"]}


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    write_procedures(
        path,
        [
            Procedure("home", f"{goal} {n}", goal, tuple(Step(text) for text in steps[n % 2 :] + steps[: n % 2]))
            for goal, steps in TASKS.items()
            for n in range(3)
        ],
    )
    return path


def recipe(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["reward", "audit", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_rows_without_a_goal_are_counted_and_can_be_left_out(corpus_folder: Path, tasks: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in tasks.read_text().splitlines()]
    broken = tmp_path / "broken.jsonl"
    nameless = [{**row, "video_id": f"nameless {row['video_id']}", "goal": ""} for row in rows[:2]]
    broken.write_text("".join(json.dumps(row) + "\n" for row in [rows[0], *nameless, *rows[1:]]))
    asked = ("--corpus", corpus_folder, "--verifier", "paper", "--skip-attack", "--json")
    with pytest.raises(InputError, match=r"broken.jsonl, line 2, field 'goal'.* 2 rows are unusable; --skip-bad"):
        recipe(*asked, "--procedures", broken)
    kept = rewards_of(recipe(*asked, "--procedures", broken, "--skip-bad"))
    whole = rewards_of(recipe(*asked, "--procedures", tasks))
    assert kept["paper"]["classes"] == whole["paper"]["classes"]


def test_json_maps_each_verifier_and_control_to_what_was_found(corpus_folder: Path, tasks: Path) -> None:
    asked = ("--corpus", corpus_folder, "--procedures", tasks, "--verifier", "paper", "--verifier", "paper:full")
    found = rewards_of(recipe(*asked, "--skip-attack", "--json"))
    assert list(found) == ["paper", "paper:full", "length", "relevance"]
    for one in found.values():
        assert list(one["classes"]) == list(found["length"]["classes"])
        assert one["mean"]["mean"] == pytest.approx(sum(c["mean"] for c in one["classes"].values()) / 27)
        assert all(c["reason"] or c["low"] <= c["mean"] <= c["high"] for c in one["classes"].values())
        assert [point["steps"] for point in one["filler_curve"]] == [0, 1, 2, 4, 8, 16]
        assert one["attack"] is None
        assert one["seconds"] >= 0
    assert found["length"]["length_correlation"] == pytest.approx(1.0)


@pytest.mark.thorough
def test_files_hold_the_audit_its_page_and_its_plots(corpus_folder: Path, tasks: Path, tmp_path: Path) -> None:
    folder = tmp_path / "audits" / "mine"
    shown = recipe(
        *("--corpus", corpus_folder, "--procedures", tasks, "--verifier", "paper"),
        *("--limit", 6, "--attacked", 2, "--output", folder),
    )
    pictures = {f"{name}.png" for name in ("shares", "filler", "attack", "best_of")}
    assert {path.name for path in folder.iterdir()} == {"audit.json", "audit.html", *pictures}
    record = json.loads((folder / "audit.json").read_text())
    assert record["procedures"] == {"home": 6}
    assert record["settings"]["limit"] == 6
    assert record["settings"]["verifiers"]["paper"]["pool"] == "history"
    assert rewards_of(json.dumps(record))["paper"]["attack"]["prompts"] == 2
    written = {path.name: path.read_bytes() for path in folder.iterdir()}
    for path in folder.iterdir():
        if path.name != "audit.json":
            path.unlink()
    assert CliRunner().invoke(app, ["report", str(folder)]).exit_code == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == written
    assert " ".join(record["answer"].split()[:4]) in " ".join(shown.split())
    for word in ("paper", "length", "relevance", *record["rewards"][0]["classes"]):
        assert word in shown
    assert record["answer"] in (folder / "audit.html").read_text()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (["--verifier", "papper"], typer.BadParameter, "'papper' is none of paper, paper:history"),
        (["--verifier", "paper", "--verifier", "paper=x.toml"], typer.BadParameter, "'paper' is given twice"),
        (["--sample-model", "m"], InputError, "--sample-model needs --output"),
        (["--samples", "missing.jsonl"], InputError, "missing.jsonl: the file does not exist"),
        (["--procedures", "missing.jsonl"], InputError, "missing.jsonl: the file does not exist"),
    ],
)
def test_what_cannot_be_used_is_named(
    corpus_folder: Path, tasks: Path, options: list[str], error: type[Exception], message: str
) -> None:
    asked = ["reward", "audit", "--corpus", str(corpus_folder), "--procedures", str(tasks), *options]
    with pytest.raises(error, match=re.escape(message)):
        app(asked, standalone_mode=False)


def test_prompts_are_planned_for_elsewhere_and_their_samples_are_audited(
    corpus_folder: Path, tasks: Path, tmp_path: Path
) -> None:
    prompts, samples = tmp_path / "prompts.jsonl", tmp_path / "samples-lm.jsonl"
    asked = ("--corpus", corpus_folder, "--procedures", tasks, "--limit", 5, "--verifier", "paper")
    assert "5 prompts in " in recipe(*asked, "--prompts-output", prompts)
    examples = read_examples(prompts)
    write_predictions(samples, [Prediction(one.example_id, ("wait",), n) for one in examples for n in range(2)])
    truth = tmp_path / "truth.jsonl"
    write_predictions(truth, [Prediction(one.example_id, one.continuation) for one in examples])
    systems = (word for file in (samples, f"again={samples}", truth) for word in ("--samples", file))
    found = rewards_of(recipe(*asked, *systems, "--skip-attack", "--json"))
    lm, again, true = found["paper"]["samples"].values()
    assert list(found["paper"]["samples"]) == ["lm", "again", "truth"]
    assert lm == again
    assert (lm["samples"], lm["true_wins"]["observations"], true["true_wins"]["mean"]) == (10, 5, 0.5)
    assert found["paper"]["best_of"] is None
    with pytest.raises(InputError, match="'lm' are given twice"):
        recipe(*asked, "--samples", samples, "--samples", f"lm={samples}", "--skip-attack")


@pytest.mark.thorough
def test_a_model_writes_samples_that_are_kept_beside_the_audit(
    corpus_folder: Path, tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for: list[tuple[int, int, float, int]] = []

    class Writer:
        prompt = PLAIN

        def outcomes(
            self, chats: Sequence[Any], count: int, sampling: SamplingConfig, *_: object
        ) -> list[list[Answer]]:
            asked_for.append((len(chats), count, sampling.temperature, sampling.seed))
            return [[Answer("1. wait\n2. stir\n1. wait")] * count for _ in chats]

    @contextmanager
    def open_for_command(*_: object) -> Iterator[Writer]:
        yield Writer()

    monkeypatch.setattr("recipe.cli.audit.open_for_command", open_for_command)
    folder = tmp_path / "mine"
    asked = ("--corpus", corpus_folder, "--procedures", tasks, "--limit", 5, "--verifier", "paper", "--skip-attack")
    shown = recipe(*asked, "--sample-model", "org/lm", "--samples-per-prompt", 2, "--seed", 5, "--output", folder)
    assert asked_for == [(5, 2, 1.0, 5)]
    assert "samples: org_lm" in shown
    kept = read_predictions(folder / "samples-org_lm.jsonl")
    assert [one.steps for one in kept] == [("wait", "stir")] * 10
    record = json.loads((folder / "audit.json").read_text())
    samples = rewards_of(json.dumps(record))["paper"]["samples"]
    assert samples["org_lm"]["samples"] == 10
    again = recipe(*asked, "--seed", 5, "--samples", folder / "samples-org_lm.jsonl", "--json")
    assert rewards_of(again)["paper"]["samples"] == samples


def test_the_page_needs_nothing_but_itself_and_escapes_texts(corpus_folder: Path, tasks: Path, tmp_path: Path) -> None:
    samples, folder = tmp_path / "samples.jsonl", tmp_path / "out"
    asked = ("--corpus", corpus_folder, "--procedures", tasks, "--limit", 5, "--verifier", "paper", "--attacked", 1)
    recipe(*asked, "--prompts-output", tmp_path / "prompts.jsonl")
    write_predictions(
        samples, [Prediction(one.example_id, ("wait",)) for one in read_examples(tmp_path / "prompts.jsonl")]
    )
    recipe(*asked, "--samples", f"<u>lm={samples}", "--output", folder)
    record = json.loads((folder / "audit.json").read_text())
    record["answer"] += " <p>."
    record["findings"].append("One & <two>.")
    record["procedures"] = {"<b>home": 5}
    record["settings"]["corpus"] = "corpora/<mine>"
    reward = record["rewards"][0]
    reward |= {"name": "<b>mine</b>", "unscored": ["<s>home/v: the encoder failed."]}
    reward["attack"] |= {"example_goal": 'tea & <i>"', "example": [["a<b", "true"]]}
    pages = set()
    for _ in range(2):
        (folder / "audit.json").write_text(json.dumps(record))
        assert CliRunner().invoke(app, ["report", str(folder)]).exit_code == 0
        pages.add((folder / "audit.html").read_text())
    [page] = pages
    parsed = Page(page)
    assert parsed.open == []
    assert len(parsed.values("id")) == len(set(parsed.values("id")))
    assert all(link.startswith("#") for link in parsed.values("href", "src", "xlink:href"))
    assert not re.search(r"https?://(?!www\.w3\.org)", page)
    for hostile in ("<b>mine", "<mine>", '<i>"', "a<b", "<u>lm", "<s>home", "<b>home", "<p>.", "<two>"):
        assert hostile not in page
    assert all(shown in page for shown in ("&lt;b&gt;mine", "&lt;u&gt;lm", "a&lt;b", "&lt;p&gt;."))
    assert page.index(record["answer"].partition(" <")[0]) < page.index("<table")
    defined = set(re.findall(r"(--[\w-]+):", page))
    assert set(re.findall(r"var\((--[\w-]+)\)", page)) <= defined


def test_the_papers_and_the_grounded_reward_are_audited_where_none_is_named(corpus_folder: Path, tasks: Path) -> None:
    asked = ("--corpus", corpus_folder, "--procedures", tasks, "--limit", 5, "--attacked", 1, "--json")
    found = rewards_of(recipe(*asked))
    assert list(found) == ["paper", "grounded", "length", "relevance"]
    assert found["paper"]["coverage"] is None
    assert isinstance(found["grounded"]["coverage"], float)
    assert found["grounded"]["attack"]["prompts"] == 1
