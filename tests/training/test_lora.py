"""LoRA: the encoder's own weights stay, and what is saved is plain."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

import isotrope
from isotrope.cli.main import guarded
from isotrope.core.errors import MissingExtra
from isotrope.encoders.lora import add_lora, lora_facts, merged_weights
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.training.fit_text import fit
from isotrope.training.settings import TrainSettings
from isotrope.training.text import check, module_of
from tests.refused import refused_setting

from .conftest import sentences
from .interrupted import power_cut
from .tiny_images import plan

pytest.importorskip("peft", reason="peft is not installed (isotrope[lora])")

TEXTS = ["a stone in the river", "a lantern on the bridge, seen from the harbor"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small encoder with a pooler, which no embedding passes through."""
    folder = tmp_path_factory.mktemp("base") / "model"
    SentenceEncoder.scratch(sentences(300), seed=1, width=32, layers=2).save(folder)
    return folder


@pytest.fixture
def lora(quick: dict, base: Path) -> dict[str, Any]:
    return {
        **quick,
        "max_steps": 3,
        "encoder": str(base),
        "lora": 4,
        "learning_rate": 1e-2,
        "eval_every": 2,
    }


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def test_the_weights_that_came_stay_and_the_saved_model_is_plain(lora: dict, base: Path) -> None:
    from sentence_transformers import SentenceTransformer

    outcome = fit(**lora)
    model = outcome.output / "model"
    before, after = weights(base), weights(model)
    assert set(before) == set(after)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert {name.rpartition(".self.")[2] for name in changed} == {"query.weight", "value.weight"}
    assert not any("lora" in (model / file).read_text() for file in ("config.json", "modules.json"))
    live = outcome.encoder.model[0].model.state_dict()
    kept = {name.replace(".base_layer", ""): value for name, value in live.items()}
    assert all(torch.equal(kept[name], before[name]) for name in before)

    theirs = SentenceTransformer(str(model), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(isotrope.load(model, device="cpu").encode(TEXTS), theirs, atol=1e-6)
    np.testing.assert_allclose(outcome.encoder.encode(TEXTS), theirs, atol=1e-5)
    started = SentenceTransformer(str(base), device="cpu")
    assert np.abs(started.encode(TEXTS) - theirs).max() > 1e-2
    started.load_adapter(str(model / "adapter"))
    np.testing.assert_allclose(started.encode(TEXTS), theirs, atol=1e-5)


def test_a_share_of_the_way_is_that_share_of_the_change(
    lora: dict, base: Path, tmp_path: Path
) -> None:
    runs = [
        fit(**{**lora, "between": share, "output": str(tmp_path / str(share))}).output / "model"
        for share in (1.0, 0.25)
    ]
    before, after, part = weights(base), *map(weights, runs)
    assert any((after[name] - before[name]).abs().max() > 1e-3 for name in before)
    for name, start in before.items():
        torch.testing.assert_close(part[name], start.lerp(after[name], 0.25), atol=1e-6, rtol=1e-4)


def test_the_run_says_rank_and_share(lora: dict, capsys) -> None:
    own = {"max_steps": 1, "progress": True, "dev": "auto", "holdout": 0.3, "refit": True}
    outcome = fit(**{**lora, **own}, lora_alpha=3)
    facts = json.loads((outcome.output / "result.json").read_text())["details"]["lora"]
    width, layers, matrices = 32, 2, 2
    trainable = layers * matrices * 2 * 4 * width
    total = sum(p.numel() for p in outcome.encoder.parameters())
    assert facts == {
        "rank": 4,
        "alpha": 3,
        "targets": ["query", "value"],
        "trainable": trainable,
        "parameters": total,
        "share": pytest.approx(trainable / total),
    }
    said = f"{trainable:,} of the encoder's {total:,} parameters ({trainable / total:.2%})"
    printed = capsys.readouterr().err
    assert said in printed
    assert "for a second training" not in printed  # LoRA has none
    assert said in (outcome.output / "model" / "README.md").read_text()
    config = yaml.safe_load((outcome.output / "config.yaml").read_text())
    assert (config["lora"], config["lora-alpha"]) == (4, 3)


def test_resuming_equals_never_stopping(lora: dict, tmp_path: Path) -> None:
    lora["checkpoint_every"] = 1
    whole = fit(**lora).output
    broken = {**lora, "output": str(tmp_path / "broken")}
    with power_cut(2):
        fit(**broken)
    resumed = fit(**broken, resume=True).output
    for file in ("model.safetensors", "adapter/adapter_model.safetensors"):
        first, second = (load_file(folder / "model" / file) for folder in (whole, resumed))
        assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("backend", ["rowblock", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_micro_batches_give_the_same_model(lora: dict, tmp_path: Path, backend: str) -> None:
    """The graphs of all texts kept, or of four at a time; without dropout, as masks differ."""
    settings = {**lora, "max_steps": 1, "dropout": 0.0}
    cached = fit(**settings, micro_batch=4, backend=backend)
    kept = fit(**{**settings, "output": str(tmp_path / "kept")}, backend=backend)
    first, second = (weights(outcome.output / "model") for outcome in (cached, kept))
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=1e-4, atol=1e-5)


def test_a_cut_is_of_the_head_alone(lora: dict) -> None:
    modules = []
    for cut in (1.0, 3.0):
        settings = TrainSettings.read({**lora, "cut": cut})
        encoder, objectives, _ = check(settings)
        modules.append(module_of(settings, encoder, objectives, plan()))
    plain, divided = modules
    for one, other in zip(plain.encoder.parameters(), divided.encoder.parameters(), strict=True):
        assert torch.equal(one, other)
    for one, other in zip(plain.head.parameters(), divided.head.parameters(), strict=True):
        torch.testing.assert_close(one / (3 if one.ndim > 1 else 1), other)


def test_every_verb_takes_the_run(lora: dict, tmp_path: Path, capsys) -> None:
    run = str(fit(**{**lora, "checkpoint_every": 2}).output)
    corpus = lora["files"][0]
    for line in (
        ["diagnose", run, "--data", corpus],
        ["encode", run, corpus, "-o", str(tmp_path / "out.npy")],
        ["search", run, corpus, "river stone", "--top", "2"],
        ["diagnose", run],
    ):
        assert guarded(line) == 0, capsys.readouterr().err


def test_what_is_merged_comes_back_exactly(base: Path) -> None:
    encoder = SentenceEncoder.load(base, device="cpu")
    plain = encoder.encode(TEXTS)
    add_lora(encoder, 2, targets=["all-linear"])
    assert lora_facts(encoder)["targets"] == ["dense", "key", "query", "value"]
    assert not any("pooler" in n and p.requires_grad for n, p in encoder.named_parameters())
    assert np.array_equal(encoder.encode(TEXTS), plain), "B is zero at the start"
    for name, p in encoder.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(p, std=0.1)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    with merged_weights(encoder):
        inside = encoder.encode(TEXTS)
        assert lora_facts(encoder)["trainable"] == 0
    after = encoder.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)
    np.testing.assert_allclose(inside, encoder.encode(TEXTS), atol=1e-5)
    assert np.abs(inside - plain).max() > 1e-2


def test_a_merge_that_fails_leaves_the_encoder_unmerged(base: Path, monkeypatch) -> None:
    encoder = SentenceEncoder.load(base, device="cpu")
    add_lora(encoder, 2, targets=["query", "value"])
    before = list(encoder.modules())
    *_, last = (m for m in encoder.modules() if hasattr(m, "lora_A") and hasattr(m, "merge"))

    def fail(self: torch.nn.Module, *args: object) -> None:
        raise RuntimeError("out of memory")

    # the other layers are merged by then; a copy of this one fails
    monkeypatch.setattr(last, "merge", fail.__get__(last), raising=False)
    with pytest.raises(RuntimeError, match="out of memory"), merged_weights(encoder):
        pass
    after = list(encoder.modules())
    assert len(after) == len(before)
    assert all(one is other for one, other in zip(after, before, strict=True))


def test_the_seed_decides_the_matrices(base: Path) -> None:
    found = []
    for seed in (0, 0, 1):
        encoder = SentenceEncoder.load(base, device="cpu")
        state = torch.get_rng_state()
        add_lora(encoder, 2, seed=seed)
        assert torch.equal(torch.get_rng_state(), state)
        found.append(torch.cat([p.flatten() for p in encoder.parameters() if p.requires_grad]))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize(
    ("changed", "setting"),
    [
        ({"lora": None, "lora_alpha": 8}, "lora_alpha"),
        ({"lora": None, "lora_targets": ["query"]}, "lora_targets"),
        ({"encoder": "scratch"}, "lora"),
        ({"lora_targets": ["query,valeu"]}, "lora_targets"),
        ({"lora": 0}, "lora"),
        ({"lora_targets": ["a,,b"]}, "lora_targets"),
    ],
)
def test_bad_input_leaves_nothing_behind(lora: dict, changed: dict, setting: str) -> None:
    with refused_setting(setting):
        fit(**{**lora, **changed})
    assert not Path(lora["output"]).exists()


def test_without_peft_it_says_what_to_install(lora: dict, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[lora\]'"):
        fit(**lora)


def test_a_layer_that_can_have_none_is_refused(base: Path, monkeypatch) -> None:
    import peft

    def refuses(*_: object) -> None:
        raise ValueError("Target module X() is not supported.\nmore")

    monkeypatch.setattr(peft, "inject_adapter_in_model", refuses)
    with refused_setting("lora", value=2):
        add_lora(SentenceEncoder.load(base, device="cpu"), 2)


@pytest.mark.nightly
def test_two_processes_train_what_one_does(lora: dict, tmp_path: Path) -> None:
    """Without dropout: each process draws masks of its own."""
    settings = {**lora, "dropout": 0.0, "views": "adjacent", "device": "cpu", "max_steps": 3}
    alone = fit(**settings).output
    shared = fit(**{**settings, "output": str(tmp_path / "two"), "devices": 2}).output
    first, second = (weights(folder / "model") for folder in (alone, shared))
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=1e-4, atol=1e-5)
