"""Each endpoint that reads a body says in openapi.json what it reads."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

fastapi = pytest.importorskip("fastapi")
pytest.importorskip("numba")

from recipe.models.protocol import ReplayEngine  # noqa: E402
from recipe.planning.planner import Planner  # noqa: E402
from recipe_apps.board import app as board  # noqa: E402
from recipe_apps.service import app as service  # noqa: E402
from recipe_apps.serving import app as serving  # noqa: E402

READS = re.compile(r"page\.message\(request, (\w+)|intake\.body\(|request\.(?:stream|body|json|form)\(|_body\((\w+)")
"""How an endpoint reads its body, with the message that it makes of it."""


class Nothing:
    def score_groups(self, groups: Any) -> Any: ...


@pytest.fixture(scope="module", params=["board", "service", "serving"])
def app(request: pytest.FixtureRequest) -> Any:
    if request.param == "service":
        return service.create_app(Nothing())
    if request.param == "serving":
        return serving.create_app(serving.Served(Planner(ReplayEngine({})), "none", sees_video=True))
    boards = fastapi.FastAPI()
    boards.router.routes.extend(board.router.routes)
    return boards


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        for own in value.values():
            yield from references(own)
    elif isinstance(value, list):
        for own in value:
            yield from references(own)


def test_each_body_that_is_read_is_described_as_it_is_read(app: Any) -> None:
    paths, reading = app.openapi()["paths"], 0
    for route in app.routes:
        source = inspect.getsource(route.endpoint) if hasattr(route, "endpoint") else ""
        described = re.findall(r"body_schema\(([\w.]+)", source)
        if (read := READS.search(source.partition("def ")[2])) is None:
            assert not described, route.path
            continue
        reading += 1
        if message := read[1] or read[2]:
            assert described == [message]
        [method] = route.methods
        [(kind, content)] = paths[route.path][method.lower()]["requestBody"]["content"].items()
        assert kind == "application/json" or content["schema"] == {"format": "binary"}
        assert kind != "application/json" or content["schema"]["properties"]
    assert reading >= 3


def test_references_are_found_in_the_document(app: Any) -> None:
    described = app.openapi()
    for reference in references(described):
        part = described
        for step in reference.removeprefix("#/").split("/"):
            part = part[step]
