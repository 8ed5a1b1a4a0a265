"""What the evaluation report says: its numbers are those of the files, and none stands where it is not comparable."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from recipe.data.examples import write_examples
from recipe.errors import InputError
from recipe.evaluation.judge.verdicts import read_verdicts, write_verdicts
from recipe.evaluation.published import JUDGE, published
from recipe.evaluation.scores import JudgeIdentity, Row, read_rows, rows_path, write_rows

from .conftest import EXAMPLES, LLAMA, PROXY, Report, example, write_judged

ACCURACY = f"Accuracy by {PROXY.name}"
DIFFERENCES = "Systems against each other"


def captioned(report: Report, section: str, start: str) -> dict[str, dict[str, str]]:
    """The table whose caption starts so."""
    return next(table for caption, table in report.tables(section).items() if caption.startswith(start))


def test_headline_gives_the_macro_accuracy_of_the_files(whole: Report) -> None:
    table = captioned(whole, ACCURACY, "Accuracy · ")
    # By hand: RL on crosstask 4, 4, 3, 4, 5, 4 of 5; on niv 3, 4, 4, 3, 4 and one unscored.
    assert [cell.split(" ")[0] for cell in [*table["RL"].values()][:2]] == ["80.0", "72.0"]
    assert table["RL"]["unscored, counts"] == "1"
    assert any(name.startswith("control: ") for name in table)


def test_every_table_names_its_judge_and_a_proxy_is_in_none_with_published_figures(whole: Report) -> None:
    assert "not comparable" in whole.sections[ACCURACY].partition("**Accuracy")[0]
    for caption, table in whole.tables(ACCURACY).items():
        names = {*table}
        if caption.startswith("Published"):
            assert caption.endswith(f"judge: {JUDGE}")
            assert not names & {"RL", "base"}
        else:
            assert caption.endswith(f"judge: {PROXY.name}")
            assert not any("Qwen" in name for name in names)
            assert "control: reference" in names or not caption.startswith("Accuracy")


def test_published_rows_stand_beside_the_papers_own_judge(tmp_path: Path, examples_file: Path) -> None:
    path = write_judged(tmp_path, "mine", [3] * len(EXAMPLES), LLAMA)
    report = Report([path], [examples_file])
    [section] = [name for name in report.sections if name.startswith("Accuracy")]
    headline, per_dataset = (captioned(report, section, start) for start in ("Accuracy · ", "Accuracy on each"))
    assert [*headline["Qwen2.5-7B RECIPE-RL (the paper)"].values()][:2] == ["46.6", "46.1"]
    assert "mine" in headline
    table = published("per_dataset")
    compared = {heading.partition(",")[0]: text for heading, text in per_dataset["Qwen2.5-3B Base (the paper)"].items()}
    for name in ("CrossTask", "NIV"):
        assert compared[name] == str(table.value("Qwen2.5-3B", "Base", name.lower()))


@pytest.mark.parametrize(
    ("judge", "papers"),
    [
        (replace(LLAMA, model="", settings={"temperature": "0"}), True),
        (replace(LLAMA, kind="proxy"), False),
        (replace(LLAMA, model="meta-llama/Llama-3.3-70B-Instruct-Turbo"), False),
    ],
)
def test_only_the_papers_model_is_the_papers_judge(
    judge: JudgeIdentity, papers: bool, tmp_path: Path, examples_file: Path
) -> None:
    report = Report([write_judged(tmp_path, "mine", [3] * len(EXAMPLES), judge)], [examples_file])
    [section] = [name for name in report.sections if name.startswith("Accuracy")]
    assert ("Qwen2.5-7B RECIPE-RL (the paper)" in captioned(report, section, "Accuracy · ")) is papers
    assert ("not comparable" in report.sections[section].partition("**Accuracy")[0]) is not papers


def test_judges_that_differ_in_prompt_alone_are_kept_apart(tmp_path: Path, examples_file: Path) -> None:
    other = replace(PROXY, prompt="0" * 64, name="proxy (hash)")
    (tmp_path / "a").mkdir()
    paths = [write_judged(tmp_path, "base", [1] * 12), write_judged(tmp_path / "a", "base", [4] * 12, other)]
    report = Report(paths, [examples_file])
    assert [name for name in report.sections if name.startswith("Accuracy")] == [
        f"{ACCURACY} (setting 1)",
        f"{ACCURACY} (setting 2)",
    ]
    assert DIFFERENCES not in report.sections


def test_differences_are_paired_by_example_and_leave_out_what_one_lacks(whole: Report) -> None:
    rows = captioned(whole, DIFFERENCES, "Paired differences")
    assert [row["over"] for row in rows.values()] == ["niv"]  # the last of the rows of one name
    assert "| RL − base | crosstask | **+52.0**" in whole.sections[DIFFERENCES]
    # The sixth example has no verdict for base: 1 2 1 2 1 against 4 4 3 4 5, in fifths.
    assert (rows["RL − base"]["examples"], rows["RL − base"]["left out"]) == ("5", "2")
    read = captioned(whole, DIFFERENCES, "Where verdicts are missing")["RL − base · crosstask"]
    assert f"+{20 * (24 - 7) / 6:.1f}" in read["missing as 0"]


def test_readings_have_a_table_only_where_verdicts_are_missing(tmp_path: Path, examples_file: Path) -> None:
    def read(*files: Path) -> list[list[str]]:
        report = Report(files, [examples_file])
        headings = [[*next(iter(table.values()))] for one in report.sections for table in report.tables(one).values()]
        return [one for one in headings if "missing as 0" in one]

    scored = [write_judged(tmp_path, name, [value] * 12) for name, value in (("a", 1), ("b", 2))]
    assert read(*scored) == []
    lost = write_judged(tmp_path, "c", [3] * 10 + [None] * 2)
    assert read(lost) == [["missing as 0", "missing left out", "missing as best"]]
    assert ["lowest", "missing as 0", "highest", "missing left out"] in read(scored[0], lost)


def test_every_kind_has_its_section(whole: Report) -> None:
    kinds = ("Procedural diversity", "Visual planning for assistance", "Validity", "Matched step F1 in order")
    assert [*whole.sections][:-1] == [ACCURACY, *kinds, DIFFERENCES]
    diversity, vpa, validity, match = (whole.tables(kind) for kind in kinds)
    assert "per sample" in whole.sections[kinds[1]]
    assert "true history" in whole.sections[kinds[1]].partition("\n\n\n")[0]
    figures = vpa[kinds[1]]["RL"]
    assert [figures[name].split(" ")[0] for name in ("SR, T=4", "mAcc, T=4", "mIoU, T=4", "plans")] == [
        "50.0", "50.0", "50.0", "12",
    ]  # fmt: skip
    levels = next(table for caption, table in diversity.items() if "level" in caption)
    assert [*levels["RL"].values()][-4:] == ["22 %", "0 %", "45 %", "33 %"]
    agreement = validity["Agreement of judges with validity"]["RL"]
    assert [text.split(" (")[0] for text in agreement.values()] == ["proxy", "0.70", "0.60", "12"]
    assert validity["Validity"]["RL"]["foreign steps"].startswith("50 %")
    assert [*match[kinds[3]]] == ["RL", "control: the goal alone", "control: history copied"]
    assert "* RL does not beat this control." in whole.sections[kinds[3]]
    assert match[kinds[3]]["control: history copied"]["system minus control"].startswith("+0.01 ")


def test_the_page_holds_every_plan_and_what_was_measured(whole: Report) -> None:
    data = whole.data
    assert data["measures"] == [
        PROXY.name, "visual planning for assistance", "validity", "matched step F1 in order"
    ]  # fmt: skip
    assert [one["id"] for one in data["examples"]] == [*(one.example_id for one in EXAMPLES), "v:2"]
    first, last = data["examples"][0], data["examples"][-1]
    assert (first["g"], tuple(first["h"])) == (EXAMPLES[0].goal, EXAMPLES[0].history)
    # RL's plan in the validity file is another one than the judge saw, so it stands apart.
    assert [(plan["y"], plan["t"][-1]) for plan in first["p"]] == [
        (0, "pour the tea"), (1, "pour the tea"), (1, "dig a hole"),
    ]  # fmt: skip
    assert 25.0 in [plan["m"][3] for plan in first["p"]]
    [plan] = last["p"]
    assert plan["a"] == [["stir mixture", "stir mixture", 0.25], ["add sugar", "pour water", 0.01]]
    assert plan["m"] == [None, 50.0, None, None]


def test_one_plan_by_one_measure_with_two_encoders_has_two_scores(
    tmp_path: Path, other_files: list[Path], examples_file: Path
) -> None:
    again = tmp_path / "other.json"
    again.write_text(other_files[3].read_text("utf-8").replace("minilm", "bge"), "utf-8")
    [row] = read_rows(rows_path(other_files[3]))
    write_rows(rows_path(again), [replace(row, metrics={"matched_ordered_f1": 0.75})])
    data = Report([other_files[3], again], [examples_file]).data
    assert len({*data["measures"]}) == 2
    assert [plan["m"] for plan in data["examples"][0]["p"]] == [[25.0, 75.0]]


def test_pairs_of_systems_beyond_the_most_that_are_compared_are_told(tmp_path: Path) -> None:
    few, many = EXAMPLES[:3], [f"system {number}" for number in range(9)]
    files = [write_judged(tmp_path, name, [1, 2, 3], examples=few) for name in many]
    assert "8 of 36 pairs" in Report(files, []).sections[DIFFERENCES]
    assert " of 28 pairs" not in Report(files[:8], []).sections[DIFFERENCES]


def test_a_plan_that_a_judge_read_in_part_is_shown_once_and_whole(
    judged_files: list[Path], other_files: list[Path], examples_file: Path
) -> None:
    rows = read_verdicts(rows_path(judged_files[1]))
    plan = {"steps": ["pour the water", "pour the tea"], "statuses": ["valid", "valid"]}
    write_rows(rows_path(other_files[2]), [Row(EXAMPLES[0].example_id, {"score": 0.5}, details=plan)])
    for flags, plans in ((("shortened",), 1), ((), 2)):
        write_verdicts(rows_path(judged_files[1]), [replace(row, steps=row.steps[:1], flags=flags) for row in rows])
        for files in ([judged_files[1], other_files[2]], [other_files[2], judged_files[1]]):
            shown = Report(files, [examples_file]).data["examples"][0]["p"]
            assert (len(shown), max((one["t"] for one in shown), key=len)) == (plans, plan["steps"])


def test_rows_missing_beside_scores_leave_tables_and_are_told(judged_files: list[Path], examples_file: Path) -> None:
    rows_path(judged_files[0]).unlink()
    report = Report(judged_files, [examples_file])
    assert DIFFERENCES not in report.sections
    assert report.tables([*report.sections][-1])["Files"]["judge-base-proxy.json"]["rows"] == "missing"
    assert report.printed["without_rows"] == [str(judged_files[0])]


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
        Report(files, examples)
    assert not (tmp_path / "page.html").exists()


def test_odd_details_are_shown_for_what_they_hold(other_files: list[Path]) -> None:
    odd = {"gold": ["a", "b"], "predicted": [1], "margins": "x", "steps": 3}
    write_rows(rows_path(other_files[1]), [Row("v:1", {"3.accuracy": 0.0}, details=odd)])
    write_rows(rows_path(other_files[2]), [Row("e", {"x": 1.0}, details={"statuses": None, "steps": ["s"]})])
    first, second = Report(other_files[:-1], []).data["examples"]
    [plan] = first["p"]
    assert plan["a"] == [["1", "a", None], [None, "b", None]]
    [plan] = second["p"]
    assert not {"st", "q"} & {*plan}
