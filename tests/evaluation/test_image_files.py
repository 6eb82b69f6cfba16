import os

import numpy as np
import pytest
from PIL import Image

from isotrope.core.errors import InputError
from isotrope.encoders import names
from isotrope.encoders.image import ImageEncoder
from isotrope.evaluation import files
from isotrope.evaluation.files import encode_file, pictures_below, search


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("image-files") / "model"
    ImageEncoder.build("resnet9", width=4, image_size=8, seed=0).save(folder)
    return folder


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    names = ["b.png", "a/2.JPG", "a/10.png", "a/c/x.webp", ".hidden/y.png", "a/.z.png"]
    for name in names:
        file = tmp_path / "pictures" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, size=(9, 12, 3), dtype=np.uint8)).save(file)
    (tmp_path / "pictures" / "notes.txt").write_text("no picture\n")
    return tmp_path / "pictures"


NAMES = ["a/10.png", "a/2.JPG", "a/c/x.webp", "b.png"]


def test_a_row_for_each_picture_and_its_path(model, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_PICTURES", 3)
    assert encode_file(model, folder, tmp_path / "x.npy", device="cpu") == (4, 32)
    expected = ImageEncoder.load(model, device="cpu").encode([folder / name for name in NAMES])
    found = np.load(tmp_path / "x.npy")
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert found.dtype == np.float32
    assert (tmp_path / "x.txt").read_text().splitlines() == NAMES
    encode_file(model, folder, tmp_path / "unit.npy", normalize=True, device="cpu")
    np.testing.assert_allclose(np.linalg.norm(np.load(tmp_path / "unit.npy"), axis=1), 1, atol=1e-6)


def test_a_name_that_is_no_utf_8(model, folder, tmp_path):
    name = os.fsdecode(b"caf\xe9.png")
    (folder / "b.png").rename(folder / name)
    encode_file(model, folder, tmp_path / "x.npy", device="cpu")
    assert b"caf\xe9.png" in (tmp_path / "x.txt").read_bytes().splitlines()


def test_a_picture_finds_itself_first(model, folder):
    found = search(model, folder, str(folder / "a" / "2.JPG"), top=2, device="cpu")
    assert len(found) == 2
    assert found[0] == (pytest.approx(1), 2, "a/2.JPG")
    assert found[1][0] < 1


def test_an_id_of_the_hub(model, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(names, "_from_hub", lambda name, code: {"someone/photos": model}[name])
    assert encode_file("someone/photos", folder, tmp_path / "x.npy", device="cpu") == (4, 32)
    picture = str(folder / "b.png")
    (found,) = search("someone/photos", folder, picture, top=1, device="cpu")
    assert found[1:] == (4, "b.png")


def test_links_are_followed_as_in_training(model, folder, tmp_path):
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "x").symlink_to(folder)
    (linked / "folder.png").mkdir()
    assert pictures_below(linked) == [f"x/{name}" for name in NAMES]


def test_a_line_break_in_a_name_would_shift_the_list(model, folder, tmp_path):
    (folder / "b.png").rename(folder / "b\nc.png")
    with pytest.raises(InputError, match=r"rename 'b\\nc\.png': its name has a line break"):
        encode_file(model, folder, tmp_path / "x.npy", device="cpu")
    assert not (tmp_path / "x.npy").exists()


def test_what_is_refused(model, folder, tmp_path):
    with pytest.raises(InputError, match="give a folder of pictures, which an image"):
        encode_file(model, folder / "b.png", tmp_path / "x.npy", device="cpu")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"give a folder with pictures \(\.bmp"):
        pictures_below(tmp_path / "empty")
    with pytest.raises(InputError, match="the encoder takes pictures"):
        encode_file(model, folder, tmp_path / "x.npy", pooling="mean")
    with pytest.raises(InputError, match="jobs=2"):
        encode_file(model, folder, tmp_path / "x.npy", jobs=2)
    with pytest.raises(InputError, match=r"none\.png: check the path; there is no such file"):
        search(model, folder, "none.png", device="cpu")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["empty", "pictures"]


def test_broken_pictures_are_left_out_and_counted(model, folder, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(files, "_PICTURES", 1)
    for i in range(8):  # fewer digits in the number of rows than of files
        (folder / f"{i}.png").write_bytes(b"\x89PNG")
    assert encode_file(model, folder, tmp_path / "x.npy", device="cpu") == (4, 32)
    assert (tmp_path / "x.txt").read_text().splitlines() == NAMES
    expected = ImageEncoder.load(model, device="cpu").encode([folder / name for name in NAMES])
    np.testing.assert_allclose(np.load(tmp_path / "x.npy"), expected, atol=1e-6)
    (said,) = {record.getMessage() for record in caplog.records}
    assert said.startswith("left out 8 of 12 pictures that cannot be read; the first: ")
    assert "0.png is not a picture that can be read" in said

    found = search(model, folder, str(folder / "b.png"), top=9, device="cpu")
    assert sorted(name for _, _, name in found) == NAMES
    assert found[0] == (pytest.approx(1), 4, "b.png")
    with pytest.raises(InputError, match=r"3\.png is not a picture that can be read"):
        search(model, folder, str(folder / "3.png"), device="cpu")


def test_only_broken_pictures(model, tmp_path):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").write_bytes(b"\x89PNG")
    with pytest.raises(
        InputError,
        match=r"because none of 1 can be read; the first: .*a\.png is not a picture",
    ):
        encode_file(model, tmp_path / "pictures", tmp_path / "x.npy", device="cpu")
    assert [file.name for file in tmp_path.iterdir()] == ["pictures"]
