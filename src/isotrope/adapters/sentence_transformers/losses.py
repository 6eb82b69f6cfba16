"""Wraps any objective as a loss for the sentence-transformers trainer.

The columns of the data are anchors, positives and any number of hard negatives, as for
``MultipleNegativesRankingLoss``. With a single column, each text is embedded twice, with different
dropout masks, as in SimCSE::

    loss = ObjectiveLoss(model, "met")  # or an objective with its hyperparameters
    loss = ObjectiveLoss(model, InfoNCE(temperature=0.05).modify(dissipation="margin:0.3"))
    loss = CachedObjectiveLoss(model, "infonce", mini_batch_size=64)  # batches of any size

``ObjectiveLoss`` sorts the texts of all columns by length and embeds them in chunks, which needs
less padding than one forward pass for each column and gives the same value and gradient. Several
processes without ``gather_across_devices`` use only two chunks. The objective is computed from all
rows of a batch, and in float32 even under autocast. The losses work with sentence-transformers'
trainer, gradient cache, wrappers (``MatryoshkaLoss``) and samplers. ``BatchSamplers.NO_DUPLICATES``
keeps equal texts out of a batch, so they do not push each other.
"""

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.gradcache import CachedLossMixin, has_static_embedding_input
from sentence_transformers.base.losses.merged_forward import embed_columns, merge_feature_batches
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from isotrope.core.distributed import all_gather_views, all_reduce_max, all_reduce_sum, world_size
from isotrope.core.errors import InputError
from isotrope.core.hyper import bibtex
from isotrope.core.views import Views
from isotrope.data.text.batches import cut, fewer
from isotrope.encoders.device import pass_overhead
from isotrope.paradigm import registry
from isotrope.paradigm.loss_shares import shared_loss
from isotrope.paradigm.objective import Objective

_PROMPT = "prompt_length"  # one value for all rows, a number or a tensor


class ObjectiveLoss(nn.Module):
    """An objective of this package as a loss of sentence-transformers.

    Args:
        model: The model to train.
        objective: An objective, or the name of a registered objective. A hyperparameter that is an
            ``nn.Parameter`` (such as a temperature) is trained too; several processes average its
            gradient at each step. In a resumed training it starts again from the value given here:
            checkpoints of the sentence-transformers trainer store only the model's parameters.
        gather_across_devices: Whether to compute one loss over the rows of all processes. By
            default, each process compares only its own rows.
        groups: Whether rows of one group do not push each other. The column ``label`` or ``score``
            has the number of each row's group, as in ``grouped.jsonl`` of ``isotrope audit``.
        backend: Way to compute the loss, see ``isotrope.kernels.choose``.
        prefixes: Lengths of prefixes of the embeddings. The loss is the mean over these prefixes
            and the whole embeddings (Kusupati et al. 2022, "Matryoshka representation learning",
            section 3). ``MatryoshkaLoss`` adds the losses instead, and normalises each prefix.
        settings: Hyperparameters of an objective that is given by name.

    Attributes:
        observe: Function that is called with the ``Views`` of each batch, or None. With
            ``gather_across_devices``, these views have the rows of all processes.

    Raises:
        InputError: The objective or one of its settings is unknown, or a hyperparameter is a tensor
            that requires a gradient but is not an ``nn.Parameter``.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        objective: Objective | str,
        *,
        gather_across_devices: bool = False,
        groups: bool = False,
        backend: str = "auto",
        prefixes: Sequence[int] = (),
        **settings: Any,
    ) -> None:
        super().__init__()
        if isinstance(objective, str):
            learnt = [k for k, v in settings.items() if isinstance(v, Tensor) and v.requires_grad]
            if learnt:
                raise InputError(
                    "pass an objective object, such as "
                    f"InfoNCE({learnt[0]}=nn.Parameter(torch.tensor(0.05))): {learnt[0]} cannot "
                    "be learnt if the objective is given by name"
                )
            objective = registry.build(objective, settings)
        elif settings:
            raise InputError(
                f"set {', '.join(settings)} in {type(objective).__name__}(...): "
                "hyperparameters are accepted here only if the objective is given by name"
            )
        self.model = model
        self.objective = objective
        for key, value in objective.hyperparameters().items():
            if isinstance(value, nn.Parameter):  # the optimiser finds it here
                self.register_parameter(f"objective_{key}", value)
                if value.requires_grad:  # the trainer wraps only the model in DDP
                    hook = register_optimizer_step_pre_hook(partial(_average, weakref.ref(value)))
                    weakref.finalize(value, hook.remove)  # else any optimiser would call it
            elif isinstance(value, Tensor) and value.requires_grad:
                raise InputError(
                    f"give {key} as an nn.Parameter to train it, or without requires_grad: no "
                    "optimiser finds a tensor that requires a gradient but is not an nn.Parameter"
                )
        self.gather_across_devices = gather_across_devices
        self.groups = groups
        self.backend = backend
        self.prefixes = tuple(prefixes)
        self.observe: Callable[[Views], None] | None = None

    def forward(
        self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Tensor:
        """Return the loss of a batch."""
        columns = _columns(sentence_features)
        embeddings = embed_sorted(self.model, columns, gather=self.gather_across_devices)
        return self.compute_loss_from_embeddings(embeddings, labels)

    def compute_loss_from_embeddings(
        self, embeddings: list[Tensor], labels: Tensor | None = None
    ) -> Tensor:
        """Return the loss of given embeddings.

        Args:
            embeddings: One n x d tensor for each column: anchors, positives and any hard negatives.
            labels: Group of each row, n integers; used only with ``groups=True``.

        Returns:
            The loss. It is 0 if the batch has no hard negatives and too few rows for the objective.

        Raises:
            InputError: There is only one column, the objective does not take the hard negatives
                that are given, or ``groups=True`` and the labels are missing or not whole numbers.
        """
        if len(embeddings) < 2:
            raise InputError(f"pass two or more columns of texts; found {len(embeddings)}")
        anchors, positives, *hard = embeddings
        if hard and not self.objective.takes_negatives:
            raise InputError(
                f"keep only the columns of anchors and positives: {self.objective.name} takes no "
                f"hard negatives; found {len(embeddings)} columns"
            )
        groups = _groups(labels) if self.groups else None
        views = Views(anchors, positives, torch.cat(hard) if hard else None, groups=groups)
        whole = all_gather_views(views) if self.gather_across_devices else None
        seen = views if whole is None else whole.views
        if len(seen.anchors) < self.objective.least_rows and not hard:
            # the last batch of an epoch can be one row, which has no other row to compare; every
            # parameter gets a gradient of 0, because the other processes may wait for this one's
            learnt = sum(p.sum() for p in self.parameters(recurse=False))
            return 0.0 * (anchors.sum() + positives.sum() + learnt)
        if self.observe is not None:
            with torch.autocast(anchors.device.type, enabled=False):
                self.observe(seen)
        prefixes = [seen.map(itemgetter((..., slice(d)))) for d in self.prefixes]
        losses = [
            self.objective.loss(part, backend=self.backend)
            if whole is None
            else shared_loss(self.objective, whole._replace(views=part), backend=self.backend)
            for part in (seen, *prefixes)
        ]
        return torch.stack(losses).mean()

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings for the model card."""
        values, plain = self.objective.hyperparameters(), (int, float, str, type(None))
        values |= {k: float(v.detach()) for k, v in values.items() if isinstance(v, Tensor)}
        return {
            "objective": self.objective.name,
            **{k: v if isinstance(v, plain) else str(v) for k, v in values.items()},
            "gather_across_devices": self.gather_across_devices,
        }

    @property
    def citation(self) -> str:
        """BibTeX of the objective's source."""
        return f"\n{bibtex(self.objective.paper)}\n"


class CachedObjectiveLoss(CachedLossMixin, nn.Module):
    """An ``ObjectiveLoss`` that embeds a batch in pieces, so large batches fit in memory.

    The gradient cache of sentence-transformers (Gao et al., 2021) gives the loss of the whole
    batch. The memory that this loss needs grows linearly with the batch size.

    Args:
        model: See :class:`ObjectiveLoss`.
        objective: See :class:`ObjectiveLoss`.
        mini_batch_size: Number of rows of a column to embed at a time.
        mini_batch_num_tokens: Number of tokens to embed at a time, instead of a number of rows.
        show_progress_bar: Whether to show a progress bar that counts the pieces.
        settings: Arguments of :class:`ObjectiveLoss`: ``gather_across_devices``, ``groups``,
            ``backend``, ``prefixes``, and the objective's hyperparameters.

    Raises:
        InputError: As for :class:`ObjectiveLoss`. Also if embeddings are static or a size is < 1.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        objective: Objective | str,
        *,
        mini_batch_size: int = 32,
        mini_batch_num_tokens: int | None = None,
        show_progress_bar: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__()
        if has_static_embedding_input(model):
            raise InputError("use ObjectiveLoss: a batch of static embeddings cannot be split")
        if mini_batch_size < 1 or (mini_batch_num_tokens or 1) < 1:
            raise InputError("set mini_batch_size and mini_batch_num_tokens to 1 or more")
        self.model = model
        self.loss = ObjectiveLoss(model, objective, **settings)
        self.mini_batch_size = mini_batch_size
        self.mini_batch_num_tokens = mini_batch_num_tokens
        self.show_progress_bar = show_progress_bar
        self._of_learnt: Sequence[Tensor] = ()  # gradients of the learnt hyperparameters

    @property
    def objective(self) -> Objective:
        """The objective that is minimised."""
        return self.loss.objective

    @property
    def _learnt(self) -> list[nn.Parameter]:
        return [p for p in self.loss.parameters(recurse=False) if p.requires_grad]

    def forward(
        self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Tensor:
        """Return the loss of a batch, whose gradient is computed piece by piece.

        Raises:
            InputError: A hyperparameter is an ``nn.Parameter``, and ``MatryoshkaLoss`` wraps the
                loss. This parameter would not be trained.
        """
        if self._learnt and "calculate_loss" in vars(self):
            raise InputError(
                "use ObjectiveLoss, or give the hyperparameters as numbers: MatryoshkaLoss cannot "
                "train the hyperparameters of a CachedObjectiveLoss"
            )
        loss: Tensor = self.forward_cached(_columns(sentence_features), labels)
        if loss.requires_grad:  # adds 0, so that gradients get all factors that the loss will get
            for parameter, gradient in zip(self._learnt, self._of_learnt, strict=True):
                loss = loss + ((parameter - parameter.detach()) * gradient).sum()
        return loss

    def calculate_loss(
        self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
    ) -> Tensor:
        """Return the loss of embedded pieces; ``with_backward`` also computes gradients."""
        loss = self.loss.compute_loss_from_embeddings([torch.cat(rep) for rep in reps], labels)
        if not with_backward:
            return loss
        pieces, learnt = [piece for rep in reps for piece in rep], self._learnt
        earlier = [parameter.grad for parameter in learnt]
        for x in (*pieces, *learnt):  # the objective may hold a column constant
            x.grad = torch.zeros_like(x)
        torch.autograd.backward(loss, inputs=[*pieces, *learnt])
        self._of_learnt = [cast("Tensor", parameter.grad) for parameter in learnt]
        for parameter, gradient in zip(learnt, earlier, strict=True):
            parameter.grad = gradient
        return loss.detach()

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings for the model card."""
        return {
            **self.loss.get_config_dict(),
            "mini_batch_size": self.mini_batch_size,
            "mini_batch_num_tokens": self.mini_batch_num_tokens,
        }

    @property
    def citation(self) -> str:
        """BibTeX of the objective's source."""
        return self.loss.citation


def _columns(sentence_features: Iterable[Mapping[str, Tensor]]) -> list[dict[str, Tensor]]:
    """Return the columns to embed; a single column is returned twice."""
    # not copies, because AdaptiveLayerLoss reads what the model stored in these dicts
    columns = cast("list[dict[str, Tensor]]", list(sentence_features))
    return columns if len(columns) > 1 else [*columns, dict(columns[0])]


def _average(learnt: weakref.ref[nn.Parameter], optimizer: Optimizer, *_: object) -> None:
    """Before a step, which every process makes, replace the gradient by its mean over them."""
    parameter, trained = learnt(), (p for group in optimizer.param_groups for p in group["params"])
    if world_size() > 1 and parameter is not None and any(p is parameter for p in trained):
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        used = torch.full_like(gradient, float(parameter.grad is not None))
        gradient, users = all_reduce_sum(torch.stack([gradient, used]))
        parameter.grad = gradient / world_size() if users else None


def _groups(labels: Tensor | None) -> Tensor:
    if labels is None:
        raise InputError("add a column 'label' of integers, or set groups=False: no labels found")
    groups = labels.long().flatten()
    if labels.is_floating_point() and bool((groups != labels.flatten()).any()):
        raise InputError("give a column 'label' of integers, or set groups=False; found fractions")
    return groups


def embed_sorted(
    model: nn.Module, columns: Sequence[dict[str, Any]], *, gather: bool = False
) -> list[Tensor]:
    """Return a tensor of embeddings (n x d) for each column of a batch.

    The texts of all columns are joined, sorted by length and embedded in chunks. Columns that
    cannot be joined, such as columns without padding, are embedded as sentence-transformers does.
    If the columns can be joined, or are two, every process makes the same number of forward passes,
    as DDP, FSDP and ZeRO-3 require. With ``gather``, the processes agree on a number. Otherwise,
    some may be computing another loss, and there are two passes, as in sentence-transformers.
    """
    merged, places = _merged(columns)
    if merged is None:
        _fewest(0, model, gather=gather)  # the other processes wait for this number
        return embed_columns(model, columns)
    mask = merged["attention_mask"]
    # padding on the left is kept, so a text that is padded there ends at the width of its column
    ends = (mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(1)
    lengths = ends.cpu().numpy()[np.concatenate(places)]
    order = np.argsort(lengths, kind="stable")
    lengths = np.maximum(lengths[order], 1)  # a text without a token
    bounds = cut(lengths, pass_overhead(mask.device))
    if world_size() > 1:
        if fewest := _fewest(len(bounds) - 1, model, gather=gather):
            bounds = fewer(bounds, lengths, fewest)
        else:  # the two chunks with the least padding
            saved = np.arange(1, len(lengths)) * (lengths[-1] - lengths[:-1])
            bounds = [0, 1 + int(saved.argmax()), len(lengths)]
    rows = torch.from_numpy(np.concatenate(places)[order]).to(mask.device)
    # the longest first, because the allocator can reuse their memory for shorter texts
    parts = [
        model(_rows(merged, rows[start:end], int(lengths[end - 1])))["sentence_embedding"]
        for start, end in reversed(list(pairwise(bounds)))
    ]
    back = torch.from_numpy(np.argsort(order)).to(mask.device)
    return list(torch.cat(parts[::-1])[back].split([len(place) for place in places]))


def _fewest(own: int, model: nn.Module, *, gather: bool) -> int:
    """Return the least ``own`` of all processes; 0 if some process may not call this function."""
    all_here = gather and torch.is_grad_enabled()  # one process may evaluate alone
    return -all_reduce_max(-own, next(model.parameters()).device) if all_here else 0


def _merged(
    columns: Sequence[dict[str, Any]],
) -> tuple[dict[str, Any] | None, list[NDArray[np.int64]]]:
    """Return all columns joined (None if impossible), and the places of each column's rows."""
    masks = [column.get("attention_mask") for column in columns]
    if len(columns) < 2 or not all(isinstance(mask, Tensor) and mask.ndim == 2 for mask in masks):
        return None, []
    sizes = [len(mask) for mask in masks if mask is not None]
    most = max(sizes)
    if min(sizes) < most:  # repeated rows fill the shorter columns, and are not embedded
        columns = [_filled(column, n, most) for column, n in zip(columns, sizes, strict=True)]
    places = [np.arange(size, dtype=np.int64) + i * most for i, size in enumerate(sizes)]
    return merge_feature_batches(list(columns)), places


def _filled(column: Mapping[str, Any], size: int, most: int) -> dict[str, Any]:
    """Return a column whose last row is repeated until it has ``most`` rows."""
    return {
        key: value[torch.arange(most, device=value.device).clamp(max=size - 1)]
        if isinstance(value, Tensor) and value.ndim and len(value) == size and key != _PROMPT
        else value
        for key, value in column.items()
    }


def _rows(merged: Mapping[str, Any], rows: Tensor, length: int) -> dict[str, Any]:
    """Return the inputs of some rows, with their tokens cut to a length."""
    width = merged["attention_mask"].shape[1]
    inputs = dict(merged)
    for key, value in merged.items():
        if isinstance(value, Tensor) and key != _PROMPT:
            is_of_tokens = value.ndim > 1 and value.shape[1] == width
            inputs[key] = value[rows, :length] if is_of_tokens else value[rows]
    return inputs
