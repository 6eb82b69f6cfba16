"""Pictures for tests of image sets: smooth ones that survive JPEG, and folders of them."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def ramp(width: int, height: int, seed: int = 0) -> NDArray[np.uint8]:
    """Return a smooth RGB picture, h x w x 3, different in every corner; 50 different seeds."""
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    channels = [200 * x + 20, 200 * y + 20, 90 * (x + y) + 20 + 7 * seed % 50]
    return np.stack(channels, axis=2).round().astype(np.uint8)


def save(path: Path, array: NDArray[np.uint8], **settings: object) -> Path:
    """Write a picture; WebP without loss."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() == ".webp":
        settings = {"lossless": True} | settings
    if path.suffix.lower() in (".jpg", ".jpeg"):
        settings = {"quality": 95, "subsampling": 0} | settings
    Image.fromarray(array).save(path, **settings)
    return path


def folders(root: Path, classes: int = 2, each: int = 3, side: int = 8) -> Path:
    """Write ``each`` PNG files into each of ``classes`` folders, all different."""
    for c in range(classes):
        for i in range(each):
            save(root / f"c{c}" / f"{i}.png", ramp(side, side, 10 * c + i))
    return root
