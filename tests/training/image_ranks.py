"""What each of two gloo processes does for test_image_shares.py; started once for all its cases."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from isotrope.core.distributed import rows_of
from isotrope.data.images.batches import ImageBatch
from isotrope.training.images.method import ImageMethod
from tests import two_processes
from tests.training.tiny_images import batch, gradients, method


@dataclass(frozen=True)
class ImageCase:
    """One method on a batch of n images; an odd one more for the first process."""

    name: str
    n: int = 6
    options: dict[str, Any] = field(default_factory=dict)
    objective: str | None = None
    caching: int | None = None
    batch_norm: bool = True

    def __str__(self) -> str:
        words = [self.name, self.objective or "", *(f"{k}={v}" for k, v in self.options.items())]
        words += [f"n={self.n}", "cached" if self.caching else ""]
        return " ".join(word for word in words if word)

    def built(self) -> ImageMethod:
        return method(
            self.name,
            batch_norm=self.batch_norm,
            options=self.options,
            objective=self.objective,
            caching=self.caching,
            log_every=1,
        )


class Step(nn.Module):
    """What DDP wraps: from a rank's images to the loss that it backpropagates."""

    def __init__(self, made: ImageMethod) -> None:
        super().__init__()
        self.made = made

    def forward(self, images: Tensor, size: int) -> Tensor:
        return self.made(ImageBatch(images, 0, size))


def one_process(case: ImageCase, rows: slice | None = None) -> dict[str, Any]:
    """The truth: the whole batch in this process (or these rows of it, as a batch of their own)."""
    made = case.built()
    images = batch(n=case.n).images[rows or slice(None)]
    return stepped(made, Step(made), images, len(images))


def stepped(made: ImageMethod, model: nn.Module, images: Tensor, size: int) -> dict[str, Any]:
    """One step, and everything that can be seen of it."""
    loss = model(images, size)
    loss.backward()
    found = {
        "loss": loss.item(),
        "gradients": gradients(made),
        "measured": made.measured,
        "crops": made.crops(ImageBatch(images, 0, size)),
    }
    optimizer = made.optimizer()
    made.before_update(0, optimizer)
    optimizer.step()
    made.after_step()
    state = {k: v for k, v in made.state_dict().items() if not k.endswith("num_batches_tracked")}
    queue = {k: state.pop(k) for k in list(state) if k.startswith("queue.")}
    return found | {"state": state, "queue": queue}


def on_two(cases: list[ImageCase], folder: Path) -> list[dict[str, dict[str, Any]]]:
    """What either rank sees of every case."""
    return two_processes.on_two(_work, folder, cases)


def _work(rank: int, cases: list[ImageCase]) -> dict[str, dict[str, Any]]:
    results = {}
    for case in cases:
        made = case.built()  # shares the statistics of its batch norms by itself
        model = DistributedDataParallel(Step(made), broadcast_buffers=False)
        images = batch(n=case.n).images[rows_of(case.n)]
        results[str(case)] = stepped(made, model, images, case.n)
    return results
