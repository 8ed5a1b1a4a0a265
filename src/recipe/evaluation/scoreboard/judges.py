"""Which judge a figure is by, and whether the paper's figures may stand beside it."""

from recipe.data.benchmarks import BENCHMARKS
from recipe.evaluation.published import JUDGE
from recipe.evaluation.scores import JudgeIdentity

SPLIT_NAMES = {"in-domain": "In-domain", "zero-shot": "Zero-shot", "all": "All datasets"}
_TITLES = {name: benchmark.title for name, benchmark in BENCHMARKS.items()}


def is_papers(judge: JudgeIdentity, model: str = JUDGE) -> bool:
    """Whether a judge is the paper's model itself: no quantised or sped-up variant, no proxy, nobody else.

    >>> is_papers(JudgeIdentity("a judge", "llm", "meta-llama/Llama-3.3-70B-Instruct"))
    True
    >>> is_papers(JudgeIdentity("Llama-3.3-70B-Instruct", "proxy"))
    False
    """
    return judge.kind == "llm" and (judge.model or judge.name).rsplit("/", 1)[-1].lower() == model.lower()


def comparability(judge: JudgeIdentity, model: str = JUDGE) -> str:
    """The sentence that stands wherever published figures are near those of a judge."""
    if is_papers(judge, model):
        return (
            f"Published figures are by {model} too, but its prompt here is rebuilt from the paper's description, and "
            "the paper's list of test examples is not known: compare with care."
        )
    what = {"proxy": "a proxy computed on this machine", "human": "a person", "llm": "another model"}[judge.kind]
    return (
        f"{judge.name} is {what}, and not the paper's judge, {model}: its figures are not comparable with published "
        "ones, which stand in tables of their own."
    )


def normal(dataset: str) -> str:
    """A dataset's name as published tables key it.

    >>> normal("Ego-Exo4D"), normal("NIV")
    ('egoexo4d', 'niv')
    """
    return "".join(char for char in dataset.lower() if char.isalnum())


def dataset_name(dataset: str) -> str:
    """A dataset's name as tables show it.

    >>> dataset_name("egoexo4d"), dataset_name("my kitchen")
    ('Ego-Exo4D', 'my kitchen')
    """
    return _TITLES.get(normal(dataset), dataset)


def split_name(split: str) -> str:
    """A split's name as tables show it."""
    return SPLIT_NAMES.get(split, split)
