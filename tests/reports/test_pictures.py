"""Pictures as files: each quantity in both formats, the same bytes each time, names as written."""

import os
import warnings
from pathlib import Path
from xml.etree import ElementTree

import pytest

from isotrope.core.errors import InputError
from isotrope.core.run_folder import RunFolder
from isotrope.reports import pictures
from isotrope.reports.html import write_report
from isotrope.reports.pictures import picture, write_pictures
from isotrope.reports.quantities import QUANTITIES
from isotrope.reports.runs import read_run
from tests.reports.folders import OLD, PLOTTED, write_run


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pictures, not all of them: the names of files, and what stops them, are the same."""
    two = tuple(quantity for quantity in QUANTITIES if quantity.key in ("dev", "loss"))
    monkeypatch.setattr(pictures, "QUANTITIES", two)
    monkeypatch.setattr("isotrope.reports.html.sections", lambda runs: [])  # those of the page


@pytest.mark.slow  # all pictures, twice
def test_every_picture_in_both_formats(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name) for name in ("one", "$x^$ two")]
    write_report(runs, tmp_path / "r.html", pictures=tmp_path / "pictures")
    written = sorted(path.name for path in (tmp_path / "pictures").iterdir())
    assert written == sorted(f"{key}.{kind}" for key in PLOTTED for kind in ("png", "svg"))
    for path in (tmp_path / "pictures").iterdir():
        if path.suffix == ".svg":
            root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
            assert root.get("viewBox")
            assert f"series-{path.stem}-1" in path.read_text(encoding="utf-8")
        else:
            assert path.read_bytes().startswith(b"\x89PNG")


def test_old_runs_and_the_same_bytes(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "one", columns=OLD))
    (angles,) = (quantity for quantity in QUANTITIES if quantity.key == "angles")
    (loss,) = (quantity for quantity in QUANTITIES if quantity.key == "loss")
    assert picture(angles, [run]) is None
    first = picture(loss, [run])
    assert first is not None
    assert picture(loss, [run]) == first


def test_names_without_glyphs(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "\u4e2d\u6587 and a name that is longer than the legend"))
    figure = pictures.Drawing()
    figure.suptitle("\u4e2d\u6587")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert picture(QUANTITIES[0], [run])
        assert figure._repr_png_()


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    run = read_run(write_run(tmp_path / "one"))
    with pytest.raises(InputError, match=r"give another folder for the pictures: .*a is a file"):
        write_pictures([run], tmp_path / "a")


@pytest.mark.usefixtures("few")
def test_names_that_are_no_text(tmp_path: Path) -> None:
    """A bell, half a character: no XML may hold them."""
    names = ["bell\x07", os.fsdecode(b"latin\xfc")]
    runs = [write_run(tmp_path / name, finished=False) for name in names]
    page = write_report(runs, tmp_path / "r.html", pictures=tmp_path / "pictures")
    for path in (tmp_path / "pictures").glob("*.svg"):
        ElementTree.fromstring(path.read_text(encoding="utf-8"))
    assert r"bell\u0007" in page.read_text(encoding="utf-8")


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("folder", "page", "said"),
    [
        ("pictures", "taken/page.html", "taken is a file; give a folder"),
        ("same", "same", "is the file of the page"),
        ("blocked", "page.html", "loss.png is a folder, not a file"),
        ("taken/pictures", "page.html", "cannot write .*pictures"),
    ],
)
def test_all_is_written_or_nothing(tmp_path: Path, folder: str, page: str, said: str) -> None:
    run = write_run(tmp_path / "run")
    (tmp_path / "taken").write_text("")
    (tmp_path / "blocked" / "loss.png").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=said):
        write_report([run], tmp_path / page, pictures=tmp_path / folder)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_that_has_just_begun_has_no_pictures(tmp_path: Path) -> None:
    begun = write_run(tmp_path / "begun", finished=False)
    log = RunFolder(begun).metrics
    log.write_text(log.read_text().splitlines()[0] + "\n")
    assert write_pictures([read_run(begun)], tmp_path / "pictures") == []
