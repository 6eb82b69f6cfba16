"""Matryoshka: the first coordinates of an embedding are trained to be one."""

import json
from pathlib import Path

import pytest
import torch
from sentence_transformers.sentence_transformer import losses

from isotrope.adapters.sentence_transformers import ObjectiveLoss
from isotrope.cli.main import guarded
from isotrope.core.views import Views
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.objectives import InfoNCE
from isotrope.training.fit_text import fit
from tests.refused import refused_setting

from .conftest import sentences
from .interrupted import power_cut


@pytest.fixture
def quick(quick: dict) -> dict:
    """With an encoder whose embeddings have 128 coordinates."""
    return {**quick, "encoder": "scratch"}


@pytest.fixture
def nested(quick: dict) -> dict:
    """Prefixes of embeddings of 128 coordinates; the whole and a repeated one count once."""
    return {**quick, "matryoshka": [16, 128, 64, 16], "head": "none", "max_steps": 3}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model" / "model.safetensors")


def test_the_loss_is_that_of_sentence_transformers_over_its_number() -> None:
    """Theirs adds up what ours averages; the cosines of a prefix are the same."""
    encoder = SentenceEncoder.scratch(sentences(30), width=32, layers=1)
    model = encoder.model.eval().double()
    parts = [model.preprocess(sentences(8, seed)) for seed in (1, 2)]
    theirs = losses.MatryoshkaLoss(model, ObjectiveLoss(model, "infonce"), [32, 16, 4])
    total = theirs([dict(part) for part in parts], None)
    total.backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    h = [model(dict(part))["sentence_embedding"] for part in parts]
    ours = ObjectiveLoss(model, "infonce", prefixes=[16, 4]).compute_loss_from_embeddings(h)
    ours.backward()
    torch.testing.assert_close(3 * ours, total, rtol=1e-9, atol=0)
    for name, p in model.named_parameters():
        if p.grad is not None:
            torch.testing.assert_close(3 * p.grad, found[name], rtol=1e-6, atol=1e-9)


def test_a_run_takes_the_mean_over_prefixes(nested: dict, tmp_path: Path, monkeypatch) -> None:
    seen: list[tuple[int, float]] = []
    loss = InfoNCE.loss

    def watched(self, views, **options):
        value = loss(self, views, **options)
        seen.append((views.anchors.shape[1], float(value.detach())))
        return value

    monkeypatch.setattr(InfoNCE, "loss", watched)
    outcome = fit(**{**nested, "max_steps": 1})
    monkeypatch.undo()
    assert [d for d, _ in seen[-3:]] == [128, 64, 16]
    values = [value for _, value in seen[-3:]]
    assert len({round(value, 4) for value in values}) == 3
    assert outcome.result.metrics["loss"] == pytest.approx(sum(values) / 3, rel=1e-6)
    details = json.loads((outcome.output / "result.json").read_text())["details"]
    assert details["matryoshka"] == [64, 16]
    card = (outcome.output / "model" / "README.md").read_text()
    assert (
        "first 64, 16 coordinates are embeddings, too: load the model with `truncate_dim=16`"
        in card
    )


@pytest.mark.slow
def test_what_it_is_for(nested: dict, tmp_path: Path) -> None:
    """After a few steps the prefixes are better at the objective than without."""
    settings = {**nested, "max_steps": 30, "learning_rate": 1e-3, "matryoshka": [8]}
    with_it = fit(**settings)
    without = fit(**{**settings, "matryoshka": [], "output": str(tmp_path / "plain")})
    found = []
    for outcome in (with_it, without):
        h = torch.from_numpy(outcome.encoder.encode(sentences(200, 9)))
        noisy = torch.from_numpy(outcome.encoder.encode([f"{s} river" for s in sentences(200, 9)]))
        found.append(float(InfoNCE().loss(Views(h[:, :8], noisy[:, :8]))))
    assert found[0] < found[1]


@pytest.mark.slow
def test_resuming_equals_never_stopping(nested: dict, tmp_path: Path) -> None:
    nested["checkpoint_every"] = 1
    whole = fit(**nested).output
    broken = {**nested, "output": str(tmp_path / "broken")}
    with power_cut(2):
        fit(**broken)
    first, second = weights(whole), weights(fit(**broken, resume=True).output)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("changed", "value"),
    [
        ({"matryoshka": [256]}, [256]),
        ({"head": "mlp"}, [16, 128, 64, 16]),
        ({"matryoshka": [0]}, [0]),
    ],
)
def test_bad_input_leaves_nothing_behind(nested: dict, changed: dict, value: object) -> None:
    with refused_setting("matryoshka", value=value):
        fit(**{**nested, **changed})
    assert not Path(nested["output"]).exists()


def test_the_flag_takes_several_numbers(nested: dict, corpus: Path, capsys) -> None:
    line = ["train", str(corpus), "--matryoshka", "64", "32", "--head", "none", "--output", "x"]
    assert guarded([*line, "--print-config"]) == 0
    assert "matryoshka:\n- 64\n- 32\n" in capsys.readouterr().out
