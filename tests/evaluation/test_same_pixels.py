"""One file gives the same pixels wherever it is read, so that what is trained is what is used."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from isotrope.cli.main import guarded
from isotrope.data.images.batches import ImageBatches
from isotrope.data.images.sets import load_images
from isotrope.encoders.image import ImageEncoder
from isotrope.evaluation.image_tasks import both_features

SIDE = 40
NAMES = [
    "grey.png",
    "large.jpg",
    "palette.png",
    "rgb.png",
    "rgba.webp",
    "sixteen.png",
    "turned.jpg",
]


def noise(height: int, width: int, channels: int = 3) -> Image.Image:
    """A picture with detail at every size."""
    random = np.random.default_rng(height * width)
    coarse = random.integers(0, 256, (height // 3, width // 3, channels), dtype=np.uint8)
    return Image.fromarray(coarse.squeeze()).resize((width, height), Image.Resampling.BICUBIC)


def write(folder: Path) -> None:
    """Write one picture of each kind: all are neither square nor of the right size."""
    folder.mkdir(parents=True)
    turned = Image.Exif()
    turned[0x0112] = 6
    noise(233, 301).save(folder / "rgb.png")
    noise(900, 1203).save(folder / "large.jpg", quality=90)
    noise(120, 201).save(folder / "turned.jpg", exif=turned)
    noise(70, 53, 1).save(folder / "grey.png")
    noise(99, 64).quantize(17).save(folder / "palette.png")
    noise(64, 99, 4).save(folder / "rgba.webp", lossless=True)
    sixteen = np.random.default_rng(0).integers(0, 1 << 16, (61, 83), dtype=np.uint16)
    Image.fromarray(sixteen).save(folder / "sixteen.png")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("same") / "pictures"
    for part in ("train", "test"):
        for name in ("a", "b"):
            write(root / part / name)
    return root


@pytest.fixture(scope="module")
def trained(root: Path) -> NDArray[np.uint8]:
    """What training reads of train/a, in the order of the names."""
    part = load_images(str(root), side=SIDE).train
    assert len(part.images) == 2 * len(NAMES)
    return part.images.read(range(len(NAMES)))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("same") / "model"
    ImageEncoder.build("resnet9", width=4, image_size=SIDE, stem="imagenet", seed=0).save(folder)
    return folder


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[NDArray[np.uint8]]:
    """The pixels that an image encoder is given, 3 x side x side each."""
    rows: list[NDArray[np.uint8]] = []
    forward = ImageEncoder.forward

    def look(self: ImageEncoder, x: torch.Tensor) -> torch.Tensor:
        rows.extend((x * 255).round().to(torch.uint8).numpy())
        return forward(self, x)

    monkeypatch.setattr(ImageEncoder, "forward", look)
    return rows


def test_a_batch_of_training(root: Path, trained: NDArray[np.uint8]) -> None:
    part = load_images(str(root), side=SIDE).train
    batch = ImageBatches(part, 2 * len(NAMES)).at(0).images.numpy()
    assert {row.tobytes() for row in batch} == {row.tobytes() for row in trained}


def test_neighbours_and_the_linear_probe(
    root: Path, trained: NDArray[np.uint8], model: Path, seen: list[NDArray[np.uint8]]
) -> None:
    encoder = ImageEncoder.load(model, device="cpu")
    both_features(encoder, load_images(str(root), side=SIDE))
    assert len(seen) == 4 * len(NAMES)
    assert {row.tobytes() for row in seen} == {row.tobytes() for row in trained}


def test_encode_in_python(
    root: Path, trained: NDArray[np.uint8], model: Path, seen: list[NDArray[np.uint8]]
) -> None:
    encoder = ImageEncoder.load(model, device="cpu")
    files = [root / "train" / "a" / name for name in NAMES]
    encoder.encode(files)
    assert np.array_equal(seen, trained)
    seen.clear()
    encoder.encode([Image.open(file) for file in files])
    assert np.array_equal(seen, trained)


def test_encode_and_search_of_the_command_line(
    root: Path,
    trained: NDArray[np.uint8],
    model: Path,
    seen: list[NDArray[np.uint8]],
    tmp_path: Path,
) -> None:
    folder = root / "train" / "a"
    options = ["--device", "cpu"]
    output = str(tmp_path / "x.npy")
    assert guarded(["encode", str(model), str(folder), "--output", output, *options]) == 0
    assert np.array_equal(seen, trained)
    seen.clear()
    assert guarded(["search", str(model), str(folder), str(folder / "large.jpg"), *options]) == 0
    asked = trained[NAMES.index("large.jpg")]
    assert np.array_equal(seen, np.concatenate([asked[None], trained]))


def test_the_image_processor_of_a_saved_model(
    root: Path, trained: NDArray[np.uint8], model: Path
) -> None:
    """What is written for transformers prepares these pixels too, where it reads the kind."""
    from transformers import AutoImageProcessor

    processor = AutoImageProcessor.from_pretrained(model, backend="pil")
    for name in ("rgb.png", "large.jpg", "grey.png", "palette.png"):
        with Image.open(root / "train" / "a" / name) as image:
            prepared = processor(image, do_normalize=False, return_tensors="np")["pixel_values"]
        found = (prepared[0] * 255).round().astype(np.uint8)
        assert np.array_equal(found, trained[NAMES.index(name)]), name
