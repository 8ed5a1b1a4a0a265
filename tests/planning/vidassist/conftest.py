"""A miniature CrossTask in the published layout, and a model on this machine that reads the prompts."""

from pathlib import Path

import pytest

CARDS = """501
Brew Mint Tea
http://www.wikihow.com/Brew-Mint-Tea
4
boil water,add mint,pour tea,stir

77
Patch a Kite
http://www.wikihow.com/Patch-a-Kite
2
cut tape,press tape

"""
VIDEOS = {
    "501_t1": (1, 2, 3, 4, 2), "501_t2": (1, 2, 4, 3, 4), "77_k1": (1, 2, 1, 2, 2), "501_a": (1, 2, 3),
    "501_b": (1, 4, 3, 2), "77_c": (1, 2, 1),
}  # fmt: skip


@pytest.fixture
def crosstask(tmp_path: Path) -> Path:
    """Three test videos of 5 steps, which make 6 samples of a target of 4, the end counted, and 3 training videos."""
    release = tmp_path / "crosstask" / "crosstask_release"
    (release / "annotations").mkdir(parents=True)
    (release / "tasks_primary.txt").write_text(CARDS)
    for name, steps in VIDEOS.items():
        rows = (f"{step},{at}.0,{at}.5\n" for at, step in enumerate(steps))
        (release / "annotations" / f"{name}.csv").write_text("".join(rows))
    splits = tmp_path / "crosstask" / "splits"
    splits.mkdir()
    for split, videos in (("train", "a\nb\n"), ("validation", "c\n"), ("test", "t1\nt2\nk1\n")):
        (splits / f"{split}.txt").write_text(videos)
    return tmp_path / "crosstask"


@pytest.fixture(scope="session")
def reading_model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with a context that the prompts fit into; what it does not know reads as padding."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    path = tmp_path_factory.mktemp("reading")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.save_pretrained(path)
    config = transformers.AutoConfig.from_pretrained(tiny_model)
    config.max_position_embeddings = 512
    torch.manual_seed(0)
    transformers.Olmo2ForCausalLM(config).save_pretrained(path)
    return path
