"""The fast visual tower on a CPU: the same numbers and gradients, on this model alone."""

import copy
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from recipe.models.checkpoints import load_checkpoint  # noqa: E402
from recipe.models.vision import fast_vision  # noqa: E402


@pytest.fixture
def model(tiny_video_model: Path) -> Any:
    return load_checkpoint(str(tiny_video_model)).model


def run(tower: Any, pixels: Any, grids: list[list[int]]) -> tuple[Any, Any]:
    """What the tower sees, and the gradients of its weights."""
    tower.zero_grad()
    seen = tower(pixels, grid_thw=torch.tensor(grids)).pooler_output
    (seen * torch.linspace(-1, 1, seen.numel()).view(seen.shape)).sum().backward()
    return seen.detach(), torch.cat([weight.grad.flatten() for weight in tower.parameters()])


@pytest.mark.parametrize(("sharp", "dtype", "error"), [(False, torch.float32, 5e-6), (True, torch.float64, 1e-9)])
@pytest.mark.parametrize(
    "grids",
    [[[3, 4, 4]], [[2, 4, 4], [5, 4, 4]], [[2, 4, 6], [1, 4, 4]], [[1, 10, 12]], [[2, 16, 18]]],
    ids=["one clip", "two clips", "two sizes", "several windows", "long windows"],
)
def test_values_and_gradients_stay(model: Any, grids: list[list[int]], sharp: bool, dtype: Any, error: float) -> None:
    torch.manual_seed(0)
    pixels = torch.randn(sum(t * h * w for t, h, w in grids), 1176, dtype=dtype)
    slow = copy.deepcopy(model.model.visual).to(dtype)
    slow.fullatt_block_indexes = [1]
    for block in slow.blocks if sharp else ():
        block.attn.qkv.weight.data.normal_(0, 0.4)  # attention that is nearly even would hide an error
    fast = copy.deepcopy(slow)
    fast_vision(fast)
    assert type(fast.patch_embed) is not type(slow.patch_embed)
    for found, expected in zip(run(fast, pixels, grids), run(slow, pixels, grids), strict=True):
        torch.testing.assert_close(found, expected, atol=error * float(expected.abs().max()), rtol=0)


def test_only_this_model_changes_and_what_is_saved_does_not(model: Any, tmp_path: Path) -> None:
    other = copy.deepcopy(model)
    fast_vision(model)
    fast_vision(model)
    assert "recipe" in type(model.model.visual.patch_embed).__module__
    assert "recipe" not in type(other.model.visual.patch_embed).__module__
    assert model.state_dict().keys() == other.state_dict().keys()
    model.save_pretrained(tmp_path / "fast")
    other.save_pretrained(tmp_path / "slow")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "fast" / name).read_bytes() == (tmp_path / "slow" / name).read_bytes()


def test_a_text_model_is_left_alone(tiny_model: Path) -> None:
    model = load_checkpoint(str(tiny_model)).model
    kinds = [type(module) for module in model.modules()]
    fast_vision(model)
    assert [type(module) for module in model.modules()] == kinds
