"""SimCSE: encodes two views of a text batch for any objective (Gao et al., 2021).

All views of a batch go through the encoder together, in chunks of similar length, so that padding
is low; which sentences are negatives of each other does not depend on the chunks. Where the graphs
of all chunks do not fit into memory, there is only one at a time (``gradient_cache``). The head
exists in training only. Randomness is a function of (seed, step, process): nothing random is saved,
and resuming in the middle of an epoch repeats the very same masks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import lightning as L
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import IterableDataset

from isotrope.core.distributed import all_gather_views, rank
from isotrope.core.views import Views
from isotrope.data.text.batches import Batch
from isotrope.diagnostics.observe import loss_column, measure
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.paradigm.objective import Objective
from isotrope.training.gradient_cache import cached
from isotrope.training.nan_guard import NonFiniteGuard
from isotrope.training.optimisers import learning_rate_at
from isotrope.training.recipe import Plan
from isotrope.training.step import step_loss, step_seed

__all__ = ["SimCSE", "Steps", "nested"]


def nested(views: Views, prefixes: Sequence[int]) -> list[Views]:
    """Return the views, and their first coordinates alone, so many as each prefix says.

    Source: Kusupati et al. 2022, "Matryoshka representation learning", section 3.
    """
    return [views, *(_first(views, d) for d in prefixes)]


def _first(views: Views, d: int) -> Views:
    return views.map(lambda x: x[:, :d])


class Steps(IterableDataset[Batch]):
    """The batches of the steps ``start`` to ``stop`` of a run, in order."""

    def __init__(self, at: Callable[[int], Batch], start: int, stop: int) -> None:
        self.at, self.start, self.stop = at, start, stop

    def __iter__(self) -> Iterator[Batch]:
        """Yield one collated batch a step."""
        for step in range(self.start, self.stop):
            yield self.at(step)


class SimCSE(L.LightningModule):
    """The encoder, its head, the objective and the optimiser of one run.

    Args:
        encoder: trained in place.
        head: a network on top, in training only, or None.
        objectives: that of each data set, by name; any registered objective or composition.
        plan: steps, learning rate and weight decay of the run; the optimiser is AdamW.
        seed: the run's seed.
        caching: have the graph of one chunk at a time, not of the whole batch.
        log_every: steps between measurements of the gradient's components.
        scaled: float16 training, whose gradients are scaled and may overflow now and then.
        backend: what computes the loss, see ``isotrope.kernels.choose``.
        prefixes: the loss is the mean of the objective's on whole embeddings and on their first
            coordinates, as many as each of these says.
    """

    def __init__(
        self,
        *,
        encoder: SentenceEncoder,
        head: nn.Module | None,
        objectives: Mapping[str, Objective],
        plan: Plan,
        seed: int,
        log_every: int,
        caching: bool = False,
        scaled: bool = False,
        backend: str = "auto",
        prefixes: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.scaled = scaled
        self.caching = caching
        self.encoder = encoder
        self.head = head if head is not None else nn.Identity()
        self.objectives = dict(objectives)
        self.objective = next(iter(self.objectives.values()))  # of the present step
        self.backend = backend
        self.prefixes = tuple(prefixes)
        self.plan, self.steps, self.learning_rate = plan, plan.steps, plan.learning_rate
        self.seed = seed
        self.log_every = log_every
        self.guard = NonFiniteGuard()
        self.measured: dict[str, float | None] = {}
        self.gradient_norm: Tensor | None = None

    def transfer_batch_to_device(
        self, batch: Batch, device: torch.device, dataloader_idx: int
    ) -> Batch:
        """Leave the batch where it is: its chunks move one by one in :meth:`embed`."""
        return batch

    def embed(self, batch: Batch) -> list[Tensor]:
        """Return the embeddings of each view of the batch, n x d, as the objective sees them."""
        # the longest first: the allocator then finds room for the shorter in what they leave
        chunks = batch.chunks[::-1]
        if self.caching:
            parts = cached(self.encoder, [tuple(map(torch.from_numpy, chunk)) for chunk in chunks])
        else:
            parts = [self.encoder(*map(self._moved, chunk)) for chunk in chunks]
        rows: Tensor = self.head(torch.cat(parts[::-1])[self._moved(batch.inverse)])
        return list(torch.split(rows, batch.sizes))

    def _moved(self, array: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(array).to(self.device, non_blocking=True)

    def views(self, batch: Batch) -> Views:
        """Return the batch as the objective's input."""
        anchors, positives, *hard = self.embed(batch)
        return Views(
            anchors=anchors,
            positives=positives,
            negatives=hard[0] if hard and len(hard[0]) else None,
            groups=self._moved(batch.groups),
        )

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the loss of one batch; every ``log_every`` steps also measure it."""
        step = self.global_step
        torch.manual_seed(step_seed(self.seed, step, rank()))
        batch_of_all = all_gather_views(self.views(batch))
        views = batch_of_all.views
        terms = [batch_of_all._replace(views=part) for part in nested(views, self.prefixes)]
        self.objective = self.objectives[batch.dataset]
        loss = step_loss(
            self,
            step,
            terms,
            [views],
            lambda: measure(self.objective, views),
            counted=batch.number,
        )
        if batch.dataset and "loss" in self.measured:
            self.measured[loss_column(batch.dataset)] = self.measured["loss"]
        return loss

    def learning_rate_at(self, step: int) -> float:
        """Return the learning rate of a step."""
        return learning_rate_at(self.plan, step)

    def configure_optimizers(self) -> Any:  # noqa: ANN401 - Lightning's nested dictionary
        """Return AdamW (fused), with the learning rates of the plan."""
        parameters = [p for p in self.parameters() if p.requires_grad]
        decay = self.plan.weight_decay
        # biases, and the scales and shifts of norms, are vectors, which do not decay
        groups: list[dict[str, Any]] = [
            {"params": [p for p in parameters if p.ndim > 1 or not decay]}
        ]
        if decay:
            vectors = [p for p in parameters if p.ndim < 2]
            groups.append({"params": vectors, "weight_decay": 0.0})
        optimizer = torch.optim.AdamW(
            groups,
            lr=self.learning_rate,
            weight_decay=decay,
            # a fused step unscales by itself, after clipping: too late for float16
            fused=not self.scaled,
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: self.learning_rate_at(step) / self.learning_rate
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }
