"""The house rules that no linter checks: light imports, stable names, one set of documents."""

import ast
import importlib.metadata
import importlib.util
import pkgutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import recipe
from recipe.cli.console import run
from recipe.errors import InputError, MissingExtra, RecipeError

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
HEAVY = {
    "accelerate", "av", "datasets", "fastapi", "httpx2", "jinja2", "matplotlib", "numba", "numpy",
    "openai", "pandas", "peft", "prometheus_client", "pyarrow", "scipy", "sentence_transformers", "starlette",
    "tokenizers", "torch", "transformers", "trl", "uvicorn",
}  # fmt: skip


LIGHT = {
    "recipe", "recipe.children", "recipe.cli", "recipe.cli.console", "recipe.errors", "recipe.progress",
    "recipe_apps", "recipe_apps.cli", "recipe_studies", "recipe_studies.cli",
}  # fmt: skip
"""All modules of this project that the list of commands may import: none of a command, and no settings."""


def loaded_by(code: str) -> set[str]:
    report = f"import sys\n{code}\nprint(*{{name.partition('.')[0] for name in sys.modules}}, sep='\\n')"
    result = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return set(result.stdout.split("\n"))


@pytest.mark.parametrize(
    "code",
    [
        "import recipe.config, recipe.types, recipe.errors, recipe.text, recipe.artifacts",
        "from recipe.cli import app\ntry:\n    app(['evaluate', '--help'])\nexcept SystemExit:\n    pass",
    ],
)
def test_no_heavy_package_is_loaded(code: str) -> None:
    assert loaded_by(code) & HEAVY == set()
    assert "numpy" in loaded_by("import numpy") & HEAVY  # the check can fail


@pytest.mark.parametrize("words", [[], ["evaluate"]])
def test_lists_of_commands_import_no_command(words: list[str]) -> None:
    """A list of commands is shown before anything slow is imported, and says what each command's own help says."""
    script = (
        "import io, sys, contextlib\nfrom recipe.cli import app\nshown = io.StringIO()\n"
        f"with contextlib.suppress(SystemExit), contextlib.redirect_stdout(shown):\n    app({[*words, '--help']})\n"
        "print(*sys.modules)\nprint(shown.getvalue())\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded, _, shown = result.stdout.partition("\n")
    own = {name for name in loaded.split() if name.partition(".")[0] in ("recipe", "recipe_apps", "recipe_studies")}
    assert own <= LIGHT | {"recipe.cli.evaluate", "recipe.evaluation"}
    assert words or "pydantic" not in loaded.split()  # which Typer itself imports to read the words of a command

    import typer.main

    from recipe.cli import app
    from recipe.cli.console import described_command

    group, context = typer.main.get_command(app), None
    for word in (*words, ""):
        context = typer.Context(group, context, word)  # type: ignore[arg-type]
        group = group.get_command(context, word) if word else group  # type: ignore[attr-defined]
    listed = " ".join(shown.split())
    for name in group.list_commands(context):  # type: ignore[attr-defined]
        described = described_command(group.places.get(name) or group._of_packages(context)[name])  # type: ignore[attr-defined]
        made = group.get_command(context, name)  # type: ignore[attr-defined]
        assert described is not None
        assert described.get_short_help_str(1000) == made.get_short_help_str(1000)
        assert f"{name} {made.get_short_help_str(1000)}" in listed


def test_another_package_adds_commands_by_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function below `recipe` and a group below `recipe reward`, beside those of this project's other packages.

    One that cannot be loaded is named in one sentence, and the others are there. Help reads the entry points once.
    """
    from typer.testing import CliRunner

    from recipe.cli import app, console

    (tmp_path / "kitchen.py").write_text(
        "from recipe.cli.console import CommandGroup\n"
        "tools = CommandGroup(help='Tools.')\n"
        "@tools.command()\ndef knife() -> None:\n    'Cut.'\n    print('cut')\n"
        "@tools.command()\ndef spoon() -> None:\n    'Stir.'\n    print('stirred')\n"
        "def oven(heat: int = 3) -> None:\n    'Bake.'\n    print(heat)\n"
    )
    (tmp_path / "rotten.py").write_text("raise RuntimeError('gone\\noff')\n")
    entries = (
        "[recipe.commands]\noven = kitchen:oven\nmilk = rotten:milk\n[recipe.commands.reward]\ntools = kitchen:tools\n"
    )
    (tmp_path / "kitchen-1.dist-info").mkdir()
    (tmp_path / "kitchen-1.dist-info" / "METADATA").write_text("Name: kitchen\nVersion: 1\n")
    (tmp_path / "kitchen-1.dist-info" / "entry_points.txt").write_text(entries)
    monkeypatch.syspath_prepend(tmp_path)
    read = list[str]()

    def entry_points(group: str) -> object:
        read.append(group)
        return importlib.metadata.entry_points(group=group)

    monkeypatch.setattr(console, "entry_points", entry_points)

    def called(*words: str, code: int = 0) -> tuple[str, str]:
        result = CliRunner().invoke(app, words, prog_name="python -m recipe")
        assert result.exit_code == code, result.output
        return result.stdout, result.stderr

    assert called("oven", "--heat", "7") == ("7\n", "")  # the rotten package is not loaded for it
    assert called("reward", "tools", "knife")[0] == "cut\n"
    said = "the command 'milk' of rotten cannot be loaded (RuntimeError: gone off); repair or remove its package.\n"
    for words, names, told in (
        ((), ("oven", "demo", "board", "corpus"), said),
        (("reward",), ("tools", "serve", "score"), ""),
    ):
        read.clear()
        listed, errors = called(*words, "--help")
        assert {*names} <= {line.split()[0] for line in listed.splitlines() if line.startswith("  ")}
        assert errors == told
        assert len(read) == 1
    assert "oven" in called("ovens", code=2)[1]
    assert called("milk", code=2)[1].startswith(said)
    assert "oven" not in called("reward", "--help")[0]


def test_public_names_resolve_and_are_complete() -> None:
    assert sorted(recipe.__all__) == recipe.__all__
    for name in recipe.__all__:
        assert getattr(recipe, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Corpsu'"):
        _ = recipe.Corpsu  # type: ignore[attr-defined]


def test_without_the_packages_of_training_its_functions_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recipe.errors.find_spec", lambda name: None)
    for name in ("train_grpo", "train_best_of_n"):
        with pytest.raises(MissingExtra) as raised:
            getattr(recipe, name)
        assert raised.value.extra == "train"


def test_version_is_stated_once() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in settings["project"]
    assert settings["tool"]["hatch"]["version"]["path"] == "src/recipe/__init__.py"
    assert importlib.metadata.version("recipe-planner") == recipe.__version__


def test_the_lock_file_has_the_versions_that_are_tested() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {
        canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines) if version
    }
    locked = {one["name"]: one.get("version") for one in tomllib.loads((ROOT / "pylock.toml").read_text())["packages"]}
    assert {name: version for name, version in locked.items() if pins.get(name, version) != version} == {}
    demo = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {name for extra in ("cpu", "train", "report", "serve") for name in map(_name, demo[extra])}
    assert names - locked.keys() == set()


def _name(requirement: str) -> str:
    return canonicalize_name(Requirement(requirement).name)


def test_the_text_of_a_file_is_divided_at_line_feeds_alone() -> None:
    """`str.splitlines` also divides at U+2028, U+0085 and others, which a JSON string may hold."""
    import re

    divided = re.compile(r"(?:read_text|decode)\([^()]*\)\s*\.splitlines\(")
    files = [path for path in SOURCE.rglob("*.py") if path.name != "memory.py"]  # reads the kernel's own file
    assert [path.name for path in files if divided.search(path.read_text())] == []


def test_torchvision_is_absent() -> None:
    assert importlib.util.find_spec("torchvision") is None, "its wheels break a CPU installation of torch"


def test_every_page_is_reachable_from_the_readme_or_the_index() -> None:
    texts = (ROOT / "README.md").read_text() + (ROOT / "docs" / "index.md").read_text()
    missing = [page.name for page in (ROOT / "docs").glob("*.md") if page.name not in texts and page.name != "index.md"]
    assert missing == []


def test_places_in_the_page_on_the_architecture_are_in_the_code(paper_page: ModuleType) -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert len(paper_page.PLACE.findall(text)) > 40
    assert paper_page.missing_places(text) == []


def test_links_between_documents_lead_somewhere() -> None:
    import re

    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_generated_reference_is_current() -> None:
    result = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "reference.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def test_every_error_is_told_of_in_the_documents() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    kinds = [RecipeError, *RecipeError.__subclasses__()]
    assert [kind.__name__ for kind in kinds if f"`{kind.__name__}`" not in text] == []


def test_a_missing_extra_names_the_install_line_also_after_pickling() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(MissingExtra("training", "train")))
    assert str(error).endswith("[train]'.")


def test_an_error_ends_the_command_with_its_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    import typer

    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    def fails() -> None:
        raise InputError.at("plans.jsonl", "not valid JSON", "give one JSON object a line", line=3, field="steps")

    import unittest.mock

    with unittest.mock.patch.object(sys, "argv", ["recipe"]):
        assert run(app) == 1
    shown = capsys.readouterr().err
    assert shown == "error: plans.jsonl, line 3, field 'steps': not valid JSON; give one JSON object a line.\n"


def bound_names(tree: ast.AST) -> dict[str, int]:
    """Names that a module gives to variables, arguments, functions and classes, with a line of each."""
    bound = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound[node.id] = node.lineno
        elif isinstance(node, ast.arg):
            bound[node.arg] = node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound[node.name] = node.lineno
    return bound


def test_what_tests_replace_exists() -> None:
    """A renamed function is noticed here, and not first by a thorough test that replaces it."""
    replaced = {
        call.args[0].value
        for file in (ROOT / "tests").rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith(".setattr")
        if isinstance(call.args[0], ast.Constant)
    }
    assert len(replaced) > 10
    for name in replaced:
        pkgutil.resolve_name(name)


def test_names_are_nouns_of_what_they_hold() -> None:
    vague = {"one", "found", "told"}
    assert bound_names(ast.parse("[one for one in told]\ndef found(told): told = 1")).keys() == vague
    faults = [
        f"{file.relative_to(ROOT)}:{line} {name}"
        for file in SOURCE.rglob("*.py")
        for name, line in bound_names(ast.parse(file.read_text("utf-8"))).items()
        if name in vague
    ]
    assert faults == []
