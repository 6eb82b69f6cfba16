"""Trainings on small images by name, and results of those that were measured before."""

import csv
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from isotrope.core.errors import InputError
from isotrope.experiments.reproduce.artifact import SCALES, Scale
from isotrope.experiments.reproduce.places import Places
from isotrope.experiments.reproduce.small_images import NAMES, main, measured, small_images
from isotrope.experiments.reproduce.store import Store
from isotrope.experiments.works.images import check, image_settings
from isotrope.methods.image_settings import ImageSettings

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "image_cells.py"


def _script() -> Any:
    spec = importlib.util.spec_from_file_location("image_cells", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def _settings(flags: Sequence[str]) -> dict[str, Any]:
    """What `isotrope train-images` makes of flags."""
    words = [word for word in flags if word != "--no-progress"]
    given = {k.removeprefix("--"): v for k, v in zip(words[::2], words[1::2], strict=True)}
    fixed = {"data": "unused", "output": "unused", "seed": 1, "progress": False}
    return ImageSettings.read({**given, **fixed}).model_dump()


def test_cells_have_the_settings_of_the_script() -> None:
    script = _script()
    assert set(NAMES) == set(script.CELLS)
    nowhere = Places(None, Path("unused"))
    for name in NAMES:
        (cell,) = small_images("cpu", name, (1,))
        ours = image_settings(cell, nowhere, Path("unused"), here=False).model_dump()
        theirs = _settings([*script.COMMON, *script.CELLS[name]])
        del ours["checkpoint_every"], theirs["checkpoint_every"]  # changes nothing that is learnt
        assert ours == theirs, name


@pytest.mark.parametrize("scale", SCALES)
def test_every_name_resolves_and_is_different(scale: Scale) -> None:
    nowhere = Places(None, Path("unused"))
    cells = [small_images(scale, name, (0,))[0] for name in NAMES]
    assert len(set(cells)) == len(NAMES)
    for cell in cells:
        assert check(cell, nowhere) == (
            [] if scale == "smoke" else ["cifar10: no folder of data was given (--data DIR)"]
        )


def test_only_short_trainings_have_what_they_need() -> None:
    (brief,), (whole,) = (small_images(scale, "BYOL", (0,)) for scale in ("cpu", "paper"))
    assert brief.settings["method.predictor_rate"] == 10
    assert "method.predictor_rate" not in whole.settings
    assert "learning_rate" not in whole.settings
    with pytest.raises(InputError, match=r"'SimCLR, c = 4' .did you mean 'SimCLR, c = 3'"):
        small_images("cpu", "SimCLR, c = 4")


HEADER = (
    "cell,seed,epoch,knn,linear,loss,norm,norm_backbone,opposite_halves,far_opposite,std,"
    "effective_rank,cpu_seconds,versions"
)
FIRST = '"SimCLR, decay 0",1,0,25.5,,4.2,5.5,10.7,0.25,0,0.04,21.4,,"isotrope 0.1.0, torch 2.13.0"'
LAST = '"SimCLR, decay 0",1,4,38.7,44.1,3.1,,11.7,0,0,0.07,16.2,150,"isotrope 0.1.0, torch 2.13.0"'


def test_measured_rows_become_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, folder = tmp_path / "cells.csv", tmp_path / "store"
    file.write_text("\n".join((HEADER, FIRST, LAST)) + "\n")
    assert main([str(file), str(folder)]) == 0
    assert capsys.readouterr().out == f"1 of 1 results are new in {folder}\n"
    (cell,) = small_images("cpu", "SimCLR, decay 0", (1,))
    result = Store(folder).find(cell)
    assert result is not None
    assert result.metrics == {
        "knn": 38.7,
        "norm": None,  # nothing was logged: no number is made up
        "norm_backbone": 11.7,
        "linear": 44.1,
        "steps": 312,
    }
    first, last = result.details["looks"]
    assert (first["step"], first["epoch"], first["norm"], first["opposite_halves"]) == (
        *(0, 0.0, 5.5, 0.25),
    )
    assert (last["step"], last["epoch"], last["effective_rank"]) == (312, 4.0, 16.2)
    assert "norm" not in last
    assert result.provenance["versions"] == {"isotrope": "0.1.0", "torch": "2.13.0"}
    assert result.provenance["cpu_seconds"] == 150
    assert "benchmarks/image_cells.py" in result.provenance["note"]
    assert main([str(file), str(folder)]) == 0
    assert capsys.readouterr().out.startswith("0 of 1")


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ((HEADER, FIRST), "rows of the epochs \\[0\\]"),
        ((HEADER, FIRST.replace("decay 0", "decay 1"), LAST), "'SimCLR, decay 1'"),
        ((HEADER, FIRST.replace("25.5", "-"), LAST), "could not convert"),
        (("name,seed", "SimCLR,0"), "'cell'"),
    ],
)
def test_other_files_are_refused(
    lines: Sequence[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cells.csv"
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match=told):
        measured(file)
    assert main([str(file), str(tmp_path / "store")]) == 2
    assert "is not what benchmarks/image_cells.py writes" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


def test_what_was_measured_here_can_be_taken_over() -> None:
    file = ROOT / "docs" / "results" / "image-cells.csv"
    with file.open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    found = measured(file)
    assert len(found) == len({(row["cell"], row["seed"]) for row in rows})
    ends = {row["linear"] for row in rows if row["linear"]}
    assert {f"{result.metrics['linear']:.4g}" for result in found.values()} == ends
