"""The command line, as the tests of planning call it."""

from tests.evaluation.conftest import recipe

__all__ = ["recipe"]
