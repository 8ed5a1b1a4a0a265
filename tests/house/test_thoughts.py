"""Plans written as text come back as the same steps: list styles, what a model says after its thought, other forms."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.plan_text import parse_plan, plan_steps
from recipe.text import final_answer, format_plan, planner_messages
from recipe.types import Malformed, Plan

PLAN = ("rinse the rice", "simmer it with the lid on", "fluff it with a fork")
WRITTEN = format_plan(PLAN)
THOUGHT = "Two ways come to mind:\n1. grill the fish\n2. salt it\nThe first is wrong."
TAGS = [
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<Reasoning>", "</Reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought\n", "<channel|>"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ("Here is my thought process:", "Here's my response:"),
]
LONE = [*TAGS[:-2], ("", "assistantfinal")]


@pytest.mark.parametrize(("opened", "closed"), [*TAGS, ("analysisWe ask: ", "assistantfinal")])
def test_a_thought_is_no_plan(opened: str, closed: str) -> None:
    whole = f"{opened}{THOUGHT}{closed}\n{WRITTEN}"
    assert plan_steps(whole) == PLAN
    assert plan_steps(f"{whole}\n{opened}{THOUGHT}{closed}{WRITTEN}") == PLAN
    for end in range(len(opened), len(opened + THOUGHT)):
        assert final_answer(whole[:end]) is None
        assert isinstance(parse_plan(whole[:end]), Malformed)


@pytest.mark.parametrize(("opened", "closed"), LONE)
def test_a_tag_that_the_prompt_opened_is_closed(opened: str, closed: str) -> None:
    assert plan_steps(f"{THOUGHT}{closed}{WRITTEN}") == PLAN
    assert plan_steps(f"{THOUGHT}{closed}") == ()


@given(st.lists(st.sampled_from(TAGS[:8]), max_size=4), st.booleans())
def test_the_last_tag_decides(thoughts: list[tuple[str, str]], open_: bool) -> None:
    text = "".join(f"{opened}{THOUGHT}{closed}" for opened, closed in thoughts) + WRITTEN
    assert plan_steps(text) == PLAN
    if open_:
        assert final_answer(f"{text}<think>{WRITTEN}") is None


@pytest.mark.parametrize(
    "text",
    [
        f"<think>{THOUGHT}</think><answer>{WRITTEN}</answer>",
        f"{THOUGHT}</think>\n<solution>\n{WRITTEN}\n</solution>",
        f"{WRITTEN}<|im_end|>\n<|im_start|>user\n4. more",
        f"<|START_RESPONSE|>{WRITTEN}<|END_RESPONSE|>",
    ],
)
def test_what_stands_around_an_answer_is_no_step(text: str) -> None:
    assert plan_steps(text) == PLAN


@pytest.mark.parametrize(
    "value",
    [
        list(PLAN),
        {"steps": list(PLAN)},
        {"goal": "cook rice", "Remaining Steps": [{"number": 4, "step": step} for step in PLAN]},
        {"plan": WRITTEN},
        {str(number): step for number, step in enumerate(PLAN, start=4)},
        {f"step_{number}": step for number, step in enumerate(PLAN)},
        {"answer": [f"{number}. {step}" for number, step in enumerate(PLAN, start=1)]},
    ],
)
def test_json_is_read_where_it_holds_one_list_of_steps(value: object) -> None:
    for indent in (None, 2):
        text = json.dumps(value, indent=indent)
        assert plan_steps(text) == PLAN
        assert plan_steps(f"```json\n{text}\n```") == PLAN
        assert plan_steps(f"<think>[1, 2]</think>Here it is:\n```\n{text}\n```\nEnjoy!") == PLAN
        for end in range(1, len(text) - 1):
            assert isinstance(parse_plan(text[:end]), Malformed)


@pytest.mark.parametrize(
    "text", ['{"minutes": 5}', '[["stir"]]', '{"steps": [1, 2]}', '{"a": ["x"], "b": ["y"]}', "{}", "[]"]
)
def test_other_json_is_malformed(text: str) -> None:
    assert isinstance(parse_plan(text), Malformed)
    assert isinstance(parse_plan(f"```json\n{text}\n```"), Malformed)


@pytest.mark.parametrize(
    ("heading", "row"),
    [
        ("| Step | Action |", "| {n} | {step} |"),
        ("| # | Action | Time | Tool |", "| {n} | **{step}** | 5 min | spoon |"),
        ("Step | Minutes", "{step} | {n}"),
        ("| Number | What to do |", "| Step {n} | {step} |"),
    ],
)
def test_tables(heading: str, row: str) -> None:
    rule = "|".join("---" for _ in heading.strip("|").split("|"))
    rows = [row.format(n=number, step=step) for number, step in enumerate(PLAN, start=1)]
    assert plan_steps("\n".join(["The plan:", "", heading, rule, *rows, "", "Enjoy!"])) == PLAN


def test_a_table_with_two_columns_of_text_is_malformed() -> None:
    rows = [f"| {step} | a spoon |" for step in PLAN]
    assert isinstance(parse_plan("\n".join(["| This | That |", "|---|---|", *rows])), Malformed)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("# Rice\nrinse it\nsimmer it", ("rinse it", "simmer it")),
        ("**Rice**\nrinse it\nsimmer it", ("rinse it", "simmer it")),
        ("What remains:\nrinse it\nsimmer it", ("rinse it", "simmer it")),
        ("## 1. Before\n- rinse it\n- soak it\n## 2. After\n- serve it", ("rinse it", "soak it", "serve it")),
        ("rinse it\n---\nsimmer it", ("rinse it", "simmer it")),
        ("```text\nrinse it\nsimmer it\n```", ("rinse it", "simmer it")),
        ("## Rice", ()),
    ],
)
def test_headings_are_no_steps(text: str, steps: tuple[str, ...]) -> None:
    assert plan_steps(text) == steps


@pytest.mark.parametrize("numbers", [(2, 3, 4, 5, 4), (3, 4, 6, 5, 7), (1, 1, 1), (7, 8, 8)])
def test_a_number_that_slips_ends_no_list(numbers: tuple[int, ...]) -> None:
    steps = tuple(f"do {chr(97 + place)}" for place in range(len(numbers)))
    text = "\n".join(f"{number}. {step}" for number, step in zip(numbers, steps, strict=True))
    assert plan_steps(text) == steps
    again = "\n".join(f"{numbers[0]}. again {step}" for step in steps)
    assert plan_steps(f"{text}\nAnother way:\n{again}") == steps


@given(st.integers(0, len(WRITTEN)))
def test_a_line_that_the_limit_cut_is_left_out(end: int) -> None:
    plan = parse_plan(WRITTEN[:end], cut=True)
    whole = WRITTEN[:end].count("\n")
    assert plan == Plan(PLAN[:whole]) if whole else isinstance(plan, Malformed)


def test_a_sentence_that_ends_is_whole() -> None:
    assert parse_plan("1. Rinse the rice.\n2. Simmer it!", cut=True) == Plan(("Rinse the rice.", "Simmer it!"))
    assert parse_plan('["rinse it", "simm', cut=True) == parse_plan('["rinse it", "simm', cut=True)


@pytest.mark.parametrize(
    "text",
    ["<" * 20_000, "\n" * 20_000, "|-" * 20_000 + "x", "{[" * 20_000, "```\n" * 9_000, "1. " * 9_000, ": " * 9_000],
)
def test_long_runs_are_read(text: str) -> None:
    parse_plan(text, cut=True)
    parse_plan(f"<think>{text}</think>{text}")


# A step that begins like a list marker is ambiguous by nature and is not generated.
steps = st.lists(
    st.text(st.characters(whitelist_categories=("Ll", "Lu")), min_size=1, max_size=12), min_size=1, max_size=12
)


@given(steps)
def test_a_formatted_plan_parses_to_itself(plan: list[str]) -> None:
    plan = [f"do {step}" for step in plan]
    assert parse_plan(format_plan(plan)) == Plan(tuple(plan))


@given(steps, steps, st.sampled_from(["", "Enjoy!\n", "Here is another plan:\n\n", "\n**Again**\n"]))
def test_a_plan_ends_where_its_list_does(plan: list[str], again: list[str], between: str) -> None:
    plan, again = ([f"do {step}" for step in one] for one in (plan, again))
    restarted = f"{format_plan(plan)}\n{between}{format_plan(again)}"
    # Numbers of a list that begins with 1 do not go back behind a single 1.
    whole = tuple(plan + again) if len(plan) == 1 and not between.strip() else tuple(plan)
    assert parse_plan(restarted) == Plan(whole)
    assert parse_plan(f"{format_plan(plan)}\n{between}") == Plan(tuple(plan))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1. Boil water\n2. Add tea", ("Boil water", "Add tea")),
        ("Sure! Remaining steps:\n\n1) **Boil** water\n2) Add tea\n", ("Boil water", "Add tea")),
        ("- boil water\n* add tea\n• serve", ("boil water", "add tea", "serve")),
        ("Step 1: boil water\nStep 2: add tea", ("boil water", "add tea")),
        ("boil water\nadd tea", ("boil water", "add tea")),
        ("**1. Boil water**\n**2. Add tea**", ("Boil water", "Add tea")),
        ("2.5 cups of water are boiled\nadd tea", ("2.5 cups of water are boiled", "add tea")),
        ("1. boil 2 cups\n2.\n3. serve", ("boil 2 cups", "serve")),
        ("1. boil water\n1. add tea\n1. serve", ("boil water", "add tea", "serve")),
        ("Prepare\n1. boil water\nCook\n2. add tea\nServe\n3. pour", ("boil water", "add tea", "pour")),
        ("1. boil:\n   - fill the pot\n   - heat it\n2. add tea", ("fill the pot", "heat it", "add tea")),
        ("1. boil water\n2. add tea\n\nEnjoy your tea!", ("boil water", "add tea")),
        ("1. boil water\n2. add tea\nNote:\n- be careful", ("boil water", "add tea")),
        ("1. boil water\nAnother way:\n1. use the sun", ("boil water",)),
        ("- boil water\n- add tea\n\nTips:\n- use a cup", ("boil water", "add tea")),
        ("3. add tea\n4. serve\n1. boil water", ("add tea", "serve")),
    ],
)
def test_list_styles(text: str, expected: tuple[str, ...]) -> None:
    assert parse_plan(text) == Plan(expected)


@pytest.mark.parametrize("text", ["", " \n ", "1.\n2.\n", "---"])
def test_a_completion_without_steps_is_malformed_and_says_why(text: str) -> None:
    plan = parse_plan(text)
    assert isinstance(plan, Malformed)
    assert plan.text == text
    assert plan.reason


def test_the_prompt_holds_goal_and_history_and_no_history_is_said_in_words() -> None:
    system, user = planner_messages("make tea", ["boil water"])
    assert (system["role"], user["role"]) == ("system", "user")
    assert user["content"] == "Goal: make tea\nDone:\n1. boil water"
    assert planner_messages("make tea", [])[1]["content"].endswith("nothing yet")
