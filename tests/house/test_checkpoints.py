"""Loading language models: what is no model is said plainly, and nothing is written on the screen."""

import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from recipe.errors import InputError  # noqa: E402
from recipe.models.checkpoints import load_checkpoint, quiet_loading  # noqa: E402


def without(model: Path, target: Path, name: str) -> str:
    shutil.copytree(model, target, ignore=shutil.ignore_patterns(name))
    return str(target)


def test_a_folder_is_loaded_in_silence(tiny_model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    checkpoint = load_checkpoint(str(tiny_model), dtype=torch.bfloat16, attention="eager")
    assert checkpoint.model.dtype == torch.bfloat16
    assert checkpoint.model.config._attn_implementation == "eager"
    assert checkpoint.tokenizer.padding_side == "left"
    assert capfd.readouterr() == ("", "")


def test_bars_come_back_only_where_they_were() -> None:
    shown = transformers.logging.is_progress_bar_enabled
    assert shown()
    with quiet_loading():
        with quiet_loading():
            assert not shown()
        assert not shown()
    assert shown()


@pytest.mark.parametrize("name", ["runs/no/such/model", "./model", "/no/such/model"])
def test_a_missing_folder_is_not_looked_for_on_the_hub(name: str) -> None:
    with pytest.raises(InputError, match="does not exist; check the path, or train the model first"):
        load_checkpoint(name)


def test_a_folder_around_the_model_names_the_one_inside(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no model in this folder; give a folder with config\.json"):
        load_checkpoint(str(tmp_path))
    (tmp_path / "model").symlink_to(tiny_model)
    with pytest.raises(InputError, match=rf"there is no model in this folder; give {tmp_path / 'model'}\."):
        load_checkpoint(str(tmp_path))


def test_a_folder_without_weights_says_what_belongs_there(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no complete model .*model\.safetensors"):
        load_checkpoint(without(tiny_model, tmp_path / "m", "*.safetensors"))


def test_a_model_without_a_chat_template_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no chat template"):
        load_checkpoint(without(tiny_model, tmp_path / "m", "chat_template.jinja"))


@pytest.mark.parametrize(
    ("offline", "message"),
    [("1", "HF_HUB_OFFLINE and the model is not in the local cache"), ("0", r"from the hub \(nothing of that name\)")],
)
def test_what_the_hub_does_not_give_is_named(offline: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object, **__: object) -> None:
        raise OSError("nothing of that name\nand more")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", absent)
    monkeypatch.setenv("HF_HUB_OFFLINE", offline)
    with pytest.raises(InputError, match=rf"'nobody/nothing': .*{message}.*download the model once while online"):
        load_checkpoint("nobody/nothing")


def test_a_model_that_sees_comes_with_its_processor(tiny_video_model: Path, tiny_model: Path) -> None:
    checkpoint = load_checkpoint(str(tiny_video_model), attention="eager")
    assert checkpoint.model.config.model_type == "qwen2_5_vl"
    assert checkpoint.model.config.vision_config._attn_implementation == "eager"
    assert checkpoint.video is not None
    assert checkpoint.video.max_pixels == 84 * 84
    assert load_checkpoint(str(tiny_model)).video is None


def test_a_model_that_sees_needs_the_settings_of_its_processor(tiny_video_model: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no settings of a video processor; add the video_preprocessor_config\.json"):
        load_checkpoint(without(tiny_video_model, tmp_path / "m", "*preprocessor_config.json"))


def test_a_chat_template_may_lie_apart(tiny_video_model: Path, tmp_path: Path) -> None:
    folder = Path(without(tiny_video_model, tmp_path / "m", "*.jinja"))
    (folder / "chat_template.json").write_text('{"chat_template": "{{ messages }}"}')
    assert load_checkpoint(str(folder)).tokenizer.chat_template == "{{ messages }}"
    (folder / "chat_template.json").write_text("{}")
    with pytest.raises(InputError, match=r"chat_template\.json: it holds no template; restore"):
        load_checkpoint(str(folder))
