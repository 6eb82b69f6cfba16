"""Pictures that are none: folders, arrays, archives, dataset folders, bombs."""

import gzip
import io
import os
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.data.pictures import folders, ramp, save
from tests.inputs.case import Bench, Case
from tests.inputs.text import content

Made = Callable[[Path], object]


def train(*arguments: object) -> list[object]:
    """Return a training that would begin if its pictures were good."""
    small = ["--encoder", "resnet9", "--width", 4, "--batch-size", 2, "--max-steps", 1]
    return ["train-images", *arguments, *small, "--output", "out/run", "--no-progress"]


def npz(path: Path, **arrays: Any) -> Path:
    """Write arrays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as handle:
        np.savez(handle, **arrays)
    return path


def header_only(shape: str, descr: str = "'|u1'", order: str = "False") -> bytes:
    """Return an ``.npy`` file that says a shape and holds nothing."""
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text


def zipped(path: Path, **members: bytes) -> Path:
    """Write an archive of raw members, compressed."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name.replace("__", "/"), data)
    return path


def png(width: int, height: int) -> bytes:
    """Return a PNG that says a size and holds one row of nothing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(bytes(100)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + pixels + chunk(b"IEND", b"")


X = np.zeros((4, 8, 8, 3), np.uint8)
# arrays of an .npz file, and what is said
ARRAYS: dict[str, tuple[dict[str, Any], str]] = {
    "no pictures among them": ({"labels": np.arange(4)}, "call the array of pictures images"),
    "floats": ({"images": X.astype(float)}, "as uint8 from 0 to 255, not float64"),
    "signed": ({"images": X.astype(np.int8)}, "255, not int8"),
    "two dimensions": ({"images": X[0, :, :, 0]}, "has the shape (8, 8)"),
    "five dimensions": ({"images": X[None]}, "has the shape (1, 4, 8, 8, 3)"),
    "seven channels": ({"images": np.zeros((4, 7, 8, 8), np.uint8)}, "has the shape (4, 7, 8, 8)"),
    "none": ({"images": X[:0]}, "add pictures to"),
    "no pixels": ({"images": np.zeros((4, 0, 0, 3), np.uint8)}, "add pictures to"),
    "one": ({"images": X[:1]}, "at least 2 pictures to train on"),
    "objects": ({"images": np.array([None, {}], object)}, "without Python objects"),
    "text": ({"images": np.array(["a", "b"])}, "255, not <U1"),
    "records": ({"images": np.zeros(4, [("a", "u1")])}, "as uint8 from 0 to 255"),
    "fewer labels": ({"images": X, "labels": np.arange(3)}, "give one label for each of the"),
    "labels of floats": ({"images": X, "labels": np.ones(4)}, "as integers or names, not"),
    "labels of objects": ({"images": X, "labels": np.array([{}] * 4)}, "without Python objects"),
    "labels beyond the names": (
        {"images": X, "labels": np.array([0, 1, 2, 9]), "class_names": np.array(["a", "b"])},
        "labels in the file go from 0 to 9",
    ),
    "a label without a name": (
        {"images": X, "labels": np.array(list("abcd")), "class_names": np.array(["a", "b"])},
        "to the array class_names, because a picture has this label",
    ),
    "a test part of floats": (
        {"images": X, "x_test": X.astype(float)},
        "'x_test' as uint8 from 0 to 255, not float64",
    ),
    "a test part with fewer labels": (
        {"images": X, "labels": np.arange(4), "x_test": X, "y_test": np.arange(3)},
        "give one label for each of the",
    ),
    "strips given as a file": (
        {"webp": np.zeros(9, np.uint8), "offsets": np.array([0, 9]), "labels": np.arange(1)},
        "call the array of pictures images",
    ),
}
# names in a file of strips
STRIPS: dict[str, tuple[dict[str, Any], str]] = {
    "no offsets": (
        {"webp": np.zeros(9, np.uint8), "labels": np.arange(2)},
        "save the array 'offsets'",
    ),
    "offsets of floats": (
        {"webp": np.zeros(9, np.uint8), "labels": np.arange(2), "offsets": np.ones(2)},
        "strip 0 in the file is damaged",
    ),
    "no pictures in them": (
        {"webp": np.zeros(9, np.uint8), "labels": np.arange(2), "offsets": np.array([0, 9])},
        "strip 0 in the file is damaged",
    ),
    "offsets beyond the end": (
        {"webp": np.zeros(9, np.uint8), "labels": np.arange(2), "offsets": np.array([5, 99])},
        "strip 0 in the file is damaged",
    ),
}
# raw files that claim to be .npz
RAW: dict[str, tuple[Made, str]] = {
    "text": (lambda path: content(path, "hello"), "as an .npz file of pictures"),
    "no bytes": (lambda path: content(path, b""), "as an .npz file of pictures"),
    "a cut archive": (
        lambda path: (npz(path, images=X), content(path, path.read_bytes()[:-40])),
        "as an .npz file of pictures",
    ),
    "an .npy file": (
        lambda path: content(path, header_only("(0,)")),
        "as an .npz file of pictures",
    ),
    "a pickle": (lambda path: content(path, pickle.dumps({"images": 1})), "as an .npz file"),
    "a pickle inside": (
        lambda path: zipped(path, **{"images.npy": pickle.dumps([1])}),
        "cannot be read",
    ),
    "a shape that lies": (
        lambda path: zipped(path, **{"images.npy": header_only("(9000000, 1000, 1000, 3)")}),
        "cannot be read",
    ),
    "a negative shape": (
        lambda path: zipped(path, **{"images.npy": header_only("(-4, 8, 8, 3)")}),
        "cannot be read",
    ),
    "a header of code": (
        lambda path: zipped(path, **{"images.npy": header_only("__import__('os').abort()")}),
        "cannot be read",
    ),
    "a bomb": (
        lambda path: zipped(
            path, **{"images.npy": header_only("(400, 1000, 1000, 3)") + bytes(1_200_000_000)}
        ),
        "unpacks to",
    ),
    "a member above it": (
        lambda path: zipped(path, **{"..__..__images.npy": header_only("(4,)")}),
        "call the array of pictures images",
    ),
    "a damaged member": (
        lambda path: (npz(path, images=X), content(path, _flipped(path.read_bytes()))),
        "cannot be read",
    ),
}


def _flipped(data: bytes) -> bytes:
    return data[:200] + bytes(255 - b for b in data[200:300]) + data[300:]


def _arrays() -> Iterator[Case]:
    for what, (arrays, says) in ARRAYS.items():

        def made(room: Path, bench: Bench, arrays: dict[str, Any] = arrays) -> Sequence[object]:
            return train(npz(room / "p.npz", **arrays))

        yield Case(f"npz/{what}", made, says)
    for what, (make, says) in RAW.items():

        def raw(room: Path, bench: Bench, make: Made = make) -> Sequence[object]:
            make(room / "p.npz")
            return train("p.npz")

        yield Case(f"npz/{what}, raw", raw, says)
    for what, (arrays, says) in STRIPS.items():

        def strips(room: Path, bench: Bench, arrays: dict[str, Any] = arrays) -> Sequence[object]:
            npz(room / "data/train.npz", **arrays)
            return train("data")

        yield Case(f"npz/strips with {what}", strips, says)


def _archives() -> Iterator[Case]:
    """The files of known sets in the formats of their authors, which are not read."""

    def pickles(room: Path, bench: Bench) -> Sequence[object]:
        for name in ("data_batch_1", "test_batch", "batches.meta"):
            content(room / "cifar" / name, b"cos\nsystem\n(S'touch opened'\ntR.")
        return train("cifar")

    def binary(room: Path, bench: Bench) -> Sequence[object]:
        for name in ("train_X.bin", "train_y.bin"):
            content(room / "stl" / name, bytes(27_648))
        return train("stl")

    def packed(room: Path, bench: Bench) -> Sequence[object]:
        with tarfile.open(room / "cifar-10-python.tar.gz", "w:gz") as archive:
            archive.add(__file__, "cifar-10-batches-py/data_batch_1")
        return train("cifar-10-python.tar.gz")

    yield Case("archives/the archive itself", packed, "give a folder of pictures")
    yield Case("archives/pickles of CIFAR", pickles, "put pictures into this folder")
    yield Case("archives/bytes of STL-10", binary, "files from the Hugging Face hub")


def _table(room: Path, **columns: list[Any]) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (room / "set").mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), room / "set/train.parquet")
    return room / "set"


def _tables() -> Iterator[Case]:
    def bad(name: str, data: bytes | str) -> Callable[[Path, Bench], Sequence[object]]:
        def made(room: Path, bench: Bench) -> Sequence[object]:
            content(room / "set" / name, data)
            return train("set")

        return made

    yield Case("hugging face/broken info", bad("dataset_info.json", "{"), "has only .json")
    yield Case("hugging face/broken dict", bad("dataset_dict.json", "{"), "not valid JSON")
    yield Case(
        "hugging face/no state",
        bad("dataset_info.json", "{}"),
        "has only .json",
    )
    yield Case(
        "hugging face/splits above it",
        bad("dataset_dict.json", '{"splits": ["../../elsewhere"]}'),
        "is a path, not a name",
    )
    yield Case(
        "hugging face/broken parquet",
        bad("train.parquet", b"PAR1"),
        "save the dataset again; isotrope cannot read this folder",
    )
    yield Case(
        "hugging face/empty parquet",
        bad("train.parquet", b""),
        "save the dataset again; isotrope cannot read this folder",
    )

    def words(room: Path, bench: Bench) -> Sequence[object]:
        return train(_table(room, text=["a", "b"]))

    def numbers(room: Path, bench: Bench) -> Sequence[object]:
        return train(_table(room, image=[1, 2]))

    def no_pictures(room: Path, bench: Bench) -> Sequence[object]:
        return train(_table(room, image=[{"bytes": b"a", "path": None}] * 3))

    def elsewhere(room: Path, bench: Bench) -> Sequence[object]:
        _table(room, image=[{"bytes": None, "path": "/dev/zero"}] * 3)
        return train("set")

    def labels(room: Path, bench: Bench) -> Sequence[object]:
        whole = save(room / "a.png", ramp(8, 8)).read_bytes()
        cells = [{"bytes": whole, "path": None}] * 2
        return train(_table(room, image=cells, label=[[1], [2]]))

    def card(room: Path, bench: Bench) -> Sequence[object]:
        """A card that sends the reader elsewhere: what lies in the folder is what is read."""
        elsewhere = (
            "configs:\n- config_name: default\n  data_files: https://example.invalid/x.parquet\n"
        )
        content(room / "set/README.md", f"---\n{elsewhere}---\n")
        return train(_table(room, text=["a"]))

    def script(room: Path, bench: Bench) -> Sequence[object]:
        content(room / "set/set.py", "open('ran', 'w').close()\n")
        return train(_table(room, text=["a"]))

    yield Case(
        "hugging face/no pictures",
        words,
        "rename the column of pictures to image; the columns are text",
    )
    yield Case("hugging face/pictures of numbers", numbers, "the bytes of picture files")
    yield Case("hugging face/pictures of words", no_pictures, "none of 3 files can be read")
    yield Case("hugging face/pictures elsewhere", elsewhere, "none of 3 files can be read")
    yield Case("hugging face/labels of lists", labels, "all must be numbers, or all names")
    yield Case(
        "hugging face/a card with an address",
        card,
        "rename the column of pictures to image; the columns are text",
    )
    yield Case(
        "hugging face/a script beside it",
        script,
        "rename the column of pictures to image; the columns are text",
    )


def _folders() -> Iterator[Case]:
    def of(*files: tuple[str, bytes | str], flags: Sequence[object] = ()) -> Any:
        def made(room: Path, bench: Bench) -> Sequence[object]:
            for name, data in files:
                content(room / "data" / name, data)
            (room / "data").mkdir(exist_ok=True)
            return train("data", *flags)

        return made

    def linked(room: Path, bench: Bench) -> Sequence[object]:
        (room / "data").mkdir()
        (room / "data/again").symlink_to(room / "data")
        (room / "data/self.png").symlink_to(room / "data/self.png")
        return train("data")

    def piped(room: Path, bench: Bench) -> Sequence[object]:
        (room / "data").mkdir()
        os.mkfifo(room / "data/a.png")
        os.mkfifo(room / "data/b.png")
        return train("data")

    def devices(room: Path, bench: Bench) -> Sequence[object]:
        (room / "data").mkdir()
        for name in ("a.png", "b.jpg"):
            (room / "data" / name).symlink_to("/dev/zero")
        return train("data")

    def folder_called_picture(room: Path, bench: Bench) -> Sequence[object]:
        (room / "data/a.png").mkdir(parents=True)
        return train("data")

    def beside(room: Path, bench: Bench) -> Sequence[object]:
        folders(room / "data")
        save(room / "data/a.png", ramp(8, 8))
        return train("data")

    def unlabelled(room: Path, bench: Bench) -> Sequence[object]:
        folders(room / "data", classes=1)
        return train("data", "--holdout", 0.2)

    def classes(listed: bytes | str | None) -> Any:
        def made(room: Path, bench: Bench) -> Sequence[object]:
            folders(room / "data")
            if listed is not None:
                content(room / "classes.txt", listed)
            else:
                os.mkfifo(room / "classes.txt")
            return train("data", "--classes", "classes.txt")

        return made

    def inside(room: Path, bench: Bench) -> Sequence[object]:
        folders(room / "out")
        return train("out")

    def sized(side: int) -> Any:
        def made(room: Path, bench: Bench) -> Sequence[object]:
            return train(folders(room / "data"), "--image-size", side)

        return made

    many = "none of 2 files can be read as a picture"
    cut = io.BytesIO()
    from PIL import Image

    Image.fromarray(ramp(64, 64)).save(cut, "PNG")
    yield Case("pictures/none", of(), "has no files")
    yield Case(
        "pictures/other files",
        of(("a.txt", "x"), ("b.svg", "x")),
        "put pictures into this folder; their names must end in",
    )
    yield Case("pictures/words", of(("a.png", "hello"), ("b.jpg", "x")), many)
    yield Case("pictures/no bytes", of(("a.png", b""), ("b.webp", b"")), many)
    yield Case("pictures/GIFs", of(("a.png", b"GIF89a" + bytes(30)), ("b.png", b"GIF89a")), many)
    bomb = png(100_000, 100_000)
    yield Case("pictures/bombs", of(("a.png", bomb), ("b.png", bomb)), many)
    large = png(60_000, 60_000)
    yield Case("pictures/bombs of 10 GB", of(("a.png", large), ("b.png", large)), many)
    zero = png(0, 0)
    yield Case("pictures/of no size", of(("a.png", zero), ("b.png", zero)), many)
    half = cut.getvalue()[:120]
    yield Case("pictures/cut", of(("a.png", half), ("b.png", half)), "can be decoded")
    yield Case(
        "pictures/SVG",
        of(("a.png", "<svg onload='alert(1)'/>"), ("b.png", "<svg/>")),
        many,
    )
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(touch opened) system\n"
    yield Case("pictures/PostScript", of(("a.png", eps), ("b.png", eps)), many)
    yield Case("pictures/an empty training part", of(("train/x.txt", "x")), "has only .txt")
    yield Case("pictures/links to themselves", linked, "")
    yield Case("pictures/pipes", piped, many)
    yield Case("pictures/devices", devices, many)
    yield Case("pictures/folder called as a picture", folder_called_picture, "has no files")
    yield Case("pictures/beside folders", beside, "2 subfolder(s) with pictures")
    yield Case("pictures/held out without labels", unlabelled, "without labels")
    yield Case("pictures/output inside them", inside, "choose an output folder outside the data")
    yield Case("pictures/sides of 2 pixels", sized(2), "--image-size")
    yield Case("pictures/sides of a million", sized(1_000_000), "")
    yield Case("pictures/one class of many", classes("c0\n"), "name at least 2")
    yield Case(
        "pictures/unknown classes",
        classes("c0\nc9\n"),
        "no folder exists for 1 of the 2 requested classes",
    )
    yield Case("pictures/classes of bytes", classes(b"\xff\n\0"), "classes.txt")
    yield Case(
        "pictures/classes above",
        classes("c0\n..\n"),
        "no folder exists for 1 of the 2 requested classes",
    )
    yield Case("pictures/classes from a pipe", classes(None), "a pipe")
    for name, data in (
        ("a.png", b"hello"),
        ("data.zip", b"PK\3\4"),
        ("data.tar.gz", gzip.compress(b"x")),
        ("data.npz.gz", gzip.compress(b"x")),
    ):

        def single(
            room: Path, bench: Bench, name: str = name, data: bytes = data
        ) -> Sequence[object]:
            return train(content(room / name, data))

        yield Case(f"pictures/given {name}", single, "give a folder of pictures")


def _used() -> Iterator[Case]:
    """The same behind the verbs that use a model."""

    def encode(room: Path, bench: Bench) -> Sequence[object]:
        content(room / "data/a.png", "no picture")
        return ["encode", bench.image, "data", "-o", "out.npy"]

    def encode_pipe(room: Path, bench: Bench) -> Sequence[object]:
        (room / "data").mkdir()
        os.mkfifo(room / "data/a.png")
        return ["encode", bench.image, "data", "-o", "out.npy"]

    def search_pipe(room: Path, bench: Bench) -> Sequence[object]:
        os.mkfifo(room / "query.png")
        return ["search", bench.image, folders(room / "data"), "query.png"]

    def search_zero(room: Path, bench: Bench) -> Sequence[object]:
        (room / "query.png").symlink_to("/dev/zero")
        return ["search", bench.image, folders(room / "data"), "query.png"]

    def bomb(room: Path, bench: Bench) -> Sequence[object]:
        content(room / "data/a.png", png(60_000, 60_000))
        return ["encode", bench.image, "data", "-o", "out.npy"]

    def narrow(room: Path, bench: Bench) -> Sequence[object]:
        content(room / "data/a.png", png(50_000_000, 1))
        return ["encode", bench.image, "data", "-o", "out.npy"]

    yield Case("pictures/encode words", encode, "is not a picture that can be read")
    yield Case("pictures/encode a pipe", encode_pipe, "a pipe")
    yield Case("pictures/encode a bomb", bomb, "is not a picture that can be read")
    yield Case("pictures/encode a line of pixels", narrow, "is not a picture that can be read")
    yield Case("pictures/search for a pipe", search_pipe, "a pipe")
    yield Case("pictures/search for a device", search_zero, "a device")
    yield Case(
        "pictures/search for nothing",
        lambda room, bench: ["search", bench.image, folders(room / "d"), "nowhere.png"],
        "no such file",
    )
    yield Case(
        "pictures/text for an encoder of pictures",
        lambda room, bench: ["encode", bench.image, bench.sentences, "-o", "out.npy"],
        "give a folder of pictures",
    )
    yield Case(
        "pictures/pooling",
        lambda room, bench: [
            *("encode", bench.image, folders(room / "d"), "-o", "o.npy", "--pooling", "mean")
        ],
        "the encoder takes pictures",
    )
    yield Case(
        "pictures/STS for an encoder of pictures",
        lambda room, bench: [
            "evaluate",
            bench.image,
            "--sts",
            content(room / "s.tsv", "1\ta\tb\n"),
        ],
        "(the encoder takes pictures)",
    )


def cases() -> Iterator[Case]:
    """Yield them."""
    yield from _arrays()
    yield from _archives()
    yield from _tables()
    yield from _folders()
    yield from _used()
