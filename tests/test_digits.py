"""The demo on digits: small in the suite, as it is in the longer checks."""

from pathlib import Path

import pytest
import torch

from examples import digits as subject
from examples.digits import CELLS, demo_images
from isotrope.core.errors import InputError


@pytest.mark.nightly
def test_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"width": 4, "limit": 128, "batch_size": 64}
    monkeypatch.setattr(subject, "COMMON", {**subject.COMMON, **small})
    told: list[str] = []
    with monkeypatch.context() as fewer:
        fewer.setattr(subject, "CELLS", {"simclr": CELLS["simclr"]})
        demo_images(tmp_path / "demo", epochs=1, tell=lambda _: None)
    found = demo_images(tmp_path / "demo", epochs=2, tell=told.append)  # replaces the first
    assert [row.name for row in found.rows] == list(CELLS)
    assert [line.partition(":")[0] for line in told] == list(CELLS)
    for row in found.rows:
        assert list(row.knn) == [0, 1, 2]
        assert list(row.norm) == [1, 2]
        assert (tmp_path / "demo" / row.name / "model" / "config.json").is_file()
    plain, cut = found.rows[0], found.rows[1]
    assert cut.norm[1] < plain.norm[1]
    assert found.picture.read_text().startswith("<?xml")
    assert "simsiam-cut-9" in found.report.read_text()


def test_somebody_elses_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"holds something else than a demo \(thesis.tex\)"):
        demo_images(tmp_path)
    assert (tmp_path / "thesis.tex").exists()


def test_a_run_of_somebody_elses_of_the_same_name_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "simclr"
    run.mkdir()
    for text in ("data: photos\noutput: runs/simclr\n", None):
        (run / "config.yaml").unlink() if text is None else (run / "config.yaml").write_text(text)
        with pytest.raises(InputError, match=r"holds something else than a demo \(simclr\)"):
            demo_images(tmp_path)
        assert run.exists()


@pytest.mark.nightly  # minutes; test_small runs the same code
def test_the_whole_demo(tmp_path: Path) -> None:
    torch.set_num_threads(2)
    found = demo_images(tmp_path / "demo")
    first = {row.name: row for row in found.rows}
    assert max(first["simclr"].knn.values()) > first["simclr"].knn[0] + 5
    for plain, cut in (("simclr", "simclr-cut-3"), ("simsiam", "simsiam-cut-9")):
        assert first[cut].norm[1] < first[plain].norm[1] / 2
