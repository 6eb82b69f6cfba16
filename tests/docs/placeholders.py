"""What pages name and a reader would have: folders of texts and pictures, all small and made up."""

from pathlib import Path

import numpy as np
from PIL import Image

from tests.sts_folder import write_plain
from tests.training.conftest import sentences


def write_placeholders(page: Path, folder: Path) -> None:
    """Write what the blocks of a page take for granted."""
    if page.stem == "README":
        lines = "\n".join(sentences(240)) + "\n"
        for file in ("wiki.txt", "sentences.txt"):
            (folder / file).write_text(lines, encoding="utf-8")
        _tasks(folder / "DIR")
        _pictures(folder / "cifar10", count=40, classes=2)
        (folder.parent / "shared" / "data").mkdir(parents=True)
    if page.stem in ("README", "images"):
        _pictures(folder / "photos", count=32)
        (folder / "query.jpg").write_bytes((folder / "photos" / "0.jpg").read_bytes())
    if page.stem == "reproduce":
        (folder / "DIR").mkdir()


def _tasks(folder: Path) -> None:
    """The seven STS and the seven transfer tasks, invented."""
    write_plain(folder)


def _pictures(folder: Path, *, count: int, classes: int = 0) -> None:
    draw = np.random.default_rng(0)
    for part in ("train", "test") if classes else ("",):
        for i in range(count):
            room = folder / part / (str(i % classes) if classes else "")
            room.mkdir(parents=True, exist_ok=True)
            pixels = draw.integers(0, 256, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(room / f"{i}.jpg")
