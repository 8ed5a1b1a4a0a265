"""The paper's tables as data: complete, equal to its source where that is at hand, and what in them does not add up."""

import re
from pathlib import Path

import pytest

from recipe.errors import InputError
from recipe.evaluation.published import DIVERSITY_JUDGE, JUDGE, TABLES, published

PRINTED = ("per_dataset", "weak_scale", "video", "ablation", "vpa", "frontier")
"""Tables whose numbers the paper's source prints one after the other, row by row."""
CAPTION_ABOVE = ("tab:appendix-perdataset", "tab:appendix-frontier")


@pytest.fixture(scope="module")
def source() -> str:
    """The paper's source beside the checkout."""
    file = Path(__file__).parents[3] / "shared" / "paper" / "RECIPE.tex"
    if not file.is_file():
        pytest.skip("the paper's source is not beside this checkout")
    return file.read_text("utf-8")


@pytest.mark.parametrize("name", TABLES)
def test_every_row_has_a_value_or_none_for_every_column(name: str) -> None:
    table = published(name)
    keys = [column.key for column in table.columns]
    assert len(set(keys)) == len(keys)
    assert len({(row.group, row.name) for row in table.rows}) == len(table.rows)
    for row in table.rows:
        assert len(row.values) == len(keys)
        assert any(value is not None for value in row.values)
        assert all(0 <= value <= 100 for value in row.values if value is not None)
        assert row.stated in ("", "text")


@pytest.mark.parametrize("name", ["per_dataset", "frontier"])
def test_macro_averages_are_means_of_their_datasets(name: str) -> None:
    table = published(name)
    for row in table.rows:
        values = dict(zip([column.key for column in table.columns], row.values, strict=True))
        for split in ("in-domain", "zero-shot"):
            over = [values[column.key] for column in table.columns if column.group == split]
            if None not in over:
                # Each value and the mean of them are rounded to 0.05.
                assert values[split] == pytest.approx(sum(over) / len(over), abs=0.1)


def test_the_figure_is_drawn_from_its_table() -> None:
    table = published("per_dataset")
    for row in published("main").rows:
        assert row.values == tuple(table.value(row.group, row.name, split) for split in ("in-domain", "zero-shot"))


@pytest.mark.parametrize("name", ["weak_scale", "ablation", "frontier"])
def test_rows_that_two_tables_share_agree(name: str) -> None:
    same = {"RECIPE-RL, 0% weak": "RECIPE-RL", "whole reward": "RECIPE-RL"}
    shared = 0
    for row in published(name).rows:
        known = same.get(row.name, row.name)
        if row.group.startswith("Qwen") and known in ("Base", "RECIPE-RL"):
            main = tuple(published("main").value(row.group, known, split) for split in ("in-domain", "zero-shot"))
            assert row.values[-2:] == main
            shared += 1
    assert shared


@pytest.mark.parametrize("name", PRINTED)
def test_the_source_prints_the_same_numbers_in_the_same_order(name: str, source: str) -> None:
    table = published(name)
    printed = _numbers(_body(source, table.label))
    expected = [value for row in table.rows for value in row.values if value is not None]
    assert printed == expected


@pytest.mark.parametrize("name", ["supervision", "weak_supervision", "diversity", "qualitative"])
def test_what_the_text_states_is_in_the_text(name: str, source: str) -> None:
    table = published(name)
    assert f"\\label{{{table.label}}}" in source
    for row in table.rows:
        for value in row.values:
            if value is not None:
                wanted = f"{value:g}/30" if name == "qualitative" else f"{value:g}"
                assert re.search(rf"(?<![\d.]){re.escape(wanted)}(?!\d)", source)


def test_every_label_is_one_of_the_paper_and_judges_are_its_own(source: str) -> None:
    for name in TABLES:
        table = published(name)
        assert f"\\label{{{table.label}}}" in source
        assert table.judge in (None, JUDGE, DIVERSITY_JUDGE)
        assert table.judge is None or table.judge in source


def test_another_name_row_or_column_is_an_error() -> None:
    with pytest.raises(InputError, match="no published table"):
        published("results")
    with pytest.raises(InputError, match="no value for"):
        published("main").value("Qwen2.5-7B", "SFT", "zero-shot")
    with pytest.raises(InputError, match="no value for"):
        published("main").value("Qwen2.5-7B", "Base", "coin")


def _body(source: str, label: str) -> str:
    """The lines of the table that carries a label, or of both where it has two side by side."""
    place = source.index(f"\\label{{{label}}}")
    if label in CAPTION_ABOVE:
        return source[place : source.index("\\end{table}", place)]
    start = source.rindex("\\begin{tabular}", 0, place)
    return source[start : source.index("\\end{tabular}", start)]


def _numbers(body: str) -> list[float]:
    """The numbers of the cells of a table's lines, headings and names left out."""
    found = []
    for block in re.split(r"\\begin\{tabular\}", body):
        for line in re.sub(r".*?\\midrule", "", block, count=1, flags=re.DOTALL).split("\\\\"):
            for cell in line.split("&"):
                plain = re.sub(r"\\(?:textbf|underline)\{([^{}]*)\}", r"\1", cell)
                plain = re.sub(r"\\(?:mid|bottom)rule", "", plain).strip()
                if re.fullmatch(r"\d+(?:\.\d+)?", plain):
                    found.append(float(plain))
    return found
