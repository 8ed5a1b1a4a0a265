"""The verifier: the one place where a corpus meets alignment (paper, section 3.2)."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from recipe.alignment import backends
from recipe.alignment.backends import Backend
from recipe.config.reward import RewardConfig
from recipe.errors import InputError
from recipe.functions import Function
from recipe.reward.baselines import LengthMethod, RelevanceMethod
from recipe.reward.coverage import CorpusCoverage
from recipe.reward.embeddings import NarrationIndex, StepEmbeddings, Vectors
from recipe.reward.grounded import GroundedMethod
from recipe.reward.own import FunctionReward, pinned_reward
from recipe.reward.paper import PaperMethod
from recipe.reward.scorer import Method, Outcome, PromptGroup
from recipe.reward.self_trained import SelfTrained, SelfTrainedMethod
from recipe.types import Plan, PooledAlignment, Reward

_PAPER = RewardConfig()


def _grounded(corpus: NarrationIndex, config: RewardConfig, backend: Backend) -> Method:
    """The grounded reward, with the net that its settings name."""
    method = GroundedMethod(corpus, config, backend)
    if not (folder := config.grounded.self_trained):
        return method
    return SelfTrainedMethod(method, SelfTrained.open(Path(folder), corpus, config.grounded), config.grounded)


_METHODS: Mapping[str, Callable[[NarrationIndex, RewardConfig, Backend], Method]] = {
    "paper": PaperMethod,
    "grounded": _grounded,
    "r0": RelevanceMethod,
    "length": LengthMethod,
}


class Verifier:
    """Scores continuations by how well they align with the corpus; safe to share between threads.

    A function of your own, `(goal, history, plan) -> float` (docs/own.md), may stand in place of settings. `backend`
    names the alignment backend (`recipe.alignment.backends`). Verifiers on one corpus may share `embeddings`.
    """

    def __init__(
        self,
        corpus: NarrationIndex,
        config: RewardConfig | Function = _PAPER,
        *,
        backend: str = "auto",
        embeddings: StepEmbeddings | None = None,
    ) -> None:
        if isinstance(corpus, str | Path):
            raise InputError(f"{corpus} is a path where a corpus is due; open it first: Corpus.open({str(corpus)!r}).")
        if isinstance(config, RewardConfig):
            # With the hash of the function's source: a run that is resumed by another function is another run.
            config = pinned_reward(config)
            own = FunctionReward(config.verifier) if config.is_function else None
        elif callable(config):
            own = FunctionReward(config)
            config = RewardConfig(verifier=own.name)
        else:
            raise InputError(f"{config!r} is no RewardConfig; write RewardConfig(verifier='grounded'), for example.")
        self.corpus = corpus
        # The settings; with a function, its name and the hash of its source file as `verifier`.
        self.config = config
        # Of steps, which another verifier on the corpus may share.
        self.embeddings = embeddings or StepEmbeddings(corpus.encoder)
        # The backend is loaded here and not at the first reward: a missing package ends a command at once.
        self._method: Method = own or _METHODS[config.verifier](corpus, config, backends.load(backend))
        # How far the corpus knows a task, whatever the reward is.
        self.coverage = CorpusCoverage(corpus, self.embed)

    def score_groups(self, groups: Sequence[PromptGroup]) -> Sequence[Sequence[Outcome]]:
        """The reward of each plan, in order; all steps are encoded in one call, all pools found in one scan.

        Raises as `score`, for all groups; `recipe.reward.scorer.outcomes_of` finds the plans that the error concerns.
        A plan that a function of the user's own fails on has the failure in place of its reward.
        """
        return self._method.rewards(groups, self._vectors(groups))

    def score(
        self, *, goal: str, history: Sequence[str], continuations: Sequence[Sequence[str] | Plan]
    ) -> list[Reward]:
        """The reward of each continuation of one prompt, in order; the G continuations share the rows of h.

        The paper's reward does not read the goal. Raises InputError for a blank step, and where a text stands for
        steps or steps for plans; ComputeError for a score that cannot be computed.
        """
        rewards = list[Reward]()
        for outcome in self.score_groups([PromptGroup.of(goal, history, continuations)])[0]:
            if not isinstance(outcome, Reward):
                raise outcome
            rewards.append(outcome)
        return rewards

    def align(self, *, goal: str, history: Sequence[str], continuation: Sequence[str] | Plan) -> list[PooledAlignment]:
        """How h + c aligns with each narration of its pool, the best first. Raises as `score`."""
        [aligned] = self.align_groups([PromptGroup.of(goal, history, [continuation])])
        return aligned

    def align_groups(self, groups: Sequence[PromptGroup]) -> list[list[PooledAlignment]]:
        """The same for many groups of one plan each: steps are encoded in one call, pools found in one scan."""
        return self._method.alignments(groups, self._vectors(groups))

    def attribution(self, *, goal: str, history: Sequence[str], continuation: Sequence[str] | Plan) -> dict[str, float]:
        """What each feature of a plan adds to its reward by a self-trained net, the largest first."""
        groups = [PromptGroup.of(goal, history, [continuation])]
        return self._method.attributions(groups, self._vectors(groups))[0]

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Unit-norm float32 [n, d] of steps, n >= 1; new texts are encoded in one call and kept.

        Raises InputError for a blank step, ComputeError where the encoder fails.
        """
        return self.embeddings.stacked(texts)

    def _vectors(self, groups: Sequence[PromptGroup]) -> dict[str, Vectors]:
        return self.embeddings.by_text([text for group in groups for text in self._method.texts(group)])
