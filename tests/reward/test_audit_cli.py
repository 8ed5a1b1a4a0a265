"""`recipe reward audit`: its table, its JSON, its files, and the page that needs nothing but itself."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from recipe.audit.classes import CORRUPTIONS, EDITIONS
from recipe.audit.page import render_audit
from recipe.audit.results import AttackResult, Audit, CoverageResult, Padding, RewardAudit
from recipe.cli.reward import app
from recipe.config import CorpusConfig, EncoderConfig
from recipe.corpus.build import build_corpus
from recipe.data.procedures import write_procedures
from recipe.errors import InputError
from recipe.stats import Interval
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
    folder = tmp_path_factory.mktemp("audit") / "corpus"
    return build_corpus(told, folder, CorpusConfig(encoder=EncoderConfig(name="hash:64")))


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
    result = CliRunner().invoke(app, ["audit", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_json_maps_each_verifier_and_control_to_what_was_found(corpus_folder: Path, tasks: Path) -> None:
    asked = ("--corpus", corpus_folder, "--procedures", tasks, "--verifier", "paper", "--verifier", "paper:full")
    found = json.loads(recipe(*asked, "--skip-attack", "--json"))
    assert list(found) == ["paper", "paper:full", "length", "relevance"]
    for one in found.values():
        assert list(one["classes"]) == list(CORRUPTIONS)
        assert one["worst"] == one["classes"][one["worst_class"]]["p"] == min(c["p"] for c in one["classes"].values())
        assert one["mean"] == pytest.approx(sum(c["p"] for c in one["classes"].values()) / 27)
        assert all(c["low"] <= c["p"] <= c["high"] for c in one["classes"].values())
        assert [point["steps"] for point in one["filler_curve"]] == [0, 1, 2, 4, 8, 16]
        assert one["attack"] is None
        assert one["seconds"] >= 0
    assert found["length"]["length_correlation"] == pytest.approx(1.0)
    first = json.loads(recipe(*asked, "--skip-attack", "--json", "--classes", "v1"))
    assert first["length"]["mean"] == pytest.approx(0.5)
    for name, one in first.items():
        assert list(one["classes"]) == list(EDITIONS["v1"])
        assert one["classes"] == {kind: found[name]["classes"][kind] for kind in EDITIONS["v1"]}


def test_files_hold_the_audit_its_page_and_its_plots(corpus_folder: Path, tasks: Path, tmp_path: Path) -> None:
    folder = tmp_path / "audits" / "mine"
    shown = recipe(
        *("--corpus", corpus_folder, "--procedures", tasks, "--verifier", "paper"),
        *("--limit", 6, "--attacked", 2, "--output", folder),
    )
    assert {path.name for path in folder.iterdir()} == {"audit.json", "audit.html", "filler.png", "attack.png"}
    record = json.loads((folder / "audit.json").read_text())
    assert record["procedures"] == {"home": 6}
    assert record["settings"]["limit"] == 6
    assert record["settings"]["verifiers"]["paper"]["pool"] == "history"
    assert record["verifiers"]["paper"]["attack"]["prompts"] == 2
    assert " ".join(record["answer"].split()[:4]) in " ".join(shown.split())
    for word in ("paper", "length", "relevance", *CORRUPTIONS):
        assert word in shown
    assert record["answer"] in (folder / "audit.html").read_text()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (["--verifier", "papper"], typer.BadParameter, "'papper' is none of paper, paper:history"),
        (["--procedures", "missing.jsonl"], InputError, "missing.jsonl: the file does not exist"),
    ],
)
def test_what_cannot_be_used_is_named(
    corpus_folder: Path, tasks: Path, options: list[str], error: type[Exception], message: str
) -> None:
    asked = ["audit", "--corpus", str(corpus_folder), "--procedures", str(tasks), *options]
    with pytest.raises(error, match=re.escape(message)):
        app(asked, standalone_mode=False)


def some_audit(**changes: Any) -> Audit:
    share = Interval(0.62, 0.55, 0.7, 40, 9)
    reward = RewardAudit(
        name="<b>mine</b>",
        prompts=40,
        unscored=("home/v: the encoder failed.",),
        mean=share,
        groups={"order": share},
        classes=dict.fromkeys(list(CORRUPTIONS)[:4], share),
        alternative=None,
        over_relevance=None,
        length_correlation=None,
        gated=0.25,
        gated_corrupted=0.5,
        coverage=0.3,
        abstained=0.0,
        mean_by_coverage=(0.5, 0.6, 0.7),
        filler_curve=tuple(Padding(n, Interval(0.1 * n, 0.1 * n - 1, 0.1 * n + 1), 0.5) for n in (0, 4, 16)),
        attack=AttackResult(
            9, share, 1.5, {"true": 0.5, "filler": 0.5}, 0.1, 0.0, 3.0, "tea & <i>", (("a<b", "true"),)
        ),
        seconds=1.25,
    )
    parts: dict[str, Any] = {
        "settings": {"corpus": "corpora/<mine>", "procedures": ["a.jsonl", "b.jsonl"], "limit": None},
        "procedures": {"home": 40},
        "left_out": {},
        "answer": "The corpus covers these tasks.",
        "findings": ("One & two.",),
        "coverage": CoverageResult(share, {"home": share}, 0.3, 0.1),
        "rewards": (reward,),
    }
    return Audit(**(parts | changes))


class Elements(HTMLParser):
    """Ids, links, and tags left open."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.links += [value for name, value in attrs if name in ("href", "src", "xlink:href") and value]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_needs_nothing_but_itself_and_escapes_texts() -> None:
    page = render_audit(some_audit())
    elements = Elements(page)
    assert elements.open == []
    assert len(elements.ids) == len(set(elements.ids))
    assert all(link.startswith("#") for link in elements.links)
    assert not re.search(r"https?://(?!www\.w3\.org)", page)
    for hostile in ("<b>mine", "<mine>", '<i>"', "a<b"):
        assert hostile not in page
    assert page.index("The corpus covers these tasks.") < page.index("<table")
    defined = set(re.findall(r"(--[\w-]+):", page))
    assert set(re.findall(r"var\((--[\w-]+)\)", page)) <= defined
    assert render_audit(some_audit()) == page


def test_a_page_without_attack_and_coverage_leaves_them_out() -> None:
    [reward] = some_audit().rewards
    changes = {name: getattr(reward, name) for name in RewardAudit.__dataclass_fields__}
    bare = RewardAudit(**changes | {"attack": None, "coverage": None, "mean_by_coverage": ()})
    page = render_audit(some_audit(coverage=None, rewards=(bare,)))
    assert 'id="attack"' not in page
    assert "as it reports" not in page
    assert "covers least" not in page


def test_the_papers_and_the_grounded_reward_are_audited_where_none_is_named(corpus_folder: Path, tasks: Path) -> None:
    asked = ("--corpus", corpus_folder, "--procedures", tasks, "--limit", 4, "--attacked", 1, "--json")
    found = json.loads(recipe(*asked))
    assert list(found) == ["paper", "grounded", "length", "relevance"]
    assert found["paper"]["coverage"] is None
    assert isinstance(found["grounded"]["coverage"], float)
    assert found["grounded"]["attack"]["prompts"] == 1
