"""Images per second of ``isotrope train-images``, beside the same method written plainly.

Both train SimCLR (NT-Xent at temperature .1, SGD) from the same weights, a ResNet-18 of base width
16 with the CIFAR stem, on the same images in the same order, with the same distributions of
augmentation; each view goes through the encoder by itself, so that the batch statistics are of the
same rows. The plain one augments picture by picture with PIL, in the training process, and computes
in contiguous float32. Ours runs twice, in float32 and in bfloat16. Each runs in a fresh process of
as many threads as ``OMP_NUM_THREADS`` says; the processes alternate, so that a busy machine
disturbs all alike. What a step costs is what a run of 14 steps costs more than a run of 2, with
everything around them the same: seconds, and seconds of CPU, which tell more on a busy machine.

    OMP_NUM_THREADS=1 python benchmarks/images_speed.py [--steps 12] [--rounds 3] [--csv FILE]
    OMP_NUM_THREADS=1 python benchmarks/images_speed.py --parts

``--parts`` times the augmentation alone, and its costly parts beside other ways to write them, in
milliseconds of one process's CPU time.

The images are those of ``../shared/data/cifar10`` if they are there, else noise: no part's time
depends on what they show.
"""

import argparse
import json
import math
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import ledger

HERE = Path(__file__).parent
CIFAR = HERE.parents[1] / "shared" / "data" / "cifar10"
SIDE, WIDTH, SEED = 32, 16, 42
TEMPERATURE, LEARNING_RATE, WEIGHT_DECAY = 0.1, 0.06, 5e-4
SHORT = 2  # steps of the run that is subtracted
WAYS = ("plain", "isotrope", "isotrope bf16")
COLUMNS = (
    "way",
    "round",
    "images_per_second",
    "images_per_cpu_second",
    "peak_mib",
    "loss",
    "steps",
    "batch_size",
    "threads",
    "machine",
    "torch",
)


def prepared(file: Path, count: int) -> None:
    """Write ``count`` images as an .npz file of uint8, n x h x w x 3."""
    from isotrope.data.images.sets import load_images

    if CIFAR.is_dir():
        images = load_images(CIFAR).train.images.read(np.arange(count)).transpose(0, 2, 3, 1)
    else:
        images = np.random.default_rng(0).integers(0, 256, (count, SIDE, SIDE, 3), np.uint8)
    np.savez(file, images=images)


# -- the plain way ------------------------------------------------------------------------------


def box(dice: random.Random) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom of a random crop."""
    for _ in range(10):
        area = SIDE * SIDE * dice.uniform(0.08, 1)
        ratio = math.exp(dice.uniform(math.log(3 / 4), math.log(4 / 3)))
        width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < width <= SIDE and 0 < height <= SIDE:
            left, top = dice.randint(0, SIDE - width), dice.randint(0, SIDE - height)
            return left, top, left + width, top + height
    return 0, 0, SIDE, SIDE


def plain_view(picture, dice: random.Random):
    """Return one view of a picture as float32, 3 x 32 x 32: crop, flip, jitter, grey."""
    from PIL import Image, ImageEnhance

    picture = picture.crop(box(dice)).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    if dice.random() < 0.5:
        picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if dice.random() < 0.8:
        for change in dice.sample(("Brightness", "Contrast", "Color", "hue"), 4):
            if change == "hue":
                hsv = np.array(picture.convert("HSV"))
                hsv[..., 0] += np.uint8(round(255 * dice.uniform(-0.1, 0.1)) % 256)
                picture = Image.fromarray(hsv, "HSV").convert("RGB")
            else:
                factor = dice.uniform(0.6, 1.4)
                picture = getattr(ImageEnhance, change)(picture).enhance(factor)
    if dice.random() < 0.2:
        picture = picture.convert("L").convert("RGB")
    pixels = np.asarray(picture, np.float32).transpose(2, 0, 1)
    # as torchvision's ToTensor; NumPy would keep the channels last, through np.stack too
    return np.ascontiguousarray(pixels) / 255


def plain(file: Path, steps: int, batch: int) -> float:
    """Train with a loop as one writes it down, and return the last loss."""
    import torch
    import torch.nn.functional as F
    from PIL import Image
    from torch import nn

    from isotrope.data.text.batches import Batches
    from isotrope.encoders.image import ImageEncoder
    from isotrope.encoders.image_nets import IMAGENET_MEAN, IMAGENET_STD

    pictures = [Image.fromarray(image) for image in np.load(file)["images"]]
    batches, dice = Batches(pictures, batch, SEED), random.Random(SEED)
    encoder = ImageEncoder.build("resnet18", width=WIDTH, image_size=SIDE, seed=SEED)
    net = encoder.model.to(memory_format=torch.contiguous_format).train()
    head = nn.Sequential(nn.Linear(8 * WIDTH, 512), nn.ReLU(), nn.Linear(512, 128))
    mean, std = (torch.tensor(x).view(3, 1, 1) for x in (IMAGENET_MEAN, IMAGENET_STD))
    optimizer = torch.optim.SGD(
        [*net.parameters(), *head.parameters()],
        lr=LEARNING_RATE,
        momentum=0.9,
        weight_decay=WEIGHT_DECAY,
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    def embedded(chosen):
        views = np.stack([plain_view(picture, dice) for picture in chosen])
        x = (torch.from_numpy(views) - mean) / std
        return F.normalize(head(net(x).pooler_output.flatten(1)))

    for step in range(steps):
        chosen = [pictures[i] for i in batches.at(step)]
        z = torch.cat([embedded(chosen), embedded(chosen)])
        similarity = (z @ z.T / TEMPERATURE).fill_diagonal_(-torch.inf)
        loss = F.cross_entropy(similarity, torch.arange(2 * batch).roll(batch))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return loss.item()


# -- ours ---------------------------------------------------------------------------------------


def ours(file: Path, steps: int, batch: int, precision: str) -> float:
    """Train as ``isotrope train-images`` does, and return the last loss."""
    from isotrope.training.images.train import fit_images

    with tempfile.TemporaryDirectory() as folder:
        outcome = fit_images(
            file,
            output=f"{folder}/run",
            width=WIDTH,
            batch_size=batch,
            max_steps=steps,
            learning_rate=LEARNING_RATE,
            weight_decay=WEIGHT_DECAY,
            seed=SEED,
            precision=precision,
            device="cpu",
            progress=False,
        )
    return outcome.result.metrics["loss"]


def measured(options: argparse.Namespace) -> dict[str, float]:
    """Run one of the ways in this process: to warm up, for a few steps, and for all."""

    def train(steps: int) -> tuple[float, float, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        if options.one == "plain":
            loss = plain(options.images, steps, options.batch)
        else:
            precision = "bf16" if options.one.endswith("bf16") else "32"
            loss = ours(options.images, steps, options.batch, precision)
        return time.perf_counter() - wall, time.process_time() - cpu, loss

    train(SHORT)
    short, long = train(SHORT), train(SHORT + options.steps)
    images = options.steps * options.batch
    return {
        "images_per_second": round(images / (long[0] - short[0]), 1),
        "images_per_cpu_second": round(images / (long[1] - short[1]), 1),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "loss": round(long[2], 4),
    }


# -- parts --------------------------------------------------------------------------------------


def fastest(run: Callable[[], object], repeats: int = 25) -> float:
    """Return the CPU milliseconds of the fastest of several runs: the one disturbed least."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return 1e3 * min(times)


def parts(batch: int) -> None:
    """Print what augmenting costs: both views of a batch, and single operations of one view."""
    import torch
    import torch.nn.functional as F
    from PIL import Image

    from isotrope.data.images import pixels
    from isotrope.data.images.augment import RECIPES, two_views

    generator = torch.Generator().manual_seed(SEED)
    shape = (batch, 3, SIDE, SIDE)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    pictures = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images]
    dice = random.Random(SEED)

    def both(name: str) -> Callable[[], object]:
        views = two_views(name, SIDE)
        return lambda: [view.apply(images, view.draw(batch, generator)) for view in views]

    print(f"two views of {batch} images of {SIDE} x {SIDE}, milliseconds of CPU")
    for name in RECIPES:
        print(f"  {name:10s} {fastest(both(name)):8.2f}")
    loop = fastest(lambda: [plain_view(p, dice) for p in pictures for _ in range(2)], 5)
    print(f"  {'PIL':10s} {loop:8.2f}")

    x = images.float() / 255
    turns = torch.rand(batch, generator=generator) * 0.2 - 0.1
    view = two_views("simclr", SIDE)[0]
    draws = view.draw(batch, generator)
    boxes = view.boxes(draws, SIDE, SIDE)
    theta = torch.tensor([[[0.5, 0, 0], [0, 0.5, 0]]]).expand(batch, 2, 3)
    some = torch.arange(0, batch, 5)
    print("one view")
    for name, run in {
        "crop, two products": lambda: pixels.resized_crops(images, boxes, draws.flip, SIDE),
        "crop, grid_sample": lambda: F.grid_sample(
            images.float(),
            F.affine_grid(theta, list(shape), align_corners=False),
            align_corners=False,
            padding_mode="border",
        ),
        "hue": lambda: pixels.turn_hue(x, turns),
        "hue, a fifth of the rows": lambda: pixels.turn_hue(x[some], turns[some]),
        "brightness, contrast or saturation": lambda: pixels.blend(
            x, turns + 1, draws.grey, draws.flip
        ),
        "grey": lambda: pixels.grey(x),
        "blur": lambda: pixels.blur(x, turns.abs() * 10 + 0.1, 6),
    }.items():
        print(f"  {name:36s} {fastest(run):8.2f}")


def main() -> None:
    """Alternate the ways, and print how much faster ours are by the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--csv", type=Path, default=HERE / "images_speed.csv")
    parser.add_argument("--parts", action="store_true", help="the augmentation alone")
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--images", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.parts:
        parts(options.batch)
        return
    if options.one:
        print("RESULT " + json.dumps(measured(options)))
        return
    import torch

    fixed = {
        "steps": options.steps,
        "batch_size": options.batch,
        "threads": torch.get_num_threads(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "torch": torch.__version__,
    }
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder) / "images.npz"
        prepared(images, (options.steps + SHORT) * options.batch)
        for number in range(options.rounds):
            for way in WAYS:
                command = [sys.executable, __file__, "--one", way, "--images", str(images)]
                for name in ("steps", "batch"):
                    command += [f"--{name}", str(getattr(options, name))]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                numbers = json.loads(done.stdout.rpartition("RESULT ")[2])
                rows.append({"way": way, "round": number, **numbers, **fixed})
                print(f"{way}: {numbers}", flush=True)
    ledger.write(options.csv, COLUMNS, rows)
    for way in WAYS[1:]:
        faster = (
            median(rows, way, column) / median(rows, WAYS[0], column) for column in COLUMNS[2:4]
        )
        print("{}: {:.2f} times the images/s of the plain loop, {:.2f} by CPU".format(way, *faster))


def median(rows: list[dict[str, object]], way: str, column: str) -> float:
    """Return the median of a column over the rounds of one way."""
    return statistics.median(float(row[column]) for row in rows if row["way"] == way)


if __name__ == "__main__":
    main()
