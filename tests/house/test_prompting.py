"""What prompts are filled with is data: it is set in once, cannot end its fence, and hides nothing."""

import json
from unicodedata import category, combining, normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.evaluation.judge.rubric import as_data
from recipe.prompting import fence, fill, json_object, visible


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


@given(st.text(alphabet="`\uff40\u1fef\u02cb\u2035\u2036\u200c\u200d\u00ad\u0301\ufe0f\u200b\u2028\u0085\u202e\r\n a"))
def test_no_line_ends_its_fence_for_a_reader_who_normalises(text: str) -> None:
    """Full-width backticks and other look-alikes, with what nobody sees between them."""
    opening, *inside, closing = fence(text).split("\n")
    assert opening == closing
    assert opening == "`" * len(opening)
    for form in ("NFC", "NFKC", "NFD", "NFKD"):
        read = normalize(form, "\n".join(inside))
        kept = "".join(char for char in read if not combining(char) and category(char) not in ("Cf", "Mn"))
        for tick in "\u02cb\u2035\uff40\u1fef":
            kept = kept.replace(tick, "`")
        assert opening not in kept


@given(
    st.text(alphabet='<>[]|"\\\uff1c\uff1e\ufe64\ufe65\uff3b\uff3d\ufe47\ufe48\uff02\uff3c\ufe68\u226e\u200d{}, a/INST')
)
def test_data_of_a_judge_stays_data_for_a_reader_who_normalises(text: str) -> None:
    written = as_data({"prediction": [text]})
    shown = visible(text)
    assert json.loads(written) == {"prediction": [shown]}
    for form in ("NFC", "NFKC", "NFD", "NFKD"):
        read = normalize(form, written)
        assert json.loads(read) == {"prediction": [json.loads(read)["prediction"][0]]}
        assert not {*"<>"} & {*read}
        assert read.count("[") == read.count("]") == 1


def test_prompts_of_ordinary_text_stay_as_they_were() -> None:
    """Their hashes are those of caches and of published verdicts."""
    text = "Gieße 2–3 Löffel 「水」 über den „Käse“ ‑ ½ l … ’s ｜ ok"
    assert fence(text) == f"```\n{text}\n```"
    assert as_data({"goal": text}) == "{\n " + f'"goal": {json.dumps(text, ensure_ascii=False)}' + "\n}"
    assert as_data({"goal": "<a>[b]"}) == '{\n "goal": "\\u003ca\\u003e\\u005bb\\u005d"\n}'


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
