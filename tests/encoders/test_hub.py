"""Models of the hub: the code of huggingface_hub, its cache, and a hub on this machine."""

import json
import shutil

import huggingface_hub
import pytest
from huggingface_hub import constants, hf_hub_download

from isotrope import load
from isotrope.core.errors import InputError
from isotrope.core.files import remove
from isotrope.encoders import model_folder
from isotrope.encoders.names import resolve
from isotrope.encoders.sentence import SentenceEncoder
from tests.encoders.hub import COMMIT, local_hub

NAME = "someone/small"
PLAIN = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def model(tiny, tmp_path):
    """The model on the hub, with files that isotrope never downloads."""
    tiny.save(folder := tmp_path / "hub" / NAME)
    config = json.loads((folder / "1_Pooling" / "config.json").read_text())
    config["pooling_mode"] = "cls"
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))
    (folder / "onnx").mkdir()
    for other in (".gitattributes", "pytorch_model.bin", "onnx/model.onnx"):
        (folder / other).write_bytes(b"other")
    return folder


@pytest.fixture
def hub(tmp_path, monkeypatch, model, cache):
    with local_hub(tmp_path / "hub", monkeypatch) as served:
        switch(monkeypatch, online=True)
        yield served


def switch(monkeypatch, *, online):
    for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(variable, raising=False)
    if not online:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", not online)


def get(cache, files, name=NAME):
    """Download files as transformers does: one at a time."""
    for file in files:
        hf_hub_download(name, file, cache_dir=cache)


def snapshot(cache, name=NAME):
    return cache / f"models--{name.replace('/', '--')}" / "snapshots" / COMMIT


def test_a_downloaded_model_is_found_again_without_the_network(hub, cache, monkeypatch):
    folder = resolve(NAME)
    assert folder == snapshot(cache)
    assert not {".gitattributes", "pytorch_model.bin", "onnx/model.onnx"} & {*hub.asked}
    hub.forget()
    assert resolve(NAME) == folder  # nothing is asked again
    switch(monkeypatch, online=False)
    assert resolve(NAME) == folder
    assert SentenceEncoder.load(NAME, device="cpu").pooling == "cls"
    assert hub.asked == []


def test_a_cache_without_the_list_of_files(model, cache, monkeypatch, capsys):
    # huggingface_hub before version 2 stored none
    shutil.copytree(model, snapshot(cache))
    (snapshot(cache).parents[1] / "refs").mkdir()
    (snapshot(cache).parents[1] / "refs" / "main").write_text(COMMIT)
    assert resolve(NAME) == snapshot(cache)
    assert capsys.readouterr().err == ""


def test_what_transformers_left_is_completed(hub, cache, monkeypatch):
    get(cache, PLAIN)
    hub.forget()
    assert SentenceEncoder.load(NAME, device="cpu").pooling == "cls"
    assert "modules.json" in hub.asked
    assert "model.safetensors" not in hub.asked


def test_what_transformers_left_is_told_without_the_network(hub, cache, monkeypatch, capsys):
    get(cache, PLAIN)
    switch(monkeypatch, online=False)
    model_folder.warn_once.cache_clear()
    for _ in range(2):
        assert load(NAME, device="cpu").pooling == "mean"
    (told,) = capsys.readouterr().err.splitlines()
    assert told == (
        "warning: mean pooling is assumed for someone/small (for a causal model: the last token), "
        "without normalisation and prompts, because the local Hugging Face cache has no "
        "modules.json of it, and the hub is switched off: unset HF_HUB_OFFLINE to use it"
    )


def test_a_model_without_modules_is_taken_from_the_cache(hub, cache, monkeypatch, model, capsys):
    (model / "modules.json").unlink()
    get(cache, PLAIN)
    with pytest.raises(huggingface_hub.errors.EntryNotFoundError):
        get(cache, ["modules.json"])  # as sentence-transformers does; the cache keeps the answer
    hub.forget()
    assert resolve(NAME) == snapshot(cache)
    switch(monkeypatch, online=False)
    assert resolve(NAME) == snapshot(cache)
    assert hub.asked == []
    assert capsys.readouterr().err == ""


def test_a_model_whose_list_has_no_modules(hub, cache, monkeypatch, model, capsys):
    (model / "modules.json").unlink()
    folder = resolve(NAME)
    capsys.readouterr()  # the bar of the download
    switch(monkeypatch, online=False)
    assert resolve(NAME) == folder
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("lacking", ["tokenizer.json", "model.safetensors"])
def test_a_tokenizer_or_weights_that_were_not_downloaded(hub, cache, monkeypatch, lacking):
    get(cache, ["modules.json", *(file for file in PLAIN if file != lacking)])
    switch(monkeypatch, online=False)
    with pytest.raises(
        InputError,
        match=r"^'someone/small' is neither a folder here nor (complete )?in the local Hugging "
        "Face cache, and the hub is switched off: unset HF_HUB_OFFLINE to use it",
    ):
        resolve(NAME)
    switch(monkeypatch, online=True)
    assert resolve(NAME) == snapshot(cache)
    assert lacking in hub.asked


@pytest.mark.parametrize(("lacking", "found"), [("README.md", True), ("1_Pooling", False)])
def test_a_download_that_was_interrupted(hub, cache, monkeypatch, lacking, found):
    folder = resolve(NAME)
    remove(folder / lacking)
    switch(monkeypatch, online=False)
    if found:
        assert resolve(NAME) == folder
    else:
        with pytest.raises(InputError, match="nor complete in the local Hugging Face cache"):
            resolve(NAME)
    switch(monkeypatch, online=True)
    assert resolve(NAME) == folder
    assert (folder / lacking).exists()


def test_a_model_that_has_only_pickles_on_the_hub(hub, model):
    (model / "model.safetensors").unlink()
    for _ in range(2):
        with pytest.raises(
            InputError,
            match=r"SentenceTransformer\('someone/small'\)\.save_pretrained\(FOLDER\).* has no "
            r"\*\.safetensors on the hub",
        ):
            resolve(NAME)
    assert "pytorch_model.bin" not in hub.asked


CODE = """
from pathlib import Path
from sentence_transformers.sentence_transformer.modules import Pooling
Path({mark!r}).touch()
class Mine(Pooling): pass
"""


def test_code_of_a_model_is_downloaded_with_the_flag_only(hub, cache, model, tmp_path, monkeypatch):
    mark = tmp_path / "ran"
    (model / "mine.py").write_text(CODE.format(mark=str(mark)))
    modules = json.loads((model / "modules.json").read_text())
    modules[1]["type"] = "mine.Mine"
    (model / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InputError, match=r"module class 'mine\.Mine'"):
        load(NAME, device="cpu")
    assert "mine.py" not in hub.asked
    load(NAME, device="cpu", trust_remote_code=True)
    assert mark.exists()
    mark.unlink()
    switch(monkeypatch, online=False)
    with pytest.raises(InputError, match=r"module class 'mine\.Mine'"):
        load(NAME, device="cpu")  # the code is here now, and is not run
    assert not mark.exists()
    load(NAME, device="cpu", trust_remote_code=True)
