"""The grey values that a training on 16-bit images loses."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from isotrope.training.images.train import fit_images


@pytest.mark.parametrize(("factor", "read", "dark"), [(1, 16, True), (16, 256, False)])
def test_grey_values_that_are_lost_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], factor: int, read: int, dark: bool
) -> None:
    (folder := tmp_path / "pictures").mkdir()
    values = np.arange(4096, dtype=np.uint16).reshape(64, 64) % 4084
    for i in range(4):  # the first are almost black
        Image.fromarray(values * factor // (1 if i == 3 else 300)).save(folder / f"p{i}.png")
    settings = {"encoder": "resnet9", "width": 4, "batch_size": 2, "max_steps": 1}
    fit_images(str(folder), output=str(tmp_path / "run"), progress=False, **settings)
    told = capsys.readouterr().err
    assert f"p3.png: images are read with 8 bits, so only {read} of its 4,084 grey values" in told
    assert ("(12 bits: by 16); the largest is 4,083" in told) is dark


def test_a_picture_that_loses_no_grey_hides_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder := tmp_path / "pictures").mkdir()
    values = np.arange(4096, dtype=np.uint16).reshape(64, 64)
    Image.fromarray(values).save(folder / "grey.png")
    Image.fromarray(np.where(values > 2000, 65535, 0).astype(np.uint16)).save(folder / "ink.png")
    settings = {"encoder": "resnet9", "width": 4, "batch_size": 2, "max_steps": 1}
    fit_images(str(folder), output=str(tmp_path / "run"), progress=False, **settings)
    told = capsys.readouterr().err
    assert "grey.png: images are read with 8 bits, so only 16 of its 4,096 grey values" in told
