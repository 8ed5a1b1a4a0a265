"""Each endpoint that reads a body says in openapi.json what it reads."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

fastapi = pytest.importorskip("fastapi")
pytest.importorskip("numba")

from pydantic import BaseModel  # noqa: E402

from recipe.models.protocol import ReplayEngine  # noqa: E402
from recipe.planning.planner import Planner  # noqa: E402
from recipe_apps.board import app as board  # noqa: E402
from recipe_apps.service import app as service  # noqa: E402
from recipe_apps.serving import app as serving  # noqa: E402

BODIES: dict[str, dict[str, type[BaseModel] | str]] = {
    "board": {
        "/api/check": "application/x-ndjson",
        "/api/submissions": "application/x-ndjson",
        "/api/submissions/{identity}": board.SubmissionChange,
        "/api/me": board.AccountChange,
        "/api/owner/accounts": board.NewAccount,
        "/api/owner/tracks/{name}": board.TrackChange,
        "/api/owner/boards/{identity}/rescore": board.RescoreRequest,
    },
    "service": {
        "/score": service.ScoreRequest,
        "/get_reward": service.openrlhf.GetReward,
        "/verify": service.nemo_gym.VerifyRequest,
    },
    "serving": {
        "/api/runs": serving.RunRequest,
        "/api/runs/{identity}/deviation": serving.DeviationRequest,
        "/api/runs/{identity}/feedback": serving.FeedbackRequest,
        "/api/search": serving.SearchRequest,
        "/api/explain": serving.ExplainRequest,
        "/api/clips": "application/octet-stream",
    },
}
READS = re.compile(r"page\.message\(|intake\.body\(|request\.(stream|body|json|form)\(|_body\(")


class Nothing:
    def score_groups(self, groups: Any) -> Any: ...


@pytest.fixture(scope="module")
def apps() -> dict[str, Any]:
    boards = fastapi.FastAPI()
    boards.router.routes.extend(board.router.routes)
    planner = serving.Served(Planner(ReplayEngine({})), "none", sees_video=True)
    return {
        "board": boards,
        "service": service.create_app(Nothing()),
        "serving": serving.create_app(planner),
    }


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        for own in value.values():
            yield from references(own)
    elif isinstance(value, list):
        for own in value:
            yield from references(own)


@pytest.mark.parametrize("name", BODIES)
def test_each_body_that_is_read_is_described_as_it_is_read(apps: dict[str, Any], name: str) -> None:
    described = apps[name].openapi()
    reading = set[str]()
    for route in apps[name].routes:
        source = inspect.getsource(route.endpoint).partition("def ")[2] if hasattr(route, "endpoint") else ""
        if READS.search(source):
            reading.add(route.path)
            [method] = route.methods
            body = described["paths"][route.path][method.lower()]["requestBody"]
            expected = BODIES[name][route.path]
            [(kind, content)] = body["content"].items()
            if isinstance(expected, str):
                assert kind == expected
                continue
            assert kind == "application/json"
            assert content["schema"]["properties"].keys() == expected.model_fields.keys()
            needed = {field for field, of in expected.model_fields.items() if of.is_required()}
            assert set(content["schema"].get("required", ())) == needed
    assert reading == BODIES[name].keys()


@pytest.mark.parametrize("name", BODIES)
def test_references_are_found_in_the_document(apps: dict[str, Any], name: str) -> None:
    described = apps[name].openapi()
    for reference in references(described):
        part = described
        for step in reference.removeprefix("#/").split("/"):
            part = part[step]
