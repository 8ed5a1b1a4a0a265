"""`examples/deploy` and docs/production.md name commands, flags, folders, ports and figures that exist."""

import configparser
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from recipe.cli import app

yaml = pytest.importorskip("yaml")
pytest.importorskip("fastapi")

from fastapi.testclient import TestClient  # noqa: E402

from recipe.models.protocol import ReplayEngine  # noqa: E402
from recipe.planning.planner import Planner  # noqa: E402
from recipe_apps.service import app as service  # noqa: E402
from recipe_apps.serving import app as serving  # noqa: E402

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples" / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def parsed(words: list[str]) -> tuple[str, dict[str, Any]]:
    """The command of a command line and its values; the parser raises for a flag or a value that there is not."""
    command: Any = typer.main.get_command(app)
    context, rest = typer.Context(command, info_name="recipe"), [*words]
    while hasattr(command, "get_command"):
        name = rest.pop(0)
        command = command.get_command(context, name)
        assert command is not None, name
        context = typer.Context(command, parent=context, info_name=name)
    values = command.make_context(context.info_name, rest, parent=context.parent).params
    known = command.callback.setting_keys() if values.get("changes") else {}
    assert {change.partition("=")[0] for change in values.get("changes") or ()} <= known.keys()
    return context.command_path.removeprefix("recipe "), values


def unit(path: Path) -> configparser.ConfigParser:
    read = configparser.ConfigParser(strict=False, interpolation=None)
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read(path)
    return read


def compose() -> dict[str, Any]:
    whole: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    return whole


def test_the_services_of_the_compose_file_are_commands() -> None:
    whole = compose()
    own = {name: of for name, of in whole["services"].items() if of.get("build")}
    assert {parsed(of["command"])[0] for of in own.values()} == {"serve", "reward serve", "corpus add"}
    assert 'ENTRYPOINT ["recipe"]' in DOCKERFILE
    assert "WORKDIR /data\n" in DOCKERFILE
    for name, of in own.items():
        assert (DEPLOY / of["build"] / "Dockerfile").resolve() == ROOT / "Dockerfile"
        targets = {mount.split(":")[1]: mount.split(":")[0] for mount in of["volumes"]}
        assert {"/data", "/cache"} <= targets.keys()
        assert all(source.startswith("./") or source in whole["volumes"] for source in targets.values())
        _, values = parsed(of["command"])
        if "port" in values:
            assert str(values["port"]) == of["environment"]["PORT"], "the health check of the Dockerfile asks it"
            assert values["host"] == "0.0.0.0"
            assert "RECIPE_TOKEN" in of["environment"]
            assert "/data:ro" in " ".join(of["volumes"]), "services read, and `add` writes"
        if values.get("keep"):
            assert str(values["keep"]) in targets, name
    proxied = dict(re.findall(r"reverse_proxy (\w+):(\d+)", (DEPLOY / "Caddyfile").read_text(encoding="utf-8")))
    assert proxied == {name: of["environment"]["PORT"] for name, of in own.items() if "environment" in of}


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_units_start_commands(path: Path) -> None:
    service = unit(path)["Service"]
    program, *words = shlex.split(service["ExecStart"])
    assert Path(program).name == "recipe"
    _, values = parsed(words)
    folder, writes = Path(service["WorkingDirectory"]), service.get("ReadWritePaths", "").split()
    written = {"keep": values.get("keep"), "folder": values.get("folder") if "narrations" in values else None}
    for target in filter(None, written.values()):
        assert any((folder / target).is_relative_to(allowed) for allowed in writes), "ProtectSystem=strict"
    if "token_file" in values:
        assert service["LoadCredential"].startswith(f"{Path(values['token_file']).name}:")
        assert int(service["TimeoutStopSec"]) > serving.DRAIN_SECONDS


def test_the_timer_starts_a_unit() -> None:
    assert {path.stem for path in DEPLOY.glob("*.timer")} <= {path.stem for path in UNITS}


class Nothing:
    def score_groups(self, groups: Any) -> Any: ...


def test_the_page_names_files_and_figures_that_there_are() -> None:
    text = (ROOT / "docs" / "production.md").read_text(encoding="utf-8")
    for name in re.findall(r"examples/deploy/([\w.-]+)", text):
        assert (DEPLOY / name).exists(), name
    planner = serving.Served(Planner(ReplayEngine({})), "none")
    known = ""
    for served in (serving.create_app(planner), service.create_app(Nothing())):
        with TestClient(served, base_url="http://127.0.0.1") as client:
            known += client.get("/metrics").text
    named = set(re.findall(r"`((?:recipe|process)_\w+)", text))
    assert len(named) > 8
    assert [name for name in named if name not in known] == []
    environment = set(re.findall(r"\bRECIPE_[A-Z]+\b", text))
    source = DOCKERFILE + "".join(path.read_text(encoding="utf-8") for path in (*UNITS, DEPLOY / "compose.yaml"))
    assert [name for name in environment if name not in source] == []
