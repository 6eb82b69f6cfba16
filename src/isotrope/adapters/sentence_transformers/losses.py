"""Wraps any objective as a loss for the sentence-transformers trainer.

The columns of the data are anchors, positives and any number of hard negatives, as for
``MultipleNegativesRankingLoss``. With a single column, the positive is the same text with another
dropout mask (SimCSE)::

    loss = ObjectiveLoss(model, "met")  # or an objective with its hyperparameters
    loss = ObjectiveLoss(model, InfoNCE(temperature=0.05).modify(dissipation="margin:0.3"))
    loss = CachedObjectiveLoss(model, "infonce", mini_batch_size=64)  # batches of any size

``ObjectiveLoss`` sorts the texts of all columns by length and embeds them in chunks, which needs
less padding than a forward pass per column (``columns.py``). Value and gradient are the same. The
objective is computed from all rows of a batch, and in float32 even under autocast. The losses work
with sentence-transformers' trainer, gradient cache, wrappers (``MatryoshkaLoss``) and samplers.
With ``BatchSamplers.NO_DUPLICATES``, equal texts are not pushed apart.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.gradcache import CachedLossMixin, has_static_embedding_input
from torch import Tensor, nn

from isotrope.adapters.sentence_transformers.columns import embed_sorted
from isotrope.core.distributed import all_gather_views
from isotrope.core.errors import InputError
from isotrope.core.hyper import bibtex
from isotrope.core.views import Views
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.separable import shared_loss


class ObjectiveLoss(nn.Module):
    """An objective of this package as a loss of sentence-transformers.

    Args:
        model: The model to train.
        objective: An objective, or the name of a registered objective. A hyperparameter that is an
            ``nn.Parameter`` (such as a temperature) is trained too. In a resumed training it starts
            again from the value given here, because checkpoints of the sentence-transformers
            trainer store only the model's parameters.
        gather_across_devices: Whether to compute one loss over the rows of all processes. By
            default, each process compares only its own rows.
        groups: Whether rows with the same integer in the column ``label`` (or ``score``), as in
            ``grouped.jsonl`` of ``isotrope audit``, are not pushed apart.
        backend: How the loss of a batch is computed, as for ``Objective.loss``.
        prefixes: Lengths of prefixes of the embeddings. The loss is the mean over these prefixes
            and the whole embeddings (Kusupati et al. 2022, "Matryoshka representation learning",
            section 3). ``MatryoshkaLoss`` adds the losses instead, and normalises each prefix.
        settings: Hyperparameters of an objective that is given by name.

    Attributes:
        observe: Function that is called with the views of each batch (of all processes, with
            ``gather_across_devices``), or None.

    Raises:
        InputError: The objective or one of its settings is unknown, or a hyperparameter requires a
        gradient but is not an ``nn.Parameter``, so no optimiser would train it.
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
            elif isinstance(value, Tensor) and value.requires_grad:
                raise InputError(
                    f"use {key}=nn.Parameter(torch.tensor(...)), or no requires_grad: {key} "
                    "requires a gradient but is not an nn.Parameter, so it would not be trained"
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
        return self.compute_loss_from_embeddings(embed_sorted(self.model, columns), labels)

    def compute_loss_from_embeddings(
        self, embeddings: list[Tensor], labels: Tensor | None = None
    ) -> Tensor:
        """Return the loss of given embeddings.

        Args:
            embeddings: One n x d tensor for each column: anchors, positives and any hard negatives.
            labels: Group of each row, n integers; used only with ``groups=True``.

        Returns:
            The loss. It is 0 for a single row (the end of an epoch) if the objective compares rows.

        Raises:
            InputError: There is only one column; or there are hard negatives, and the objective
                takes none; or groups are used without labels.
        """
        if len(embeddings) < 2:
            raise InputError(f"pass anchors and positives; found {len(embeddings)} column")
        anchors, positives, *hard = embeddings
        if hard and not self.objective.takes_negatives:
            raise InputError(
                f"keep only the columns of anchors and positives: {self.objective.name} takes no "
                f"hard negatives; found {len(embeddings)} columns"
            )
        groups = _groups(labels) if self.groups else None
        views = Views(anchors, positives, torch.cat(hard) if hard else None, groups=groups)
        with torch.autocast(anchors.device.type, enabled=False):
            whole = all_gather_views(views) if self.gather_across_devices else None
            seen = views if whole is None else whole.views
            if len(seen.anchors) < self.objective.least_rows and not hard:
                # the last batch of an epoch can be one row, which has no other row to compare
                return 0.0 * (anchors.sum() + positives.sum())
            if self.observe is not None:
                self.observe(seen)
            losses = [
                self.objective.loss(part, backend=self.backend)
                if whole is None
                else shared_loss(self.objective, whole._replace(views=part), backend=self.backend)
                for part in (seen, *(_first(seen, d) for d in self.prefixes))
            ]
            return torch.stack(losses).mean()

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings for the model card."""
        hyperparameters = {
            k: float(v.detach()) if isinstance(v, Tensor) else v
            for k, v in self.objective.hyperparameters().items()
        }.items()
        return {
            "objective": self.objective.name,
            **{
                k: v if isinstance(v, (int, float, str, type(None))) else str(v)
                for k, v in hyperparameters
            },
            "gather_across_devices": self.gather_across_devices,
        }

    @property
    def citation(self) -> str:
        """BibTeX of the objective's source."""
        return f"\n{bibtex(self.objective.paper)}\n"


class CachedObjectiveLoss(CachedLossMixin, nn.Module):
    """An ``ObjectiveLoss`` that embeds a batch in pieces, so large batches fit in memory.

    It uses sentence-transformers' gradient cache (Gao et al., 2021). The loss is that of the whole
    batch, and its memory grows linearly with the batch.

    Args:
        model: See :class:`ObjectiveLoss`.
        objective: See :class:`ObjectiveLoss`.
        mini_batch_size: Number of rows of a column to embed at a time.
        mini_batch_num_tokens: Number of tokens to embed at a time, instead of a number of rows.
        show_progress_bar: Whether to show a progress bar that counts the pieces.
        settings: Arguments of :class:`ObjectiveLoss`: ``gather_across_devices``, ``groups``,
            ``backend``, ``prefixes``, and hyperparameters.

    Raises:
        InputError: See :class:`ObjectiveLoss`; or the model's batches cannot be split.
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
            raise InputError("use ObjectiveLoss: batches of static embeddings need not be split")
        if mini_batch_size < 1 or (mini_batch_num_tokens or 1) < 1:
            raise InputError("mini_batch_size and mini_batch_num_tokens must be at least 1")
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
        """The hyperparameters that are learnt."""
        return [p for p in self.loss.parameters(recurse=False) if p.requires_grad]

    def forward(
        self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Tensor:
        """Return the loss of a batch, whose gradient is computed piece by piece.

        Raises:
            InputError: A hyperparameter is learnt within a MatryoshkaLoss, whose gradient reaches
                only the embeddings.
        """
        if self._learnt and "calculate_loss" in vars(self):
            raise InputError(
                "use ObjectiveLoss, or a number instead of a parameter: MatryoshkaLoss does not "
                "train the hyperparameters of a cached loss"
            )
        loss: Tensor = self.forward_cached(_columns(sentence_features), labels)
        if loss.requires_grad:  # adds 0, so that gradients get all factors that the loss will get
            for parameter, gradient in zip(self._learnt, self._of_learnt, strict=True):
                loss = loss + ((parameter - parameter.detach()) * gradient).sum()
        return loss

    def calculate_loss(
        self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
    ) -> Tensor:
        """Return the loss of the embedded pieces; ``with_backward`` runs the backward pass too."""
        loss = self.loss.compute_loss_from_embeddings([torch.cat(rep) for rep in reps], labels)
        if not with_backward:
            return loss
        pieces = [piece for rep in reps for piece in rep]
        if self._learnt:
            self._of_learnt = torch.autograd.grad(loss, self._learnt, retain_graph=True)
        torch.autograd.backward(loss, inputs=pieces)
        for piece in pieces:
            if piece.grad is None:  # the objective may hold a column constant
                piece.grad = torch.zeros_like(piece)
        return loss.detach()

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings for the model card."""
        sizes = {
            "mini_batch_size": self.mini_batch_size,
            "mini_batch_num_tokens": self.mini_batch_num_tokens,
        }
        return {**self.loss.get_config_dict(), **sizes}

    @property
    def citation(self) -> str:
        """BibTeX of the objective's source."""
        return self.loss.citation


def _columns(sentence_features: Iterable[Mapping[str, Tensor]]) -> list[dict[str, Tensor]]:
    """Return the columns to embed; a single column is returned twice."""
    # not copies, because AdaptiveLayerLoss reads what the model stored in these dicts
    columns = cast("list[dict[str, Tensor]]", list(sentence_features))
    return columns if len(columns) > 1 else [*columns, dict(columns[0])]


def _first(views: Views, d: int) -> Views:
    return views.map(lambda x: x[:, :d])


def _groups(labels: Tensor | None) -> Tensor:
    """Return the groups of the rows."""
    if labels is None:
        raise InputError("add a column 'label' of integers to the data, or set groups=False")
    groups = labels.long().flatten()
    if labels.is_floating_point() and bool((groups != labels.flatten()).any()):
        raise InputError("groups=True needs a column 'label' of integers; found fractions")
    return groups
