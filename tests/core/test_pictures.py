"""Pictures: every kind becomes the RGB it shows; what is damaged is refused, cheaply."""

import io
import os
import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image, PngImagePlugin

from isotrope.core.errors import InputError, MissingExtra
from isotrope.core.pictures import MOST_PIXELS, Unreadable, grey_levels, measure, pixels, square
from tests.data.pictures import ramp, save

FINE = {"quality": 95, "subsampling": 0}


def encoded(image: Image.Image, kind: str = "PNG", **settings: object) -> io.BytesIO:
    file = io.BytesIO()
    image.save(file, kind, **settings)
    file.seek(0)
    return file


def chunk(name: bytes, body: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(name + body))
    return struct.pack(">I", len(body)) + name + body + check


def png(width: int, height: int, rows: bytes, depth: int = 8, kind: int = 2) -> io.BytesIO:
    """A PNG file with a header that says what it likes."""
    head = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return io.BytesIO(b"\x89PNG\r\n\x1a\n" + body)


def colours(height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def flat(colour: object, size: tuple[int, int] = (4, 4), mode: str = "RGB") -> Image.Image:
    return Image.new(mode, size, colour)


def first(array: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return array.transpose(2, 0, 1)


def test_rgb_is_returned_as_it_is() -> None:
    array = ramp(12, 12)
    for kind, settings in (("PNG", {}), ("WEBP", {"lossless": True})):
        found = square(encoded(Image.fromarray(array), kind, **settings), 12)
        assert found.dtype == np.uint8
        assert np.array_equal(found, first(array))
    jpeg = square(encoded(Image.fromarray(array), "JPEG", **FINE), 12)
    assert np.abs(jpeg.astype(int) - first(array)).max() < 16


def test_grey_is_repeated() -> None:
    grey = ramp(9, 9)[..., 0]
    for image in (Image.fromarray(grey), Image.fromarray(grey).convert("P")):
        assert np.array_equal(square(encoded(image), 9), np.stack([grey] * 3))
    bits = Image.fromarray(grey > 100)
    assert bits.mode == "1"
    assert np.array_equal(square(encoded(bits), 9)[0], np.where(grey > 100, 255, 0))


def test_sixteen_bits_give_their_high_byte() -> None:
    values = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1024
    found = square(encoded(Image.fromarray(values)), 8)
    assert np.array_equal(found, np.stack([values >> 8] * 3))
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values.repeat(3, axis=1))
    colour = square(png(8, 8, rows, depth=16), 8)
    assert np.array_equal(colour, found)


def test_transparent_pixels_are_white() -> None:
    rgba = np.dstack([ramp(8, 8), np.full((8, 8), 255, np.uint8)])
    rgba[:4, :, 3] = 0
    rgba[7, :, 3] = 51
    for kind, settings in (("PNG", {}), ("WEBP", {"lossless": True, "exact": True})):
        found = square(encoded(Image.fromarray(rgba), kind, **settings), 8)
        assert (found[:, :4] == 255).all()
        assert np.array_equal(found[:, 4:7], first(rgba)[:3, 4:7])
        expected = 255 - 0.2 * (255 - first(rgba)[:3, 7].astype(float))
        assert np.abs(found[:, 7] - expected).max() <= 1
    grey = Image.merge("LA", [Image.fromarray(rgba[..., i]) for i in (0, 3)])
    assert (square(encoded(grey), 8)[:, :4] == 255).all()


def test_a_palette_with_transparency() -> None:
    image = Image.new("P", (8, 8), 1)
    image.putpalette([0, 0, 0, 10, 20, 30, 200, 0, 0])
    image.putpixel((0, 0), 2)
    for hidden in (2, bytes([255, 255, 0])):
        found = square(encoded(image, transparency=hidden), 8)
        assert found[:, 0, 0].tolist() == [255, 255, 255]
        assert found[:, 1, 1].tolist() == [10, 20, 30]


def test_cmyk() -> None:
    image = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    red = square(encoded(image, "JPEG", **FINE), 8)[:, 4, 4]
    assert np.abs(red.astype(int) - [255, 0, 0]).max() < 8


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_of_the_camera_is_applied(kind: str, orientation: int) -> None:
    array = ramp(16, 16)
    upright = {
        1: array,
        2: array[:, ::-1],
        3: array[::-1, ::-1],
        4: array[::-1],
        5: array.transpose(1, 0, 2),
        6: np.rot90(array, -1),
        7: array[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(array),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    found = square(encoded(Image.fromarray(array), kind, exif=exif, **FINE), 16)
    assert np.abs(found.astype(int) - first(upright)).max() < 24


def test_a_broken_tag_of_the_camera_is_no_reason() -> None:
    array = ramp(16, 16)
    for exif in (b"Exif\0\0garbage", b"Exif\0\0II*\0\xff\xff\xff\x7f"):
        file = encoded(Image.fromarray(array), "JPEG", exif=exif, **FINE)
        assert np.abs(square(file, 16).astype(int) - first(array)).max() < 24


def test_the_middle_is_cut_out() -> None:
    array = np.zeros((8, 24, 3), np.uint8)
    array[:, 8:16] = [10, 200, 30]
    expected = np.broadcast_to(np.array([10, 200, 30])[:, None, None], (3, 8, 8))
    assert np.array_equal(square(encoded(Image.fromarray(array)), 8), expected)
    upright = Image.fromarray(np.ascontiguousarray(array.transpose(1, 0, 2)))
    assert np.array_equal(square(encoded(upright), 8), expected)


def test_smaller_ones_are_enlarged_and_larger_ones_smoothed() -> None:
    small = square(encoded(Image.fromarray(ramp(4, 4))), 32)
    assert small.shape == (3, 32, 32)
    assert np.abs(small.astype(int) - first(ramp(32, 32))).max() < 40
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 255  # without antialiasing all would be 0, or all 255
    assert np.abs(square(encoded(Image.fromarray(stripes)), 8)[:, 2:-2, 2:-2] - 127.5).max() < 12


def test_a_large_jpeg_is_decoded_whole() -> None:
    """At a fraction of its size its pixels would not be those of the opened picture."""
    file = encoded(Image.fromarray(colours(512, 640)), "JPEG", **FINE)
    opened = Image.open(file)
    opened.load()
    assert np.array_equal(square(file, 16), square(opened, 16))
    assert np.array_equal(square(file, 16), square(np.asarray(opened), 16))


def test_own_size() -> None:
    assert np.array_equal(pixels(encoded(Image.fromarray(ramp(20, 12)))), ramp(20, 12))


def test_measuring_decodes_nothing(tmp_path: Path) -> None:
    path = save(tmp_path / "Ä ü.PNG", ramp(20, 12))
    size = path.stat().st_size
    assert measure(path)[:3] == (20, 12, size)
    assert measure(io.BytesIO(path.read_bytes())) == measure(path)
    path.write_bytes(path.read_bytes()[:60])  # the body is cut off
    assert measure(path)[:3] == (20, 12, 60)
    with pytest.raises(Unreadable, match="truncated"):
        square(path, 8)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_truncated_files(kind: str) -> None:
    whole = encoded(Image.fromarray(ramp(64, 64)), kind).getvalue()
    for share in (0.3, 0.6, 0.9):
        with pytest.raises(Unreadable):
            square(io.BytesIO(whole[: int(share * len(whole))]), 16)


def test_damaged_bytes_never_raise_anything_else() -> None:
    random, readable, refused = np.random.default_rng(0), 0, 0
    for kind in ("JPEG", "PNG", "WEBP"):
        whole = np.frombuffer(encoded(Image.fromarray(ramp(24, 24)), kind).getvalue(), np.uint8)
        for _ in range(60):
            damaged = whole.copy()
            places = random.integers(0, len(whole), 4)
            damaged[places] = random.integers(0, 256, 4)
            try:
                assert square(io.BytesIO(damaged.tobytes()), 8).shape == (3, 8, 8)
                readable += 1
            except Unreadable:
                refused += 1
    assert min(readable, refused) > 10  # both happen: most bytes of a JPEG are only colours


@pytest.mark.parametrize("content", [b"", b"these are words\n" * 99, b"\x89PNG\r\n\x1a\n", b"\xff"])
def test_what_is_no_picture(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(content)
    for read in (measure, pixels, lambda file: square(file, 8)):
        with pytest.raises(Unreadable):
            read(path)


@pytest.mark.parametrize("kind", ["BMP", "GIF", "TIFF"])
def test_other_formats_without_loss(kind: str) -> None:
    grey = ramp(9, 9)[..., 0]
    assert np.array_equal(square(encoded(Image.fromarray(grey), kind), 9), np.stack([grey] * 3))


def test_other_formats_are_not_read() -> None:
    """Pillow would hand the second to another program."""
    page = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"
    for file in (encoded(Image.fromarray(ramp(8, 8)), "PPM"), io.BytesIO(page)):
        with pytest.raises(Unreadable, match="cannot identify image file"):
            square(file, 8)


def test_floating_point_pixels_are_refused() -> None:
    image = Image.fromarray(np.full((4, 4), 0.5, np.float32))
    for picture in (image, encoded(image, "TIFF")):
        with pytest.raises(
            Unreadable, match="save its pixels as 8 or 16 bits, not as floating-point"
        ):
            square(picture, 4)


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    (tmp_path / "folder.png").mkdir()
    for name, why in (
        ("pipe.png", "regular file first; this is a pipe"),
        ("folder.png", "give a file; this is a folder"),
        ("loop.png", "symbolic links"),
        ("none.png", "check the path; there is no such file"),
    ):
        with pytest.raises(Unreadable, match=why):
            measure(tmp_path / name)


@pytest.mark.parametrize("side", [9_460, 20_000, 2**31 - 1])
def test_a_huge_declared_size_is_refused_without_memory(side: int) -> None:
    """A little above the limit of ours, above Pillow's own, and absurd."""
    assert side**2 > MOST_PIXELS
    file = png(side, side, bytes(10_000))
    tracemalloc.start()
    for read in (measure, pixels):
        file.seek(0)
        with pytest.raises(Unreadable, match=r"at most 89,478,485|exceeds limit|too large"):
            read(file)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5e6


def test_bombs_in_metadata_are_refused() -> None:
    info = PngImagePlugin.PngInfo()
    info.add_text("x", "0" * 2_000_000, zip=True)
    with pytest.raises(Unreadable, match=r"[Dd]ecompressed"):
        square(encoded(Image.fromarray(ramp(8, 8)), pnginfo=info), 8)


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


@pytest.mark.parametrize(
    ("picture", "message"),
    [
        (np.zeros((3, 4, 4), np.float32), "convert the pixels to uint8, .*; found float32"),
        (torch.zeros(3, 4, 4), "convert the pixels to uint8, .*; found float32"),
        (np.zeros((4, 4, 4), np.uint8), r"3 x h x w, h x w x 3 or h x w; found shape \(4, 4, 4\)"),
        (np.zeros((2, 3, 4, 4), np.uint8), r"found shape \(2, 3, 4, 4\)"),
        (np.zeros((3, 0, 4), np.uint8), r"found shape \(3, 0, 4\)"),
        (np.zeros((0, 4), np.uint8), r"found shape \(0, 4\)"),
        (7, r"a path, a PIL image or an array of uint8; found 7 \(int\)"),
        (None, r"a path, a PIL image or an array of uint8; found None \(NoneType\)"),
    ],
)
def test_what_is_no_kind_of_picture(picture, message):
    with pytest.raises(InputError, match=message):
        square(picture, 8)


def test_without_pillow_pixels_of_the_right_size_still_do(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    assert square(colours(8, 8), 8).shape == (3, 8, 8)
    with pytest.raises(MissingExtra, match=r"run pip install '\..* 'PIL', which is not"):
        square(colours(8, 9), 8)


@pytest.mark.parametrize("most", [255, 1023, 1025, 4095, 4097, 65535])
def test_the_brightness_of_16_bits_does_not_depend_on_the_largest_level(most: int) -> None:
    levels = np.linspace(0, most, 64).astype(np.uint16).reshape(8, 8)
    assert np.array_equal(square(Image.fromarray(levels), 8)[0], levels >> 8)


def test_grey_values_of_16_bits(tmp_path: Path) -> None:
    values = np.arange(4096, dtype=np.uint16).reshape(64, 64) % 4084
    Image.fromarray(values).save(tmp_path / "a.png")
    assert grey_levels(tmp_path / "a.png") == (4084, 16, 4083)
    Image.fromarray(ramp(8, 8)).save(tmp_path / "b.png")
    assert grey_levels(tmp_path / "b.png") == (0, 0, 0)
