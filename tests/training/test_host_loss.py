"""A loss of sentence-transformers in place of an objective."""

import csv
from pathlib import Path
from typing import Any

import pytest

from isotrope.core.errors import SettingError
from isotrope.training.fit_text import fit
from isotrope.training.settings import TrainSettings
from tests.training.conftest import sentences


def losses(folder: Path) -> list[float]:
    with (folder / "metrics.csv").open(newline="") as handle:
        return [float(row["loss"]) for row in csv.DictReader(handle) if row["loss"]]


def test_their_loss_is_our_objective(quick: dict[str, Any], tmp_path: Path) -> None:
    """MultipleNegativesRankingLoss of scale 20 is InfoNCE at 0.05, step by step."""
    texts = sentences(120, seed=3)
    pairs = zip(texts[::2], texts[1::2], strict=True)
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs))
    own = {**quick, "files": [str(tmp_path / "pairs.tsv")], "head": "none", "dropout": 0.0}
    ours = fit(**{**own, "output": str(tmp_path / "ours"), "objective": "infonce"})
    theirs = fit(
        **{**own, "output": str(tmp_path / "theirs")},
        loss="CachedMultipleNegativesRankingLoss",
        loss_settings={"mini_batch_size": "4", "scale": 20},
    )
    assert losses(theirs.output) == pytest.approx(losses(ours.output), rel=1e-4)
    assert len(losses(ours.output)) == 4
    assert theirs.result.details["objective"] == {
        "name": "CachedMultipleNegativesRankingLoss",
        "parameters": {"mini_batch_size": 4.0, "scale": 20.0},
    }
    card = (theirs.output / "model" / "README.md").read_text()
    assert "| objective | CachedMultipleNegativesRankingLoss (of sentence-transformers) |" in card
    written = TrainSettings.read(
        {"files": "x", "loss.scale": "20", "loss": "MegaBatchMarginLoss", "output": "y"}
    ).to_yaml()
    assert "loss: MegaBatchMarginLoss" in written
    assert "loss.scale: 20.0" in written


def test_a_guide_is_a_model(quick: dict[str, Any]) -> None:
    settings = {**quick, "views": "adjacent", "loss": "GISTEmbedLoss", "max_steps": 1}
    found = fit(**settings, loss_settings={"guide": quick["encoder"], "margin": 0.05})
    assert losses(found.output)[0] > 0


@pytest.mark.parametrize(
    ("given", "setting"),
    [
        ({"loss": "CoSENTLoss"}, "loss"),  # its labels are scores, of which a batch has none
        ({"loss": "GISTEmbedLoss"}, "loss.guide"),
        ({"loss": "GISTEmbedLoss", "loss_settings": {"gide": "x"}}, "loss.gide"),
        ({"loss": "MegaBatchMarginLoss", "objective": "met"}, "objective"),
        ({"loss": "MegaBatchMarginLoss", "micro_batch": 4}, "micro_batch"),
    ],
)
def test_refused(quick: dict[str, Any], given: dict[str, Any], setting: str) -> None:
    with pytest.raises(SettingError) as caught:
        fit(**{**quick, "views": "adjacent"}, **given)
    assert caught.value.setting == setting
    assert not Path(quick["output"]).exists()
