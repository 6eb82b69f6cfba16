"""A loss of sentence-transformers in place of an objective."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer import losses as host_losses

import isotrope
from isotrope.core.errors import InputError, SettingError
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


SCORED = ["CoSENTLoss", "AnglELoss", "CosineSimilarityLoss"]
NEGATIVES = ["MarginMSELoss", "DistillKLDivLoss"]


@pytest.mark.parametrize("margins", [False, True])
@pytest.mark.parametrize("name", [*SCORED, *NEGATIVES])
def test_scores_reach_the_losses_that_take_them(
    quick: dict[str, Any], tmp_path: Path, name: str, margins: bool
) -> None:
    """The first loss is that of sentence-transformers itself, on the rows as they are."""
    if margins and name != "MarginMSELoss":
        pytest.skip("takes no margins")
    numbers = np.random.default_rng(0).random((12, 3)).round(3).tolist()
    texts = [sentences(60, seed=1)[i::12][:4] for i in range(12)]
    rows: list[dict[str, object]] = []
    for row, scores in zip(texts, numbers, strict=True):
        if name in SCORED:
            rows.append({"sentence1": row[0], "sentence2": row[1], "score": scores[0]})
        elif margins:
            named = {
                "anchor": row[0],
                "positive": row[1],
                "negative_1": row[2],
                "negative_2": row[3],
            }
            rows.append({**named, "scores": scores[1:]})
        else:
            flag = {"query": row[0], "pos": row[1:2], "neg": row[2:]}
            rows.append({**flag, "pos_scores": scores[:1], "neg_scores": scores[1:]})
    file = tmp_path / "scored.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = {**quick, "files": [str(file)], "head": "none", "dropout": 0.0, "batch_size": 12}
    found = losses(fit(**{**own, "output": str(tmp_path / "run"), "epochs": 1}, loss=name).output)

    model = isotrope.load(quick["encoder"], device="cpu").model
    width = 2 if name in SCORED else 4
    limit = quick.get("max_length", 32)
    model.max_seq_length = limit
    columns = [model.tokenize([row[i] for row in texts]) for i in range(width)]
    kept = {2: 0, 4: slice(1 if margins else 0, None)}[width]
    label = torch.tensor([scores[kept] for scores in numbers])
    with torch.no_grad():
        theirs = getattr(host_losses, name)(model.eval())(columns, label)
    assert found[0] == pytest.approx(float(theirs), rel=1e-4)


@pytest.mark.parametrize(
    ("name", "scores", "said"),
    [
        ("CosineSimilarityLoss", [0, 5], r"reach 5, .* divide the scores by 5"),
        ("CoSENTLoss", [1, 1], "all scores are 1, so CoSENTLoss has no order to learn"),
    ],
)
def test_scores_that_the_loss_cannot_learn_are_refused(
    quick: dict[str, Any], tmp_path: Path, name: str, scores: list[float], said: str
) -> None:
    file = tmp_path / "scored.csv"
    rows = [f"{text},{text} b,{scores[i % 2]}\n" for i, text in enumerate(sentences(20))]
    file.write_text("sentence1,sentence2,score\n" + "".join(rows))
    with pytest.raises(InputError, match=said):
        fit(**{**quick, "files": [str(file)], "batch_size": 4}, loss=name)
    assert not Path(quick["output"]).exists()


def test_rows_without_as_many_scores_are_refused(quick: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "scored.jsonl"
    rows = [{"query": t, "pos": [t + " b"], "neg": [t + " c"] * (1 + (i == 5))} for i, t in
            enumerate(sentences(12))]  # fmt: skip
    scored = [{**row, "pos_scores": [1.0], "neg_scores": [0.5] * len(row["neg"])} for row in rows]
    file.write_text("".join(json.dumps(row) + "\n" for row in scored))
    with pytest.raises(InputError, match="record 6 has 4 texts and 3 scores, and the first has 3"):
        fit(**{**quick, "files": [str(file)], "batch_size": 4}, loss="MarginMSELoss")
    file.write_text("".join(json.dumps(row) + "\n" for row in rows[:5]))
    with pytest.raises(InputError, match="takes scores, and the data have none"):
        fit(**{**quick, "files": [str(file)], "batch_size": 4}, loss="MarginMSELoss")


@pytest.mark.parametrize(
    ("given", "setting"),
    [
        ({"loss": "SoftmaxLoss"}, "loss"),  # its labels are classes
        ({"loss": "CoSENTLoss", "dev": "auto"}, "dev"),
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
