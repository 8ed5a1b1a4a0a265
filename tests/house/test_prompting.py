"""What prompts are filled with is data: it is set in once, cannot end its fence, and hides nothing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.prompting import fence, fill, json_object, packaged


@given(st.text(), st.text())
def test_values_are_set_in_once_and_never_read_as_templates(first: str, second: str) -> None:
    assert fill("<$a|${b}|$$>{}", {"a": first, "b": second}) == f"<{first}|{second}|$>{{}}"


@pytest.mark.parametrize(
    ("template", "values"),
    [("$goal", {}), ("no place", {"goal": "tea"}), ("$goal", {"goal": "tea", "more": ""}), ("5 $", {})],
)
def test_a_prompt_and_its_values_must_fit(template: str, values: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="the prompt takes"):
        fill(template, values)


@given(st.text(alphabet="`\n a"))
def test_no_line_of_the_data_ends_its_fence(text: str) -> None:
    opening, *inside, closing = fence(text).split("\n")
    assert opening == closing
    assert set(opening) == {"`"}
    assert opening not in "\n".join(inside)
    assert "\n".join(inside) == text


def test_what_hides_text_becomes_blank_and_languages_stay() -> None:
    assert fence("a\x1b[2K\u202eb\ufeff\nc\td").splitlines()[1:-1] == ["a [2K b ", "c\td"]
    assert "می\u200cخواهم" in fence("می\u200cخواهم")


@given(st.dictionaries(st.text(), st.integers()), st.text(alphabet="ab[]:, "))
def test_the_first_object_is_found_in_what_is_written_around_it(value: dict[str, int], around: str) -> None:
    assert json_object(f"{around}{json.dumps(value)}{around}") == value


def test_answers_without_an_object_and_endless_ones_have_none() -> None:
    assert json_object('{"score": 7') is None
    assert json_object("[1, 2]") is None
    assert json_object("{" * 200_000) is None
    assert json_object('{"a":' * 50_000) is None


def test_packaged_prompts_are_read() -> None:
    assert "$name" in packaged("recipe.perception", "goal")
