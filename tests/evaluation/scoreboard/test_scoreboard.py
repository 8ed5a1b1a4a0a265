"""What the evaluation report says: its numbers are those of the files, and none stands where it is not comparable."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from recipe.artifacts import write_jsonl
from recipe.data.examples import write_examples
from recipe.errors import InputError
from recipe.evaluation.judge.measures import RubricMeasure
from recipe.evaluation.judge.verdicts import read_verdicts, write_verdicts
from recipe.evaluation.published import JUDGE, published
from recipe.evaluation.scoreboard.accuracy import accuracy_sections, comparability, is_papers, judge_results
from recipe.evaluation.scoreboard.page import EvaluationReport, board_comparisons, make_report
from recipe.evaluation.scoreboard.sources import gather
from recipe.evaluation.scoreboard.views import gather_views
from recipe.evaluation.scores import JudgeIdentity, Row, rows_path, write_rows
from recipe.report.elements import Section, Table, TableRow

from .conftest import EXAMPLES, LLAMA, PROXY, example, write_judged


def tables(section: Section) -> list[Table]:
    return [block for block in section.blocks if isinstance(block, Table)]


def section(report: EvaluationReport, name: str) -> Section:
    return next(one for one in report.sections if one.name == name)


def row(table: Table, name: str) -> TableRow:
    return next(one for one in table.rows if one.name == name)


def test_headline_gives_the_macro_accuracy_of_the_files(whole: EvaluationReport) -> None:
    table = tables(section(whole, "accuracy-1"))[0]
    shown = [cell.text for cell in row(table, "RL").cells]
    # By hand: RL on crosstask 4, 4, 3, 4, 5, 4 of 5; on niv 3, 4, 4, 3, 4 and one unscored.
    assert shown[:2] == ["80.0", "72.0"]
    assert [cell.text for cell in row(table, "RL").cells[-6:]][2] == "1"
    assert any(one.kind == "control" for one in table.rows)


def test_every_table_names_its_judge_and_a_proxy_is_in_none_with_published_figures(whole: EvaluationReport) -> None:
    found = section(whole, "accuracy-1")
    assert any("not comparable" in warning for warning in found.warnings)
    for table in tables(found):
        kinds = {one.kind for one in table.rows}
        assert f"judge: {PROXY.name}" in table.caption or f"judge: {JUDGE}" in table.caption
        assert "control" in kinds or not table.caption.startswith("Accuracy")
        assert not {"published", ""} <= kinds
        if "published" in kinds:
            assert JUDGE in table.caption
            assert PROXY.name not in table.caption
            assert any("not comparable" in note for note in table.notes)


def test_published_rows_stand_beside_the_papers_own_judge(tmp_path: Path, examples_file: Path) -> None:
    path = write_judged(tmp_path, "mine", [3] * len(EXAMPLES), LLAMA)
    report = make_report(gather([path], [examples_file]), "t")
    headline, per_dataset = [one for one in tables(section(report, "accuracy-1")) if one.caption.startswith("Accuracy")]
    paper = row(headline, "Qwen2.5-7B RECIPE-RL")
    assert (paper.kind, [cell.text for cell in paper.cells[:2]]) == ("published", ["46.6", "46.1"])
    table = published("per_dataset")
    for heading, cell in zip(per_dataset.headings, row(per_dataset, "Qwen2.5-3B Base").cells, strict=True):
        if heading.text in ("CrossTask", "NIV"):
            key = heading.text.lower()
            assert cell.text == str(table.value("Qwen2.5-3B", "Base", key))


@pytest.mark.parametrize(
    ("judge", "papers"),
    [
        (LLAMA, True),
        (replace(LLAMA, model="", settings={"temperature": "0"}), True),
        (replace(LLAMA, kind="proxy"), False),
        (replace(LLAMA, model="meta-llama/Llama-3.3-70B-Instruct-Turbo"), False),
        (JudgeIdentity("Llama-3.3-70B-Instruct", "human"), False),
    ],
)
def test_only_the_papers_model_is_the_papers_judge(judge: JudgeIdentity, papers: bool) -> None:
    assert is_papers(judge) is papers
    assert ("not comparable" in comparability(judge)) is not papers


def test_judges_that_differ_in_prompt_alone_are_kept_apart(tmp_path: Path, examples_file: Path) -> None:
    other = replace(PROXY, prompt="0" * 64, name="proxy (hash)")
    (tmp_path / "a").mkdir()
    paths = [write_judged(tmp_path, "base", [1] * 12), write_judged(tmp_path / "a", "base", [4] * 12, other)]
    board = gather(paths, [examples_file])
    judges = judge_results(source.scores for source in board.sources)
    assert [one.name for one in judges] == ["proxy (hash) (setting 1)", "proxy (hash) (setting 2)"]
    assert board_comparisons(board) == []
    assert [one.name for one in accuracy_sections([source.scores for source in board.sources], RubricMeasure)] == [
        "accuracy-1",
        "accuracy-2",
    ]


def test_differences_are_paired_by_example_and_leave_out_what_one_lacks(
    judged_files: list[Path], examples_file: Path
) -> None:
    [(_, [compared])] = board_comparisons(gather(judged_files, [examples_file]))
    found = {one.over: one for one in compared.rows}
    assert list(found) == ["crosstask", "niv"]
    one = found["crosstask"]
    # The sixth example has no verdict for base: 1 2 1 2 1 against 4 4 3 4 5, in fifths.
    assert (one.result.difference.observations, compared.left_out["unscored"]) == (5, 2)
    assert one.result.difference.mean == pytest.approx(20 * (20 - 7) / 5)
    read = {name: value.mean for name, value in one.readings.items()}
    assert read == {
        "lowest": pytest.approx(20 * (24 - 7 - 5) / 6),
        "missing_as_0": pytest.approx(20 * (24 - 7) / 6),
        "missing_left_out": one.result.difference.mean,
        "highest": pytest.approx(20 * (24 - 7) / 6),
    }


def test_readings_have_a_table_only_where_verdicts_are_missing(tmp_path: Path, examples_file: Path) -> None:
    def read(*files: Path) -> list[list[str]]:
        report = make_report(gather(files, [examples_file]), "t")
        shown = [table for one in report.sections for table in tables(one)]
        return [[one.text for one in table.headings] for table in shown if "missing as 0" in str(table.headings)]

    whole = [write_judged(tmp_path, name, [value] * 12) for name, value in (("a", 1), ("b", 2))]
    assert read(*whole) == []
    lost = write_judged(tmp_path, "c", [3] * 10 + [None] * 2)
    assert read(lost) == [["missing as 0", "missing left out", "missing as best"]]
    assert ["lowest", "missing as 0", "highest", "missing left out"] in read(whole[0], lost)


def test_every_kind_has_its_section(whole: EvaluationReport) -> None:
    names = [one.name for one in whole.sections]
    assert names == ["accuracy-1", "diversity", "vpa", "validity", "match", "differences", "files"]
    vpa = section(whole, "vpa")
    assert "per sample" in vpa.paragraphs[0]
    assert any("true history" in warning for warning in vpa.warnings)
    assert [cell.text for cell in row(tables(vpa)[0], "RL").cells[-6:-2]] == ["50.0", "50.0", "50.0", "12"]
    diversity = section(whole, "diversity")
    levels = next(one for one in tables(diversity) if "level" in one.caption)
    assert [cell.text for cell in row(levels, "RL").cells[-4:]] == ["22 %", "0 %", "45 %", "33 %"]
    validity = section(whole, "validity")
    assert [cell.text for cell in row(tables(validity)[-1], "RL").cells] == [PROXY.name, "0.70", "0.60", "12"]
    assert "50 %" in [cell.text for cell in row(tables(validity)[0], "RL").cells]
    match = section(whole, "match")
    assert [one.name for one in tables(match)[0].rows] == ["RL", "control: the goal alone", "control: history copied"]
    assert match.findings == ("RL does not beat this control.",)
    assert [cell.text for cell in row(tables(match)[0], "control: history copied").cells[-4:-3]] == ["+0.01"]


def test_views_hold_every_plan_and_what_was_measured(whole: EvaluationReport) -> None:
    views = whole.views
    assert views.measures == (
        PROXY.name, "visual planning for assistance", "validity", "matched step F1 in order"
    )  # fmt: skip
    assert [case.example_id for case in views.examples] == [*(one.example_id for one in EXAMPLES), "v:2"]
    first = views.examples[0]
    assert (first.goal, first.history) == (EXAMPLES[0].goal, EXAMPLES[0].history)
    # RL's plan in the validity file is another one than the judge saw, so it stands apart.
    assert [(plan.system, plan.steps[-1]) for plan in first.plans.values()] == [
        (0, "pour the tea"), (1, "pour the tea"), (1, "dig a hole"),
    ]  # fmt: skip
    [plan] = views.examples[-1].plans.values()
    assert plan.actions == [["stir mixture", "stir mixture", 0.25], ["add sugar", "pour water", 0.01]]
    assert plan.scores == {1: [50.0]}
    assert [25.0] in [plan.scores.get(3) for plan in first.plans.values()]


def test_rows_missing_beside_scores_leave_tables_and_are_told(judged_files: list[Path], examples_file: Path) -> None:
    rows_path(judged_files[0]).unlink()
    report = make_report(gather(judged_files, [examples_file]), "t")
    assert "differences" not in [one.name for one in report.sections]
    assert [cell.text for cell in row(tables(section(report, "files"))[-1], "judge-base-proxy.json").cells][
        2
    ] == "missing"


@pytest.mark.parametrize(
    ("fault", "because"),
    [
        ("again", r"again.*already holds judge scores of 'RL'"),
        ("judge", r"somebody.*proxy \(hash\)"),
        ("few", r"1 .*--examples: 'crosstask-0'"),
        ("twice", "another example"),
        ("other", "no scores"),
    ],
)
def test_files_that_contradict_each_other_are_an_error(
    fault: str, because: str, tmp_path: Path, judged_files: list[Path], examples_file: Path
) -> None:
    files, examples = judged_files, [examples_file]
    if fault == "again":
        (tmp_path / "again").mkdir()
        files = [*files, write_judged(tmp_path / "again", "RL", [1] * 12)]
    elif fault == "judge":
        rows = read_verdicts(rows_path(files[0]))
        write_verdicts(rows_path(files[0]), [replace(one, judge="somebody") for one in rows])
    elif fault == "other":
        (tmp_path / "report.json").write_text(json.dumps({"title": "a run"}))
        files = [tmp_path / "report.json"]
    else:
        write_examples(tmp_path / "e.jsonl", EXAMPLES[1:] if fault == "few" else [example(0, goal="something else")])
        examples = [tmp_path / "e.jsonl"] if fault == "few" else [examples_file, tmp_path / "e.jsonl"]
    with pytest.raises(InputError, match=because):
        gather(files, examples)


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"metrics": {"score": 1}}, "example_id"),
        ({"example_id": " ", "metrics": {"score": 1}}, "example_id"),
        ({"example_id": "a", "metrics": {"score": 1}, "sample": "x"}, "sample"),
    ],
)
def test_rows_that_name_no_example_are_located(other_files: list[Path], row: dict[str, object], field: str) -> None:
    write_jsonl(rows_path(other_files[2]), [row])
    with pytest.raises(InputError, match=f"rows.jsonl, line 1.*field '{field}'"):
        gather(other_files)


def test_odd_details_are_shown_for_what_they_hold(other_files: list[Path]) -> None:
    odd = {"gold": ["a", "b"], "predicted": [1], "margins": "x", "steps": 3}
    write_rows(rows_path(other_files[1]), [Row("v:1", {"3.accuracy": 0.0}, details=odd)])
    write_rows(rows_path(other_files[2]), [Row("e", {"x": 1.0}, details={"statuses": None, "steps": ["s"]})])
    first, second = gather_views(gather(other_files[:-1])).examples
    [plan] = first.plans.values()
    assert plan.actions == [["1", "a", None], [None, "b", None]]
    [plan] = second.plans.values()
    assert (plan.metrics, plan.statuses) == ({}, [])
