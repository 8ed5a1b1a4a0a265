"""The packaged world, loaded once."""

import pytest

from recipe.world.graph import World
from recipe.world.load import load_world


@pytest.fixture(scope="session")
def world() -> World:
    """All packaged goals."""
    return load_world()
