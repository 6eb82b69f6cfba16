"""A finished run on images, written by hand: pictures as an array, settings, model and result."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from isotrope.core.run_folder import RunFolder
from isotrope.data.images.sets import load_images
from isotrope.encoders.image import ImageEncoder


def write_pictures(file: Path, *, test: bool = True, labels: bool = True, seed: int = 0) -> Path:
    """Write 8 x 8 pictures of four classes: 80 to train on and 40 to test on."""
    centres = np.random.default_rng(99).uniform(40, 210, size=(4, 8, 8, 3))
    arrays = {}
    rng = np.random.default_rng(seed)
    for name, n in (("", 80), *([("_test", 40)] if test else [])):
        numbers = np.arange(n) % 4
        pixels = centres[numbers] + rng.normal(scale=50, size=(n, 8, 8, 3))
        arrays[f"x{name}"] = pixels.clip(0, 255).astype(np.uint8)
        if labels:
            arrays[f"y{name}"] = numbers
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez(file, **arrays)
    return file


def write_image_run(folder: Path, data: Path, *, weights: int = 0, **settings: Any) -> Path:
    """Write the folder of a run on ``data`` that has come to its end."""
    encoder = ImageEncoder.build("resnet9", width=4, image_size=8, seed=weights)
    encoder.save(folder / "model")
    settings = {"data": str(data), "method": "simclr", "seed": 1, **settings}
    RunFolder(folder).write_settings(yaml.safe_dump(settings))
    asked = {name: settings[name] for name in ("holdout", "seed", "limit") if name in settings}
    images = load_images(data, side=8, **asked)
    result = {
        "kind": "train-images",
        "name": folder.name,
        "metrics": {},
        "details": {"data": {"path": str(data), "side": 8}},
        "provenance": {"data": images.fingerprint},
    }
    (folder / "result.json").write_text(json.dumps(result))
    return folder
