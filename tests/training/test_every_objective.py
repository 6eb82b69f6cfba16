"""Training takes any objective: a few steps with each, its components measured on the way."""

import csv
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from isotrope.paradigm import registry
from isotrope.training import fit


@pytest.mark.parametrize("name", registry.names())
@pytest.mark.slow
def test_a_few_steps_with_each(quick: dict, name: str) -> None:
    given = {**quick, "objective": name, "max_steps": 2, "log_every": 1}
    outcome = fit(**given)
    assert outcome.result.details["objective"]["name"] == name
    with (Path(quick["output"]) / "metrics.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 2
    for row in rows:
        assert math.isfinite(float(row["loss"]))
        measured = {row[column] != "" for column in ("dissipation", "dead")}
        assert measured == {registry.build(name).has_terms}
    assert float(rows[0]["gradient_norm"]) > 0
    after = load_file(Path(quick["output"]) / "model" / "model.safetensors")
    start = load_file(Path(quick["encoder"]) / "model.safetensors")
    assert any(not torch.equal(after[k], start[k]) for k in after if k in start)
    assert all(torch.isfinite(v).all() for v in after.values())


@pytest.mark.parametrize(
    "settings",
    [
        {"symmetric": "true"},
        {"part": "repulsion"},
        {"preset": "roberta-large"},
        {"dissipation": "margin:0.3:distance", "weight": "hardest:distance", "ratio": "met"},
    ],
    ids=lambda settings: ",".join(settings),
)
def test_forms_presets_and_edits_train(quick: dict, settings: dict) -> None:
    outcome = fit(**{**quick, "max_steps": 2}, objective_settings=settings)
    assert math.isfinite(outcome.result.metrics["loss"])
