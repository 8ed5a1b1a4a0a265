"""One call of the engine: what became of its questions so far, and whether it goes on."""

import asyncio

from recipe.engines.endpoint.failures import Unfit
from recipe.engines.protocol import Refused
from recipe.errors import RecipeError


class Call:
    """Ends at the first failure that concerns more than one chat; belongs to one event loop."""

    def __init__(self, strict: bool, enough: int) -> None:
        """Of a `strict` call all questions are to be answered; else `enough` chats that are refused while none is
        answered are taken for a fault of the request, unless the endpoint says that it is one of the chats."""
        self._strict, self._enough = strict, enough
        self.ended = asyncio.Event()
        """Set once nothing new is to be asked."""
        self.failure: RecipeError | None = None
        self._answered = False
        self._refused: set[int] = set()

    def answered(self) -> None:
        """A question was answered, so that the request as such is right."""
        self._answered = True

    def fail(self, failure: RecipeError) -> None:
        """Ask nothing new; the first failure counts."""
        self.failure = self.failure or failure
        self.ended.set()

    def refuse(self, chat: int, unfit: Unfit) -> Refused:
        """What stands in place of an answer about a chat."""
        if not unfit.of_the_chat:
            self._refused.add(chat)
        if self._strict or (not self._answered and len(self._refused) >= self._enough):
            self.fail(unfit)
        return Refused(str(unfit))
