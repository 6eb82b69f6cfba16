import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from isotrope.core.errors import InputError, MissingExtra
from isotrope.encoders.pictures import square


def colours(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def flat(colour, size=(4, 4), mode="RGB"):
    return Image.new(mode, size, colour)


@pytest.mark.parametrize("size", [(8, 8), (8, 20), (21, 8), (40, 33), (5, 3), (1, 1), (1, 30)])
def test_every_kind_of_the_same_picture_gives_the_same_pixels(size, tmp_path):
    pixels = colours(*size)
    file = tmp_path / "a picture.PNG"
    Image.fromarray(pixels).save(file, format="PNG")
    found = square(pixels, 8)
    assert found.shape == (3, 8, 8)
    assert found.dtype == np.uint8
    kinds = [file, str(file), Image.fromarray(pixels), torch.from_numpy(pixels)]
    if size[0] != 3:
        kinds.append(pixels.transpose(2, 0, 1))
    assert all(np.array_equal(square(kind, 8), found) for kind in kinds)


def test_the_right_size_is_taken_as_it_is():
    pixels = colours(6, 6)
    assert np.array_equal(square(pixels, 6), pixels.transpose(2, 0, 1))
    grey = pixels[..., 0]
    assert np.array_equal(square(grey, 6), np.stack([grey] * 3))


def test_the_centre_is_cut_out():
    pixels = np.zeros((4, 12, 3), np.uint8)
    pixels[:, 4:8] = 200
    assert square(pixels, 4).min() == 200
    assert square(pixels.transpose(1, 0, 2), 4).min() == 200


def test_making_smaller_averages():
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 200
    assert abs(int(square(stripes, 8)[:, 2:-2, 2:-2].mean()) - 100) <= 1


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (flat(90, mode="L"), (90, 90, 90)),
        (flat((10, 20, 30, 255), mode="RGBA"), (10, 20, 30)),
        (flat((10, 20, 30, 0), mode="RGBA"), (255, 255, 255)),
        (flat((90, 0), mode="LA"), (255, 255, 255)),
        (flat((10, 20, 30)).convert("P", palette=Image.Palette.ADAPTIVE), (10, 20, 30)),
        (flat((0, 255, 255, 0), mode="CMYK"), (255, 0, 0)),
        (flat(1, mode="1"), (255, 255, 255)),
        (Image.fromarray(np.full((4, 4), 90 * 256 + 7, np.uint16)), (90, 90, 90)),
        (flat(90 * 256 + 7, mode="I"), (90, 90, 90)),
    ],
    ids=["L", "RGBA", "clear", "LA", "P", "CMYK", "1", "I;16", "I"],
)
def test_every_mode_becomes_rgb(image, expected):
    assert [int(channel.mean()) for channel in square(image, 4)] == list(expected)


def test_a_file_is_turned_as_its_camera_says(tmp_path):
    pixels = np.zeros((4, 12, 3), np.uint8)
    pixels[:, :6] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter, clockwise: the bright half comes on top
    Image.fromarray(pixels).save(tmp_path / "turned.png", exif=exif)
    Image.fromarray(np.rot90(pixels, -1)).save(tmp_path / "plain.png")
    found = square(tmp_path / "turned.png", 4)
    assert np.array_equal(found, square(tmp_path / "plain.png", 4))
    assert found[:, 0].min() > 200
    assert found[:, 3].max() < 50


def test_files_that_are_no_pictures(tmp_path):
    data = io.BytesIO()
    Image.fromarray(colours(60, 60)).save(data, format="JPEG")
    cases = {
        "text.png": b"no picture",
        "empty.jpg": b"",
        "cut.jpg": data.getvalue()[:500],
        # Pillow would hand this one to another program
        "run.eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n",
    }
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=f"{name} is no picture that can be read: "):
            square(tmp_path / name, 8)
    with pytest.raises(InputError, match=r"absent\.png: no such file"):
        square(Path("absent.png"), 8)


@pytest.mark.parametrize(
    ("picture", "message"),
    [
        (np.zeros((3, 4, 4), np.float32), "pixels must be uint8, 0 to 255; found float32"),
        (torch.zeros(3, 4, 4), "pixels must be uint8, 0 to 255; found float32"),
        (np.zeros((4, 4, 4), np.uint8), r"3 x h x w, h x w x 3 or h x w; found \(4, 4, 4\)"),
        (np.zeros((2, 3, 4, 4), np.uint8), r"found \(2, 3, 4, 4\)"),
        (np.zeros((3, 0, 4), np.uint8), r"found \(3, 0, 4\)"),
        (np.zeros((0, 4), np.uint8), r"found \(0, 4\)"),
        (7, r"a path, a PIL image or an array of uint8; found 7 \(int\)"),
        (None, r"a path, a PIL image or an array of uint8; found None \(NoneType\)"),
    ],
)
def test_what_is_no_picture(picture, message):
    with pytest.raises(InputError, match=message):
        square(picture, 8)


def test_without_pillow_pixels_of_the_right_size_still_do(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    assert square(colours(8, 8), 8).shape == (3, 8, 8)
    with pytest.raises(MissingExtra, match=r"'PIL', which is not installed: pip install 'isotrope"):
        square(colours(8, 9), 8)
