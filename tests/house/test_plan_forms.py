"""A plan is read the same in whatever form it is written, and what is in no form that is read is no plan."""

import json
from collections.abc import Callable, Sequence
from html import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.perception.phi import read_history, read_trace
from recipe.plan_text import parse_plan, plan_steps
from recipe.step_lines import unmarked
from recipe.types import Malformed

Form = Callable[[Sequence[str]], str]
ROMAN = ("i", "ii", "iii", "iv", "v", "vi")
WORDS = ("One", "Two", "Three", "Four", "Five", "Six")
ORDINALS = ("First", "Second", "Third", "Fourth", "Fifth", "Sixth")
HAN, CIRCLED, DARK = "一二三四五六", "①②③④⑤⑥", "❶❷❸❹❺❻"
ARABIC = "٠١٢٣٤٥٦"


def lines(mark: Callable[[int], str], end: str = "\n") -> Form:
    return lambda steps: end.join(mark(number) + step for number, step in enumerate(steps, start=1))


def marked(mark: str) -> Form:
    return lines(
        lambda n: mark.format(n=n, r=ROMAN[n - 1], R=ROMAN[n - 1].upper(), l="abcdef"[n - 1], L="ABCDEF"[n - 1])
    )


def halves(above: str, one: str, other: str) -> Form:
    """Two headings, each with half of the steps below it."""

    def write(steps: Sequence[str]) -> str:
        middle = len(steps) // 2
        parts = []
        for number, own in enumerate((steps[:middle], steps[middle:]), start=1):
            head = above.format(n=number) + ("Prepare it" if number == 1 else "Cook it")
            marks = [one.format(n=number), *(other.format(n=number, m=at + 1) for at in range(1, len(own)))]
            parts.append("\n".join([head, *(mark + step for mark, step in zip(marks, own, strict=True))]))
        return "\n".join(parts)

    return write


MARKS = [
    "{n}. ", "{n}) ", "({n}) ", "[{n}] ", "{n}: ", "{n} - ", "{n}、", "{n}.) ", "{n}.- ", "{n}.", "#{n} ",
    "No. {n}: ", "{n}/6: ",
    "{n}º ", "{n} -> ", "{n} ", "{n}| ", "Step {n}: ", "STEP {n} - ", "Step{n}: ", "step_{n}: ", "Step #{n}: ",
    "Step {n} of 6: ",
    "Step {n}\n", "Step {n}:\n", "Step {n} (2 min): ", "Step {R} - ", "Step {L}: ", "**Step {n}:** ", "*Step {n}:* ",
    "__{n}.__ ",
    "### Step {n}: ", "### Step {n}\n", "## {n}. ", "**{n}.** ", "- {n}. ", "- **{n}.** ", "1. **Step {n}:** ",
    "{n}. [ ] ",
    "- [ ] ", "- [x] ", "> {n}. ", "> - ", "- ", "* ", "• ", "· ", "– ", "+ ", "▪ ", "→ ", "-> ", "➤ ", "✓ ", "✅ ",
    "☐ ", "🔹 ",
    "◦ ", "step {n} – ", "🥣 ", "\\item ", "\\- ", "{n}\\. ", "{l}) ", "({l}) ", "{L}. ", "- {l}) ", "{r}. ", "({r}) ",
    "{R}) ", "\u200b{n}. ",
    "\ufeff{n}. ", "\u200e{n}. ", "\u00a0{n}. ", "    {n}. ", "&bull; ", "1. ", "{n}\ufe0f\u20e3 ", "Stage {n}: ",
    "Teil {n}: ",
    "Étape {n} : ", "E\u0301tape {n} : ", "Schritt {n}: ", "Paso {n}: ", "Passo {n}: ", "Шаг {n}: ", "第{n}步：",
    "步骤 {n}: ",
    "ステップ{n}：", "{n}단계: ", "الخطوة {n}: ", "Krok {n}: ", "Adım {n}: ", "चरण {n}: ",
    "[00:0{n}] ", "0{n}:10 - 0{n}:20: ", "00:0{n} ", "{n}. [00:0{n}] ", "**0{n}:10-0{n}:20** ", "From {n}0s to {n}9s: ",
]  # fmt: skip
FORMS: dict[str, Form] = {
    **{f"mark {mark!r}": marked(mark) for mark in MARKS},
    **{f"nested {above!r} {one!r}": halves(above, one, other) for above, one, other in [
        ("{n}. ", "   {n}.1 ", "   {n}.{m} "), ("{n}. ", "{n}.1. ", "{n}.{m}. "), ("{n}. ", "   a. ", "   b. "),
        ("{n}. ", "   1) ", "   {m}) "), ("{n}. ", "1) ", "{m}) "), ("{n}. ", "   - ", "   - "), ("{n}. ", "  - ",
        "  - "),
        ("{n}. ", "- ", "- "), ("{n}. ", "\t* ", "\t* "), ("- ", "  - ", "  - "), ("- ", "1. ", "{m}. "),
        ("Step {n}: ", "- ", "- "), ("Step {n}: ", "1. ", "{m}. "), ("## {n}. ", "- ", "- "), ("### Step {n}: ",
        "1. ", "{m}. "),
        ("**{n}.** ", "   - ", "   - "), ("### ", "1. ", "{m}. "), ("### ", "- ", "- "),
    ] if "b. " not in other},
    "circled": lines(lambda n: f"{CIRCLED[n - 1]} "),
    "circled, close": lines(lambda n: DARK[n - 1]),
    "words": lines(lambda n: f"Step {WORDS[n - 1]}: "),
    "words in capitals": lines(lambda n: f"STEP {WORDS[n - 1].upper()} - "),
    "ordinals": lines(lambda n: f"{ORDINALS[n - 1]}, "),
    "ordinal steps": lines(lambda n: f"{ORDINALS[n - 1]} step: "),
    "han ordinals": lines(lambda n: f"第{HAN[n - 1]}步，"),
    "han": lines(lambda n: f"{HAN[n - 1]}、"),
    "arabic digits": lines(lambda n: f"{ARABIC[n]}. "),
    "forms that drift": lines(lambda n: ("1. ", "2) ", "Step 3: ", "(4) ", "5: ", "6 - ")[n - 1]),
    "within a line": lines(lambda n: f"{n}. ", " "),
    "within a line, in brackets": lines(lambda n: f"({n}) ", ", "),
    "within a line, bold": lines(lambda n: f"**{n}.** ", " "),
    "within a line, labels": lines(lambda n: f"Step {n}: ", " "),
    "within a line, circled": lines(lambda n: f"{CIRCLED[n - 1]} ", " "),
    "within a line, letters": lines(lambda n: f"({'abcdef'[n - 1]}) ", "; "),
    "arrows": " → ".join,
    "escaped lines": lines(lambda n: f"{n}. ", "\\n"),
    "breaks of HTML": lines(lambda n: f"{n}. ", "<br>"),
    "carriage returns": lines(lambda n: f"{n}. ", "\r\n"),
    "gaps": lines(lambda n: f"{n}. ", "\n\n"),
    "remarks": lambda steps: "\n".join(f"{n}. {step}\n   This takes a while." for n, step in enumerate(steps, start=1)),
    "remarks at the margin": lines(lambda n: f"{n}. ", "\nTake your time.\n"),
    "bold steps": lambda steps: "\n".join(f"{n}. **{step}**" for n, step in enumerate(steps, start=1)),
    "bold lines": lambda steps: "\n".join(f"**{n}. {step}**" for n, step in enumerate(steps, start=1)),
    "links": lambda steps: "\n".join(f"- [{step}](https://example.org)" for step in steps),
    "boxed": lambda steps: f"\\boxed{{{marked('{n}. ')(steps)}}}",
    "boxed formula": lambda steps: f"$$\\boxed{{{marked('{n}. ')(steps)}}}$$",
    "LaTeX": lambda steps: "\\begin{enumerate}\n" + marked("  \\item ")(steps) + "\n\\end{enumerate}",
    "text of LaTeX": lambda steps: "\n".join(f"{n}. \\text{{{step}}}" for n, step in enumerate(steps, start=1)),
    "quoted": lambda steps: f'"{marked("{n}. ")(steps)}"',
    "fence": lambda steps: f"```\n{marked('{n}. ')(steps)}\n```",
    "fence of Markdown": lambda steps: f"```markdown\n{marked('- ')(steps)}\n```",
    "JSON list": json.dumps,
    "JSON, pretty": lambda steps: f"```json\n{json.dumps({'Next Steps': steps}, indent=2)}\n```",
    "JSON numbers": lambda steps: json.dumps({"steps": [{"step": n, "action": s} for n, s in enumerate(steps, 1)]}),
    "JSON labels": lambda steps: json.dumps([{"step": f"Step {n}", "description": s} for n, s in enumerate(steps, 1)]),
    "JSON in capitals": lambda steps: json.dumps({"Steps": [{"ID": n, "Task": s} for n, s in enumerate(steps, 1)]}),
    "JSON keys": lambda steps: json.dumps({f"Step {n}": s for n, s in enumerate(steps, 1)}),
    "JSON parts": lambda steps: json.dumps([{"action": s[:3], "object": s[4:]} for s in steps]),
    "JSON below": lambda steps: json.dumps({"phases": [{"name": "a", "steps": [s]} for s in steps], "tools": "a pot"}),
    "JSON lines": lambda steps: "\n".join(json.dumps({"text": s, "minutes": 5}) for s in steps),
    "JSON text": lambda steps: json.dumps({"plan": marked("{n}. ")(steps)}),
    "JSON with a comma too many": lambda steps: json.dumps({"steps": steps})[:-2] + ",],}",
    "Python": lambda steps: str({"history": ["open the bag"], "steps": [*steps]}),
    "JSON, boxed": lambda steps: f"\\boxed{{{json.dumps({'steps': steps})}}}",
    "YAML": lambda steps: "steps:\n" + marked("  - ")(steps),
    "YAML fields": lambda steps: "plan:\n" + "\n".join(f"  - step: {n}\n    action: {s}" for n, s in enumerate(steps,
    1)),
    "list of HTML": lambda steps: "<ol>" + "".join(f"<li><b>Step</b>: {escape(s)}</li>" for s in steps) + "</ol>",
    "XML": lambda steps: "<steps>" + "".join(f"<step>{escape(s)}</step>" for s in steps) + "</steps>",
    "XML fields": lambda steps: "\n".join(
        f"<step>\n  <number>{n}</number>\n  <action>{s}</action>\n  <time>5 min</time>\n</step>" for n,
        s in enumerate(steps, 1)
    ),
    "table": lambda steps: "\n".join(["| # | Step | Tool |", "|---|---|---|", *(f"| {n} | {s} | pot |" for n,
    s in enumerate(steps))]),
    "table without a rule": lambda steps: "\n".join(["| Step | Action |", *(f"| {n} | {s} |" for n,
    s in enumerate(steps))]),
    "table of times": lambda steps: "\n".join(
        ["| Time | Step |", "|---|---|", *(f"| 0:{n}0-0:{n}9 | {s} |" for n, s in enumerate(steps, 1))]
    ),
    "table of HTML": lambda steps: "<table><tr><th>#</th><th>Step</th></tr>"
    + "".join(f"<tr><td>{n}</td><td>{s}</td></tr>" for n, s in enumerate(steps, 1)) + "</table>",
    "lines": "\n".join,
    "paragraphs": "\n\n".join,
}  # fmt: skip
PREAMBLES = [
    "", "Sure! Here are the remaining steps:\n", "Here is what to do next\n\n", "## Plan\n\n", "**Remaining steps**\n",
    "Okay, you have washed the pot.\n\n", "🍚 Here is your plan:\n\n", "<think>1. eat it</think>\n",
    "You will need:\n- a pot\n- rice\n\nSteps:\n",
]  # fmt: skip
REMARKS = [
    "", "\nEnjoy your rice!", "\n\nEnjoy your rice!", "\n\nNote: use fresh water.",
    "\n\n**Tips:**\n- use a timer\n- use a scale",
    "\n\n🎉 Enjoy!", "\n\nLet me know if you need more help.", "\n\n## Alternative\n1. order it",
]  # fmt: skip
# Two words and more, which no form takes for a mark or a title, and small letters, which end no sentence.
VERBS = ("rinse", "simmer", "fluff", "drain", "cover", "weigh")
STEPS = st.lists(
    st.builds(
        lambda verb, thing: f"{verb} {thing}",
        st.sampled_from(VERBS),
        st.sampled_from(["the rice", "2 cups", "it (10:30)"]),
    ),
    min_size=4,
    max_size=6,
)
RICE = ("rinse the rice", "cover it with water", "simmer it with the lid on", "fluff it with a fork")


@pytest.mark.parametrize("form", FORMS)
def test_a_plan_is_read_whatever_its_form(form: str) -> None:
    steps = (
        tuple(step.replace("rinse", "dry").replace(" the ", " a ") for step in RICE) if form == "JSON parts" else RICE
    )
    if form == "JSON parts":
        steps = ("dry a rice", "mix it", "eat it now", "put it by")
    for preamble in PREAMBLES:
        for remark in REMARKS:
            assert plan_steps(preamble + FORMS[form](steps) + remark) == steps


@given(
    STEPS,
    st.sampled_from([name for name in FORMS if name != "JSON parts"]),
    st.sampled_from(PREAMBLES),
    st.sampled_from(REMARKS),
)
def test_any_plan_is_read_whatever_its_form(steps: list[str], form: str, preamble: str, remark: str) -> None:
    assert plan_steps(preamble + FORMS[form](steps) + remark) == tuple(steps)


@pytest.mark.parametrize(
    "form", [name for name in FORMS if name not in ("arrows", "lines", "paragraphs", "escaped lines")]
)
def test_phi_reads_what_a_planner_reads(form: str) -> None:
    steps = ("dry a rice", "mix it", "eat it now", "put it by") if form == "JSON parts" else RICE
    text = FORMS[form](steps)
    assert read_history(text) == steps
    assert tuple(step.text for step in read_trace(text, 600)) == steps


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(
            [{"start_time": f"00:0{n}", "end_time": f"00:0{n + 1}", "description": s} for n, s in enumerate(RICE)]
        ),
        json.dumps({"steps": [{"start": n, "end": n + 1, "text": s} for n, s in enumerate(RICE)]}),
        json.dumps([{"timestamp": [n, n + 1], "action": s} for n, s in enumerate(RICE)]),
        "\n".join(
            ["| Start | End | Step |", "|---|---|---|", *(f"| 0:0{n} | 0:0{n + 1} | {s} |" for n, s in enumerate(RICE))]
        ),
        "\n".join(f"{n}.0 - {n + 1}.0 seconds, {s}" for n, s in enumerate(RICE)),
        "\n".join(f"**0:0{n} - 0:0{n + 1}**: {s}" for n, s in enumerate(RICE)),
        "\n".join(f"From {n}s to {n + 1}s: {s}" for n, s in enumerate(RICE)),
    ],
)
def test_times_are_read_in_whatever_form(text: str) -> None:
    assert [(step.start, step.end, step.text) for step in read_trace(text, 60)] == [
        (n, n + 1, s) for n, s in enumerate(RICE)
    ]


@pytest.mark.parametrize(
    "text",
    [
        "I cannot see the video.", "I'm sorry, but I can't help with that.", "None.",
        "There are no more steps. You are done. Enjoy!",
        "Rinse the rice. Simmer it. Then fluff it.", "The remaining steps are to rinse the rice and simmer it.",
        '{"steps": ["rinse the rice", "simm', '{"minutes": 5}', "```python\nprint('rice')\n```",
        "def cook():\n    boil()",
        "| rinse the rice | simmer it |", "{1} rinse it\n{2} simmer it", "- step: [\n  action: {", "<tool>rinse</tool>",
    ],
)  # fmt: skip
def test_what_is_in_no_form_is_no_plan(text: str) -> None:
    plan = parse_plan(text)
    assert isinstance(plan, Malformed)
    assert plan.reason


@pytest.mark.parametrize(
    "text",
    [
        "1. Add 2 eggs\n2. Wait 10 - 12 minutes\n3. Heat it to 180. Then wait", "- 1 cup of rice\n- 2 cups of water",
        "1. 10:30 is the time\n2. Mix them 1:2", "1. Take bowl (1) and bowl (2)\n2. Mix",
        "1. Cut side a and side b.", "- I. Newton's way\n- Stir",
    ],
)  # fmt: skip
def test_numbers_within_steps_stay(text: str) -> None:
    assert plan_steps(text) == tuple(line.split(" ", 1)[1] for line in text.splitlines())


@given(STEPS, st.sampled_from(["{n}. ", "- ", "Step {n}: ", "{l}) "]))
def test_steps_of_people_lose_their_numbers(steps: list[str], mark: str) -> None:
    assert unmarked(marked(mark)(steps).splitlines()) == tuple(steps)
    assert unmarked(steps) == tuple(steps)


@given(st.text(max_size=80) | st.text(st.sampled_from("ab1.)-*# \n|{}[]\"':<>\\→①"), max_size=60))
def test_no_text_is_an_error(text: str) -> None:
    for step in plan_steps(text):
        assert step.strip() == step
        assert any(map(str.isalnum, step))
