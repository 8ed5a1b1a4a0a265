"""Fixtures that every room's tests share."""

from pathlib import Path

import pytest

SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the checkout; tests that ask for it skip where it is absent."""
    folder = SHARED / "data"
    if not folder.is_dir():
        pytest.skip("the real data is not beside this checkout")
    return folder


@pytest.fixture(scope="session")
def shared_golden() -> Path:
    """The folder of reference values beside the checkout."""
    folder = SHARED / "golden"
    if not folder.is_dir():
        pytest.skip("the golden values are not beside this checkout")
    return folder
