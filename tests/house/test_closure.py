"""What counts the figures of the house, and the rule that no two files import each other."""

import ast
from pathlib import Path

import closure
import pytest


def test_no_two_files_import_each_other() -> None:
    modules = closure.modules_of(closure.SRC)
    assert closure.circles({name: {*closure.imports_of(file, modules)} for name, file in modules.items()}) == []


@pytest.mark.parametrize(
    "line",
    [
        "import recipe.a",
        "from recipe.a import thing",
        "def later():\n    from recipe import a",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from recipe.a import Thing",
        "PLACES = {'a': 'recipe.a:Thing'}",
    ],
)
def test_a_circle_is_seen_whatever_closes_it(line: str, tmp_path: Path) -> None:
    folder = tmp_path / "recipe"
    folder.mkdir()
    texts = {"a": "from recipe.b import x", "b": "from recipe.c import x", "c": line, "d": "import recipe.a"}
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    # The root package offers every room by name, and is no part of a circle.
    (folder / "__init__.py").write_text("PLACES = ['recipe.d']")
    (folder / "d.py").write_text("import recipe.a\nimport recipe")
    modules = closure.modules_of(tmp_path)
    imports = {name: {*closure.imports_of(file, modules)} for name, file in modules.items()}
    assert closure.circles(imports) == [["recipe.a", "recipe.b", "recipe.c"]]
    assert closure.circles(imports | {"recipe.c": set()}) == []


def test_figures_count_what_they_name() -> None:
    tree = ast.parse(
        "class Settings(BaseModel):\n    model_config: ClassVar[int] = 1\n    a: int = 1\n"
        "class Own(Settings):\n    b: int = 1\n    def c(self): ...\n"
        "class Other:\n    d: int\n"
    )
    assert closure.settings_in([tree]) == 2
    assert closure.methodless(tree) == 2
    text = "x = 1  # noqa: S101\n# a reason\ny = '# none'  # noqa: S1 - a reason\n"
    assert closure.comments_in(text) == 2
    private = ["from recipe.a import _b", "a._b", "monkeypatch.setattr('recipe.a._b', 1)", "setattr(a, '_b', 1)"]
    assert [closure.touches_privates(ast.parse(line)) for line in private] == [True, True, True, False]
    assert not closure.touches_privates(ast.parse("self._b\nrow._replace(a=1)\nfrom recipe.a import b"))


def test_a_limit_holds_on_its_own_side() -> None:
    fewer, more = closure.Bound(10, 5), closure.Bound(1, 3, rises=True)
    assert [closure.past(value, fewer) for value in (10, 10.1)] == [False, True]
    assert [closure.past(value, more) for value in (1, 0.9)] == [False, True]
