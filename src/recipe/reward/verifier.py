"""The verifier: the one place where a corpus meets alignment (paper, section 3.2)."""

from collections.abc import Sequence

from recipe.alignment import backends
from recipe.config import RewardConfig
from recipe.explain.explain import explain
from recipe.explain.records import Explanation
from recipe.reward.embeddings import StepEmbeddings, Vectors
from recipe.reward.grounded import GroundedMethod
from recipe.reward.method import Method, NarrationIndex, PooledAlignment
from recipe.reward.paper import PaperMethod
from recipe.reward.scorer import PromptGroup, as_steps
from recipe.types import Reward

_METHODS: dict[str, type[PaperMethod] | type[GroundedMethod]] = {"paper": PaperMethod, "grounded": GroundedMethod}
_PAPER = RewardConfig()


class Verifier:
    """Scores continuations by how well they align with the corpus; safe to share between threads.

    `backend` names the alignment backend (`recipe.alignment.backends`). Verifiers on one corpus may share `embeddings`.
    """

    def __init__(
        self,
        corpus: NarrationIndex,
        config: RewardConfig = _PAPER,
        *,
        backend: str = "auto",
        embeddings: StepEmbeddings | None = None,
    ) -> None:
        self.corpus = corpus
        self.config = config
        self._embeddings = embeddings or StepEmbeddings(corpus.encoder)
        self._method: Method = _METHODS[config.verifier](corpus, config, self._embeddings, backends.load(backend))

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Unit-norm float32 [n, d] of steps, n >= 1; new texts are encoded in one call and kept.

        Raises InputError for a blank step, ComputeError where the encoder fails.
        """
        return self._embeddings.stacked(texts)

    def prepare(self, groups: Sequence[PromptGroup]) -> None:
        """Encode all steps of these groups, and find all their pools, each in one call.

        Scoring the prompts one by one then finds both remembered. Raises as `score`.
        """
        texts = [text for group in groups for text in self._method.read(group)]
        if texts:
            self._embeddings(texts)
        self._method.find_pools(groups)

    def score(self, history: Sequence[str], continuations: Sequence[Sequence[str]], goal: str) -> list[Reward]:
        """The reward of each continuation of one prompt, in order; the G continuations share the rows of h.

        The paper's reward does not read the goal. Raises InputError for a blank step, ComputeError for a score
        that cannot be computed.
        """
        group = PromptGroup.of(goal, history, continuations)
        self.prepare([group])
        return self._method.rewards(group)

    def align(self, history: Sequence[str], continuation: Sequence[str], goal: str) -> list[PooledAlignment]:
        """How h + c aligns with each narration of its pool, the best first. Raises as `score`."""
        h, plan = as_steps(history), as_steps(continuation)
        self.prepare([PromptGroup(goal, h, [plan])])
        return self._method.alignments(goal, h, plan)

    def explain(self, history: Sequence[str], continuation: Sequence[str], goal: str) -> Explanation:
        """The reward of one continuation, what each of its steps adds, and how the pool aligns. Raises as `score`."""
        return explain(self, history, continuation, goal)
