"""What is frozen stays as it was, bit by bit, and the rest is trained."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from isotrope.encoders.heads import LinearHead
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.training.fit_text import fit
from isotrope.training.settings import TrainSettings
from isotrope.training.text import check, module_of
from tests.refused import refused_setting

from .conftest import sentences
from .tiny_images import plan


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base") / "model"
    SentenceEncoder.scratch(sentences(300), seed=1, width=32, layers=2).save(folder)
    return folder


@pytest.fixture
def frozen(quick: dict, base: Path) -> dict[str, Any]:
    own = {"encoder": str(base), "freeze": "embeddings", "head": "linear", "learning_rate": 1e-2}
    return {**quick, **own, "max_steps": 3}


def changed(base: Path, model: Path) -> dict[str, bool]:
    before, after = (load_file(folder / "model.safetensors") for folder in (base, model))
    return {name: not torch.equal(value, after[name]) for name, value in before.items()}


def test_embeddings_stay_and_every_layer_is_trained(frozen: dict, base: Path) -> None:
    outcome = fit(**frozen)
    moved = changed(base, outcome.output / "model")
    below = [name for name in moved if name.startswith("embeddings.")]
    assert len(below) == 5, "words, positions, types, and the norm's two"
    assert not any(moved[name] for name in below)
    # the bias of keys has no gradient: softmax does not see it
    layers = [name for name in moved if name.startswith("encoder.") and ".key.bias" not in name]
    assert all(moved[name] for name in layers)
    card = (outcome.output / "model" / "README.md").read_text()
    assert "| trained | all weights but the embeddings |" in card
    assert "| head in training | linear " in card


def test_without_it_they_are_trained(frozen: dict, base: Path) -> None:
    outcome = fit(**{**frozen, "freeze": "none"})
    assert changed(base, outcome.output / "model")["embeddings.word_embeddings.weight"]


def test_biases_and_norms_do_not_decay(frozen: dict) -> None:
    settings = TrainSettings.read({**frozen, "freeze": "none", "weight_decay": 0.1})
    encoder, objectives, _ = check(settings)
    module = module_of(settings, encoder, objectives, plan(weight_decay=0.1))
    groups = module.optimizer().param_groups
    decays = {p: group["weight_decay"] for group in groups for p in group["params"]}
    names = {p: name for name, p in module.named_parameters() if p.requires_grad}
    assert decays == {
        p: 0.0 if name.endswith("bias") or "Norm" in name else 0.1 for p, name in names.items()
    }
    without = module_of(settings, encoder, objectives, plan())
    assert len(without.optimizer().param_groups) == 1


def test_the_head_is_the_one_that_was_asked_for(frozen: dict) -> None:
    settings = TrainSettings.read(frozen)
    encoder, objectives, _ = check(settings)
    assert isinstance(module_of(settings, encoder, objectives, plan()).head, LinearHead)


def test_without_a_module_of_embeddings_the_word_vectors_alone_are_frozen(base: Path) -> None:
    encoder = SentenceEncoder.load(base, device="cpu")
    transformer = encoder.model[0].model
    table = transformer.get_input_embeddings()
    transformer.embeddings = torch.nn.Linear(2, 2)  # one of another kind, without the table
    transformer.get_input_embeddings = lambda: table
    encoder.freeze_embeddings()
    assert not table.weight.requires_grad
    assert transformer.embeddings.weight.requires_grad


@pytest.mark.parametrize(
    ("more", "setting", "value"),
    [
        ({"encoder": "scratch"}, "freeze", "embeddings"),
        ({"freeze": "layers"}, "freeze", "layers"),
        ({"head": "tanh"}, "head", "tanh"),
    ],
)
def test_bad_input_leaves_nothing_behind(
    frozen: dict, more: dict, setting: str, value: str
) -> None:
    with refused_setting(setting, value=value):
        fit(**{**frozen, **more})
    assert not Path(frozen["output"]).exists()
