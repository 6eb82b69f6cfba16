"""A run is repeated by what its folder says, to the last digit; and the folder says enough."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from isotrope.cli.main import guarded
from isotrope.core.result import provenance
from isotrope.training.run import write_provenance
from tests.training.interrupted import at
from tests.training.test_on_nan import Fit, rows

# what is not a matter of the settings
_TIMES = {"seconds", "wall_seconds", "samples_per_second", "images_per_second"}
MORE = {
    "text": {"dev": "auto", "epochs": 0.4, "objective": "barlowtwins", "micro_batch": 6},
    "images": {"method": "mocov2", "knn_every": 1, "holdout": 0.2, "cut": 3.0, "linear": True},
}


def told(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return found


@pytest.mark.slow
def test_the_settings_of_a_run_repeat_it_to_the_last_digit(
    kind: str, settings: dict[str, Any], train: Fit, tmp_path: Path
) -> None:
    own = {"objective_settings": {"dissipation": "margin:0.3"}, "log_every": 1, "seed": 11}
    if kind == "images":
        own = {"objective_settings": {"temperature": 0.2}, "method_settings": {"queue": 64}, **own}
    if kind == "text":
        del settings["max_steps"]
    first = train(**{**settings, **MORE[kind], **own}).output
    torch.rand(5)  # whatever else happens in the process
    verb = "train" if kind == "text" else "train-images"
    config, again = str(first / "config.yaml"), tmp_path / "again"
    assert guarded([verb, "--config", config, "--output", str(again)]) == 0
    assert len(rows(first)) > 6
    assert rows(again) == rows(first)
    tensors = [load_file(run / "model" / "model.safetensors") for run in (first, again)]
    assert tensors[0].keys() == tensors[1].keys()
    assert all(torch.equal(tensors[0][name], tensors[1][name]) for name in tensors[0])
    one, other = told(first), told(again)
    assert {k: v for k, v in one["metrics"].items() if k not in _TIMES} == {
        k: v for k, v in other["metrics"].items() if k not in _TIMES
    }
    assert one["details"] == other["details"]
    assert one["provenance"]["data"] == other["provenance"]["data"]
    written = [yaml.safe_load((run / "config.yaml").read_text()) for run in (first, again)]
    assert {**written[0], "output": ""} == {**written[1], "output": ""}


def test_the_folder_says_what_made_every_part_of_a_run(
    settings: dict[str, Any],
    train: Fit,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One that was killed, too, and one that went on elsewhere."""
    folder = Path(settings["output"])

    def dies() -> None:
        raise RuntimeError("the power is gone")

    with monkeypatch.context() as patch:
        at(patch, 3, dies)
        with pytest.raises(RuntimeError, match="power"):
            train(**settings)
    (part,) = json.loads((folder / "provenance.json").read_text())
    assert part["step"] == 0
    assert part["seed"] == settings.get("seed", 42)
    assert len(part["data"]) == 16
    assert {"isotrope", "torch", "numpy"} <= set(part["versions"])
    assert part["git"] is None or len(part["git"]["commit"]) == 40
    assert part["command"]
    assert part["python"]

    def newer(**given: Any) -> dict[str, Any]:
        found = provenance(**given)
        return {**found, "versions": {**found["versions"], "torch": "99"}}

    monkeypatch.setattr("isotrope.training.run.provenance", newer)
    train(**{**settings, "progress": True}, resume=True)
    parts = json.loads((folder / "provenance.json").read_text())
    assert [part["step"] for part in parts] == [0, 3]
    assert parts[0] == part
    expected = f"package versions changed before this run was resumed (see {folder}"
    assert expected in capsys.readouterr().err
    assert told(folder)["provenance"]["data"] == part["data"]


@pytest.mark.parametrize("left", ["", "[", "{}", "[3]", '[{"versions": null}]', None])
def test_a_damaged_record_does_not_stop_a_run(
    tmp_path: Path, left: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    if left is not None:
        (tmp_path / "provenance.json").write_text(left)
    write_provenance(tmp_path, 4, seed=3, data="x")
    parts = json.loads((tmp_path / "provenance.json").read_text())
    assert parts[-1]["step"] == 4
    assert capsys.readouterr().err == ""
