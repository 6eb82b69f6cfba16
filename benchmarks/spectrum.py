"""The spectrum of a ResNet of 700,000 parameters: against SciPy, and the time of a product.

Trains SimCLR with MIOv3 for 40 steps on CIFAR-10 (noise where it is not there), takes the
checkpoint's Hessian on one batch and

- runs 100 iterations of Lanczos and compares both ends of the spectrum with
  SciPy's ``eigsh`` on the same products;
- times the gradient, a product, and PyHessian's product on the same loss (``pip install --no-deps
  pyhessian``; where it is missing, the two lines of its formula), one after the other in every
  round, in seconds of this process's CPU. A wrapper keeps the model in training mode, which
  PyHessian would leave.

    OMP_NUM_THREADS=1 python -m benchmarks.spectrum [--work DIR] [--batch-size 128] [--csv FILE]

Writes the table. Stopped, it goes on with the same command: what is done is in DIR.
"""

import argparse
import csv
import json
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from isotrope.core.documents import read_yaml
from isotrope.core.run_folder import RunFolder

HERE = Path(__file__).parent
CIFAR = HERE.parents[1] / "shared" / "data" / "cifar10"
WAYS = ("gradient", "product", "pyhessian")


def pictures(count: int) -> np.ndarray:
    """Return n x h x w x 3 pixels of CIFAR-10, or noise."""
    from isotrope.data.images.sets import load_images

    if CIFAR.is_dir():
        return load_images(CIFAR).train.images.read(np.arange(count)).transpose(0, 2, 3, 1)
    return np.random.default_rng(0).integers(0, 256, (count, 32, 32, 3), np.uint8)


def trained(work: Path, *, smoke: bool) -> Path:
    """Train, or go on, and return the run."""
    import isotrope

    if not (work / "pictures.npz").is_file():
        np.savez(work / "pictures.npz", images=pictures(5000))  # no labels: nothing is scored
    steps = 4 if smoke else 40
    isotrope.fit_images(
        work / "pictures.npz",
        resume=True,
        output=work / "run",
        encoder="resnet9" if smoke else "resnet18",
        width=4 if smoke else 16,
        method_settings={"hidden": 16, "dimension": 8} if smoke else {},
        objective="miov3",
        limit=500 if smoke else None,
        batch_size=16 if smoke else 128,
        max_steps=steps,
        checkpoint_every=steps - 1,  # the newest there is, but for the last step
        progress=False,
        seed=0,
    )
    return work / "run"


def at_newest(run: Path, batch_size: int) -> Any:
    """Return the method of a run at its newest checkpoint, and the terms of a batch."""
    from isotrope.training import ImageSettings
    from papers.measurements.spectrum import Question, restored

    newest = max(
        int(c.name.removeprefix("checkpoint-")) for c in RunFolder(run).checkpoints.iterdir()
    )
    settings = ImageSettings.read(read_yaml(RunFolder(run).config))
    return restored(settings, Question(batch_size=batch_size), newest)


def extremes(run: Path, iterations: int, batch_size: int) -> dict[str, Any]:
    """Return both ends by Lanczos and by SciPy, of the same Hessian."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    from isotrope.diagnostics import parameter_hessian
    from papers.manna2023.spectrum import Spectrum, lanczos

    rebuilt = at_newest(run, batch_size)
    hessian = parameter_hessian(rebuilt.method.objective, rebuilt.terms, rebuilt.method)
    norm = float(torch.linalg.vector_norm(hessian.gradient, dtype=torch.float64))
    ritz = lanczos(hessian, iterations)
    numbers = Spectrum(hessian.size, hessian.loss, norm, ritz).numbers()
    products = 0

    def product(v: np.ndarray) -> np.ndarray:
        nonlocal products
        products += 1
        return (hessian @ torch.from_numpy(v.reshape(-1).astype(np.float32))).double().numpy()

    operator = LinearOperator((hessian.size,) * 2, matvec=product, dtype=np.float64)
    start = np.random.default_rng(1).normal(size=hessian.size)
    low, high = eigsh(operator, k=2, which="BE", tol=1e-5, v0=start, return_eigenvectors=False)
    ends = {"lambda_min": (numbers["lambda_min"], low), "lambda_max": (numbers["lambda_max"], high)}
    rows = {"parameters": hessian.size, "step": rebuilt.about["step"], "iterations": iterations}
    rows["scipy_products"] = products
    for name, (ours, scipys) in ends.items():
        rows |= {name: ours, f"{name}_scipy": float(scipys)}
        rows[f"{name}_apart"] = abs(float(ours) - scipys) / abs(scipys)
    return rows | {name: numbers[name] for name in ("negative", "flat", "trace", "loss")}


class Whole(nn.Module):
    """A method as PyHessian takes models: of a batch it makes its loss, in training mode always."""

    def __init__(self, module: nn.Module, loss: Callable[[], Tensor]) -> None:
        super().__init__()
        self.module, self.loss = module, loss

    def eval(self) -> "Whole":
        """Stay in training mode."""
        return self

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the loss of the batch that it was made with."""
        return self.loss()


def pyhessians(module: nn.Module, loss: Callable[[], Tensor]) -> tuple[str, Callable[..., Any]]:
    """Return who computes, and what makes a product with a vector."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of backward(create_graph=True)
        try:
            from pyhessian import hessian
            from pyhessian.utils import hessian_vector_product
        except ImportError:
            loss().backward(create_graph=True)
            parameters = [p for p in module.parameters() if p.requires_grad]
            gradients = [p.grad + 0.0 for p in parameters if p.grad is not None]
            by = "its formula"

            def product(pieces: list[Tensor]) -> tuple[Tensor, ...]:
                return torch.autograd.grad(
                    gradients, parameters, pieces, only_inputs=True, retain_graph=True
                )
        else:
            nothing = torch.zeros(1)
            model = Whole(module, loss)
            theirs = hessian(model, lambda value, _: value, data=(nothing, nothing), cuda=False)
            by = f"pyhessian {metadata.version('pyhessian')}"

            def product(pieces: list[Tensor]) -> tuple[Tensor, ...]:
                return hessian_vector_product(theirs.gradsH, theirs.params, pieces)

    return by, product


def times(run: Path, rounds: int, batch_size: int) -> dict[str, Any]:
    """Return seconds of CPU by way, all in every round, and how far the products are apart."""
    from isotrope.diagnostics import parameter_hessian

    rebuilt = at_newest(run, batch_size)
    objective, (terms,), module = rebuilt.method.objective, rebuilt.terms, rebuilt.method

    def loss() -> Tensor:
        return objective.loss(terms()[0], backend="eager")

    hessian = parameter_hessian(objective, [terms], module)
    by, theirs = pyhessians(module, loss)
    v = torch.randn(hessian.size, generator=torch.Generator().manual_seed(0))
    parts = v.split([p.numel() for p in hessian.parameters])
    pieces = [part.view_as(p) for part, p in zip(parts, hessian.parameters, strict=True)]
    ways: dict[str, Callable[[], Any]] = {
        "gradient": lambda: torch.autograd.grad(loss(), hessian.parameters),
        "product": lambda: hessian @ v,
        "pyhessian": lambda: theirs(pieces),
    }
    assert tuple(ways) == WAYS
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(rounds + 1):
        for way, call in ways.items():
            began = time.process_time()
            call()
            if turn:  # the first warms up
                seconds[way].append(time.process_time() - began)
    flat = torch.cat([x.reshape(-1) for x in theirs(pieces)])
    apart = float((hessian @ v - flat).norm() / flat.norm())
    return {"by": by, "rounds": rounds, "apart": apart, **seconds}


def done(work: Path, name: str, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what a part came to, from an earlier call if it is there."""
    from isotrope.core.files import write_text

    file = work / f"{name}.json"
    if not file.is_file():
        value = call()
        write_text(file, json.dumps(value))
    read: dict[str, Any] = json.loads(file.read_text())
    return read


def main() -> None:
    """Do what is left to do, write the table, print whether the bounds are met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path("runs/spectrum-benchmark"))
    parser.add_argument("--batch-size", type=int, default=128, help="of the Hessian [128]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--csv", type=Path, default=HERE.parent / "docs/results/spectrum.csv")
    parser.add_argument("--smoke", action="store_true", help="sizes of seconds, for tests")
    arguments = parser.parse_args()
    if arguments.smoke:
        arguments.batch_size = 16
    arguments.work.mkdir(parents=True, exist_ok=True)
    run = trained(arguments.work, smoke=arguments.smoke)
    timed = done(
        arguments.work,
        f"times-{arguments.batch_size}",
        lambda: times(run, arguments.rounds, arguments.batch_size),
    )
    ends = done(
        arguments.work,
        f"extremes-{arguments.batch_size}",
        lambda: extremes(run, arguments.iterations, arguments.batch_size),
    )
    lines: list[tuple[str, object]] = [("batch_size", arguments.batch_size), *ends.items()]
    medians = {way: statistics.median(timed[way]) for way in WAYS}
    for way in WAYS:
        lines += [(f"{way}, seconds", medians[way])]
        lines += [(f"{way}, fastest", min(timed[way])), (f"{way}, slowest", max(timed[way]))]
    ours = medians["product"]
    lines += [("product, gradients", ours / medians["gradient"])]
    lines += [("product, of pyhessian's", ours / medians["pyhessian"])]
    lines += [("pyhessian's by", timed["by"])]
    lines += [("products apart", timed["apart"]), ("rounds", timed["rounds"])]
    lines += [("threads", torch.get_num_threads()), ("torch", torch.__version__)]
    lines += [("machine", platform.machine())]
    with arguments.csv.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(["what", "value"])
        writer.writerows((k, f"{x:.6g}" if isinstance(x, float) else x) for k, x in lines)
    print(arguments.csv.read_text(), end="")
    met = ends["lambda_max_apart"] <= 1e-3 and ends["lambda_min_apart"] <= 1e-3
    print(f"extremes within 1e-3 of SciPy's: {'met' if met else 'missed'}")
    cheap = ours <= 1.1 * medians["pyhessian"]
    print(f"a product at most 1.1 times PyHessian's: {'met' if cheap else 'missed'}")


if __name__ == "__main__":
    main()
