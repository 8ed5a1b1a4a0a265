"""What may be set of the planner page's service; its other limits are constants where they are used."""

from typing import Annotated

from pydantic import Field

from recipe.config import Settings


class PageSettings(Settings):
    """How much one visitor may take."""

    per_address: Annotated[int, Field(ge=0)] = 0
    """Readers of events and runs that wait, of one address at once; 0: half of all. Behind a proxy all visitors share
    one address."""
