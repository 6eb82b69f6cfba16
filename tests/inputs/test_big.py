"""A corpus of any length is read in the same memory; odd files among it do not stop a reader."""

import io
import os
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from isotrope.data.images.sets import load_images
from isotrope.data.sources import files_of, read
from tests.data.pictures import folders
from tests.inputs.big import read_many


@pytest.mark.slow
def test_a_million_lines_in_constant_memory(tmp_path: Path) -> None:
    found = read_many(1_000_000, tmp_path)
    assert found["kept"] > 890_000  # a tenth is held out
    # tokens, offsets and hashes of a million lines are 56 MB, their texts 30
    assert found["growth_mb"] < 20, found


def test_forty_thousand_lines_in_constant_memory(tmp_path: Path) -> None:
    found = read_many(40_000, tmp_path)
    assert found["kept"] > 35_000
    assert found["growth_mb"] < 20, found


def test_links_that_lead_back_are_followed_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "inner").mkdir(parents=True)
    (data / "inner" / "a.txt").write_text("one\n")
    (data / "inner" / "back").symlink_to(data)
    (data / "other").symlink_to(data / "inner")
    assert [path.name for path in files_of([data])[0]] == ["a.txt"]
    pictures = folders(tmp_path / "pictures", classes=1)
    (pictures / "c0" / "back").symlink_to(pictures)
    os.mkfifo(pictures / "c0" / "pipe.png")
    (pictures / "c0" / "zero.png").symlink_to("/dev/zero")
    (pictures / "c0" / "loop.png").symlink_to("loop.png")
    (pictures / "c0" / "folder.png").mkdir()
    found = load_images(pictures)
    assert len(found.train.images) == 3
    assert len(found.skipped) == 3


def test_no_archive_is_unpacked(tmp_path: Path) -> None:
    """What is read from an archive is its arrays, by name: no member becomes a file."""
    path = tmp_path / "in" / "a.npz"
    path.parent.mkdir()
    held = io.BytesIO()
    np.save(held, np.zeros((4, 8, 8, 3), np.uint8))
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("images.npy", "../escaped.npy", "/tmp/escaped.npy", "..\\escaped.npy"):
            archive.writestr(name, held.getvalue())
        link = zipfile.ZipInfo("labels.npy")
        link.external_attr = 0o120777 << 16  # a symbolic link
        archive.writestr(link, "../../etc/passwd")
    from isotrope.core.errors import InputError

    with pytest.raises(InputError, match=r"save the array 'labels' .* cannot be read"):
        load_images(path)
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["a.npz", "in"]
    tar = tmp_path / "in" / "b.tar.gz"
    with tarfile.open(tar, "w:gz") as archive_of_files:
        told = tarfile.TarInfo("../escaped.txt")
        told.size = 4
        archive_of_files.addfile(told, io.BytesIO(b"text"))
    with pytest.raises(InputError, match="unknown kind of file"):
        list(read([tar]))
    with pytest.raises(InputError, match=r"not a file with the ending '\.gz'"):
        load_images(tar)
    assert not list(tmp_path.rglob("escaped*"))
