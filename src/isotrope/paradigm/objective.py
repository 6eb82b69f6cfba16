"""The Objective base class: a formula over two views and the three components of its gradient."""

import contextlib
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, dataclass_transform

import torch
from torch import Tensor

from isotrope.core.autograd import marked, unrounded
from isotrope.core.errors import InputError, NoPerAnchor, NoTerms, WrongCoupling
from isotrope.core.hyper import Paper, Preset, check, take_preset
from isotrope.core.terms import Terms
from isotrope.core.views import Views, standard
from isotrope.kernels import small_batch
from isotrope.kernels.choose import SHARED_BYTES, choose
from isotrope.kernels.choose import pairs as choose_pairs
from isotrope.kernels.coupling import Coupling
from isotrope.kernels.fused import fused
from isotrope.kernels.pairs import Pairs
from isotrope.kernels.statistics import Unfused, check_values, record

if TYPE_CHECKING:
    # An import cycle: modify(), symmetric() and parts are methods of objectives and return
    # objectives. tests/test_circles.py allows this cycle and no other.
    from isotrope.paradigm.compose import Paradigm
    from isotrope.paradigm.forms import Parts

Space = Literal["sphere", "batchnorm", "raw", "logits"]

# possible invariances of a loss; paradigm.proof.change_by defines them
INVARIANCES = ("rotation", "permutation", "view swap", "scale")

_HALF = (torch.float16, torch.bfloat16)


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Objective:
    """Base class of every objective. Subclasses become frozen, keyword-only dataclasses.

    A subclass defines its hyperparameters as fields, ``formula`` and ``components``. The class
    statement registers the class under its name in lower case. Objectives have no state.

    An objective is called with embeddings of any length (n x d, any float dtype), normalises them
    and returns the scalar to minimise. ``preset="bert-base"`` in the constructor takes the values
    that a paper tuned for BERT-base; explicit arguments override these values.

    ``coupling`` declares how the losses of the anchors depend on each other, and so decides how
    value and gradients are computed. The declaration must be true of ``formula``, ``attraction``
    and ``repulsion``. For anchor i, let p_i be the similarity with its positive, and t_i the
    statistics over its negatives that the formula uses. Let S_i be the sum over negatives of
    e^{s_ij/tau} (for ``logsumexp``) or of log(1 + e^{s_ij/tau}) (for ``softplus``). f, a and c
    stand for any functions. Declare

    - ``"none"`` if the formula returns n values, and value i is a function of p_i and t_i, or uses
      only anchor i, the other view and additional negatives (InfoNCE, triplets). Each of several
      processes then computes the loss of its own anchors only;
    - ``"positives"`` if the loss is sum_i f_i(t_i, all p) across the views (DCLW);
    - ``"linear"`` if the loss is a(all p) + sum_i c_i(all p) S_i (MIO);
    - ``"total"`` if the loss is f(all p, sum_i S_i), with ``logsumexp`` across views (uniformity);
    - ``"batch"`` in all other cases. ``"batch"`` is the default and always right, but needs a
      second pass over the similarities (8 n^2 d operations instead of 6 n^2 d).

    Formulas may use the number of negatives (``count``) wherever they may use p. A wrong
    declaration fails ``isotrope check``; if the gradient would be wrong, ``WrongCoupling`` is
    raised.

    A subclass overrides ``coupling``, ``pairwise`` and other declarations by an attribute
    (``pairwise = False``) or, if the value depends on settings, by a property.

    Attributes:
        presets: A dict from encoder names to the settings that a paper tuned for the encoder.
        batch_level: Whether the formula returns one value for the batch, not one for each anchor.
        least_rows: Smallest batch size without additional negatives.
        holds: Inputs that the gradient treats as constant: ``nothing``, the ``negatives``, the
            ``mixtures`` of negatives, or ``everything`` except the anchor.
    """

    name: ClassVar[str]
    paper: ClassVar[Paper]
    registered: ClassVar[dict[str, type["Objective"]]] = {}
    presets: ClassVar[Mapping[str, Preset]] = {}
    batch_level: ClassVar[bool] = False
    least_rows: ClassVar[int] = 2
    if TYPE_CHECKING:  # __init_subclass__ makes dataclasses, which no type checker sees
        __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    holds: ClassVar[Literal["nothing", "negatives", "mixtures", "everything"]] = "nothing"

    @property
    def coupling(self) -> Coupling:
        """How the losses of the anchors depend on each other; ``batch`` is always right."""
        return "batch"

    @property
    def two_directions(self) -> bool:
        """Whether the loss is the mean of two directions: each view serves once as anchors."""
        return False

    @property
    def pairwise(self) -> bool:
        """Whether the objective compares rows with each other.

        If True, rows of one group are not negatives of each other. If False (VICReg, BYOL), groups
        have no effect.
        """
        return True

    @property
    def takes_negatives(self) -> bool:
        """Whether the objective takes additional negatives (hard negatives, a queue)."""
        return True

    @property
    def invariances(self) -> frozenset[str]:
        """The transformations of the embeddings that do not change the loss, such as a rotation."""
        alike = {"view swap"} if self.two_directions else set()
        return frozenset({"rotation", "permutation", "scale"} | alike)

    def __init_subclass__(
        cls, *, paper: Paper | None = None, name: str | None = None, register: bool = True
    ) -> None:
        """Make the subclass a frozen dataclass and register it, unless ``register`` is False.

        Raises:
            TypeError: the paper or a default is missing, or another class has the name.
        """
        dataclass(frozen=True, kw_only=True)(cls)
        if not register:
            return
        if paper is None:
            raise TypeError(
                f"name the paper of class {cls.__name__}: "
                f"class {cls.__name__}(Objective, paper=Paper(...))"
            )
        # without a default, both are MISSING
        if missing := [f.name for f in dataclasses.fields(cls) if f.default is f.default_factory]:
            what = f"give {', '.join(missing)} of {cls.__name__} a default"
            raise TypeError(f"{what}: commands build an objective by name, from its defaults")
        cls.paper = paper
        cls.name = (name or cls.__name__).lower()
        take_preset(cls, cls.presets)
        other = Objective.registered.get(cls.name)
        if other is not None and other.__module__ != cls.__module__:
            raise TypeError(
                f"rename {cls.__name__}: {other.__module__} also registers {cls.name!r}"
            )
        Objective.registered[cls.name] = cls

    def __post_init__(self) -> None:
        """Check the hyperparameters.

        Raises:
            ValueError: a value outside the bounds that its field declares, or a value that requires
                a gradient and gets none.
        """
        check(self, constant=self.holds == "everything")

    # the two halves that the file of an objective defines

    def formula(self, pairs: Pairs) -> Tensor:
        """Return the loss with the first view as anchors: n values, or one if ``batch_level``.

        The default is ``attraction`` plus ``repulsion``, for a subclass that defines both.
        """
        if type(self).attraction is Objective.attraction:
            raise TypeError(f"define formula in {type(self).__name__}")
        return self.attraction(pairs) + self.repulsion(pairs)

    def components(self, pairs: Pairs) -> Terms:
        """Return dissipation, weight and ratio of the loss with the first view as anchors.

        Raises:
            NoTerms: ``space`` is not ``sphere``.
        """
        raise NoTerms(type(self).__name__, self.space)

    def swapped_components(self, pairs: Pairs) -> Terms:
        """Return the components of the loss with the positives as anchors.

        They give the gradient on the vectors with which anchors are compared. The default is right
        if ``holds`` names all constant inputs.
        """
        terms = self.components(pairs)
        if self.holds == "nothing":
            return terms
        return replace(terms, weight=torch.zeros_like(terms.weight))  # positives receive a gradient

    def attraction(self, pairs: Pairs) -> Tensor:
        """Return the pulling part; by default -GD_i pull_i s_ii', with GD and pull constant.

        If the paper splits its loss, a subclass overrides ``attraction`` and ``repulsion``. Their
        sum must be ``formula``.
        """
        terms = _constant_terms(self, pairs)
        positives = pairs.views.own.detach() if self.holds == "everything" else pairs.views.own
        return -terms.dissipation * (pairs.views.anchors * terms.pulls * positives).sum(dim=1)

    def repulsion(self, pairs: Pairs) -> Tensor:
        """Return the pushing part; by default GD_i sum_j W_ij s_ij, with GD and W constant."""
        terms = _constant_terms(self, pairs)
        columns = pairs.columns(terms.against)
        columns = columns if self.holds == "nothing" else columns.detach()
        pushed = ((terms.weight @ columns) * pairs.views.anchors).sum(dim=1)
        return terms.dissipation * pushed

    @property
    def space(self) -> Space:
        """Input of the formula. ``sphere``: each row is normalised; ``batchnorm``: each column is
        standardised over the batch; ``raw``, ``logits``: unchanged. Components need ``sphere``.
        """
        return "sphere"

    @property
    def has_terms(self) -> bool:
        """Whether GD, W and R exist: ``components`` is defined, and ``space`` is ``sphere``."""
        return self.space == "sphere" and type(self).components is not Objective.components

    @property
    def reduction(self) -> Literal["mean", "sum"]:
        """How the anchors' losses are combined: ``mean``, or ``sum`` if each contains 1/n."""
        return "mean"

    # public calls

    def __call__(
        self,
        anchors: Tensor,
        positives: Tensor,
        negatives: Tensor | None = None,
        *,
        groups: Tensor | None = None,
        backend: str = "auto",
    ) -> Tensor:
        """Return the scalar loss.

        Args:
            anchors: n x d embeddings of the first view, of any norm.
            positives: n x d embeddings of the second view, of any norm.
            negatives: q x d additional negatives shared by all anchors, or None.
            groups: n integers; rows of one group are not negatives of each other.
            backend: How to compute row statistics, see ``isotrope.kernels.choose``.

        Raises:
            InputError: embeddings that are not tensors, or more positives than anchors.
            ValueError: shapes that do not match, or negatives for an objective that takes none.
        """
        return self.loss(_one_positive_each(anchors, positives, negatives, groups), backend=backend)

    def loss(self, views: Views, *, backend: str = "auto") -> Tensor:
        """Return the scalar loss of ``views``, embeddings of any norm."""
        if torch.is_autocast_enabled(views.anchors.device.type):
            with _without_autocast(views):
                value = self.loss(views, backend=backend)
            return unrounded(value, views.anchors, views.positives, views.negatives)
        return marked(self._loss(views, backend), (self, views))

    def _loss(self, views: Views, backend: str) -> Tensor:
        prepared = self.prepare(views)
        if backend == "auto" and not self.pairwise and self.holds == "nothing":
            backend = "eager"  # no row is compared with another, so no matrix is formed
        elif backend == "auto" and self.space == "sphere" and small_batch.takes(prepared):
            with contextlib.suppress(Unfused):
                return self._small_batch(_at_least_float32(prepared))
        name, _ = choose(prepared, backend)
        if self.space == "sphere" and name != "eager":
            with contextlib.suppress(Unfused):
                return self._fused(prepared, name)
        return self._reduce(self._directions(prepared, backend))

    def _reduce(self, directions: list[Pairs]) -> Tensor:
        """The scalar of one direction or of two."""
        values = [self.formula(pairs) for pairs in directions]
        total = values[0] if len(values) == 1 else values[0] + values[1]
        if total.ndim > 1 or not total.is_floating_point():
            check_values(total, len(total) if total.ndim else 1)
        share = 1 / len(values)
        if total.ndim == 0:
            return total if share == 1 else total * share
        if self.reduction == "mean":
            share /= total.shape[0]
        # mean() and a division would be five operations in the backward pass
        return total.dot(total.new_full(total.shape, share))

    def _small_batch(self, prepared: Views) -> Tensor:
        """The loss, with the statistics of all directions in one node of autograd."""
        a = prepared.anchors
        questions = record(self.formula, a.dtype, self._learnt_temperature, device=a.device)
        return self._reduce(small_batch.directions(prepared, questions, both=self.two_directions))

    def _fused(self, prepared: Views, backend: str) -> Tensor:
        """The loss with its gradients already computed."""
        try:
            return fused(
                _at_least_float32(prepared),
                self.formula,
                both_directions=self.two_directions,
                mean=self.reduction == "mean",
                coupling=self.coupling,
                learnt=self._learnt_temperature(),
                backend=backend,
            )
        except WrongCoupling as error:
            unit = prepared.unit()
            rows = [x for x in (unit.anchors, unit.positives, unit.negatives) if x is not None]
            if not all(bool(x.isfinite().all()) for x in rows):
                raise Unfused("NaN shows nothing about the formula") from None
            raise WrongCoupling(
                "declare coupling='batch', which is right for every formula: "
                f"{self.name} declares coupling={self.coupling!r}, but {error}"
            ) from None

    def per_anchor(
        self,
        anchors: Tensor,
        positives: Tensor,
        negatives: Tensor | None = None,
        *,
        groups: Tensor | None = None,
    ) -> Tensor:
        """Return the losses of the n anchors.

        Raises:
            NoPerAnchor: the objective is a statistic of the whole batch.
        """
        if self.batch_level:
            raise NoPerAnchor(
                f"call {type(self).__name__} in place of per_anchor: the loss is one number for "
                "the whole batch"
            )
        views = _one_positive_each(anchors, positives, negatives, groups)
        with _without_autocast(views):
            directions = self._directions(self.prepare(views), "auto")
            values = [self.formula(pairs) for pairs in directions]
            mean = torch.stack(values).mean(dim=0)
        return unrounded(mean, views.anchors, views.positives, views.negatives)

    def terms(
        self,
        anchors: Tensor,
        positives: Tensor,
        negatives: Tensor | None = None,
        *,
        groups: Tensor | None = None,
    ) -> Terms:
        """Return the gradient components of the anchors, detached.

        ``scale * assemble(terms, views)`` is the gradient of the objective with respect to the
        normalised anchors, with the other view held constant.
        """
        views = _one_positive_each(anchors, positives, negatives, groups)
        with torch.no_grad(), _without_autocast(views):
            return self.components(self.compare(views))

    def modify(
        self, *, dissipation: object = None, weight: object = None, ratio: object = None
    ) -> "Paradigm":
        """Return this objective with a new dissipation, weight or ratio.

        Each argument is a part (``Margin(margin=0.3)``), its short form (``"margin:0.3"``), or, for
        the ratio, a number. The result is a surrogate loss: only the gradient has meaning, not the
        value. The components are the whole gradient of an anchor; there is no residual.
        """
        from isotrope.paradigm.compose import modify  # compose defines an Objective itself

        return modify(self, dissipation=dissipation, weight=weight, ratio=ratio)

    def symmetric(self) -> "Objective":
        """Return the mean of both directions: each view serves once as anchors.

        An objective that treats both views alike is returned unchanged.
        """
        from isotrope.paradigm.forms import Symmetric  # forms defines Objectives itself

        return self if "view swap" in self.invariances else Symmetric(objective=self)

    @property
    def parts(self) -> "Parts":
        """The attracting and the repelling part of the loss, as two objectives.

        Their gradients add up to that of the objective. Draganov et al. (2024, eq. 1) and Manna
        et al. (2023, supplement, table 2) split losses in this way.
        """
        from isotrope.paradigm.forms import Part, Parts  # forms defines Objectives itself

        return Parts(
            Part(objective=self, side="attraction"), Part(objective=self, side="repulsion")
        )

    def hyperparameters(self) -> dict[str, Any]:
        """Return a dict of the names and values of the hyperparameters."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def prepare(self, views: Views) -> Views:
        """Check ``views``, which are not yet normalised, and return them.

        Raises:
            ValueError: there are additional negatives that the objective does not take, or fewer
                rows than ``least_rows``.
        """
        if views.negatives is not None and not self.takes_negatives:
            raise ValueError(
                "leave out the additional negatives, or choose an objective that takes them, such "
                f"as InfoNCE: {type(self).__name__} takes no additional negatives"
            )
        if views.anchors.shape[0] < self.least_rows and views.negatives is None:
            raise ValueError(
                f"pass at least {self.least_rows} rows: {type(self).__name__} compares rows with "
                f"each other; found {len(views.anchors)}"
            )
        return views

    def compare(self, views: Views, backend: str = "auto") -> Pairs:
        """Return the pairs of anchors and negatives in ``views``, normalised as ``space`` requires.

        Raises:
            ValueError: See :meth:`prepare`.
        """
        return choose_pairs(self._in_space(self.prepare(views)), backend)

    def _in_space(self, prepared: Views) -> Views:
        """The prepared views in the objective's space."""
        prepared = _at_least_float32(prepared)
        if self.space == "sphere":
            return prepared.unit()
        return prepared.map(standard) if self.space == "batchnorm" else prepared

    def _learnt_temperature(self) -> Tensor | None:
        """The temperature, if it requires a gradient."""
        values = self.hyperparameters().values()
        return next((v for v in values if isinstance(v, Tensor) and v.requires_grad), None)

    def _directions(self, prepared: Views, backend: str) -> list[Pairs]:
        # a loss is faster in blocks long before the matrix exceeds the memory
        pairs = choose_pairs(self._in_space(prepared), backend, held=SHARED_BYTES)
        return [pairs, pairs.swapped()] if self.two_directions else [pairs]


def _one_positive_each(
    anchors: Tensor, positives: Tensor, negatives: Tensor | None, groups: Tensor | None
) -> Views:
    """The views of a batch, each anchor with one positive."""
    views = Views(anchors, positives, negatives, groups=groups)
    if anchors.shape[0] != positives.shape[0]:
        raise InputError(
            "pass one positive for each anchor (other rows as negatives=), or give gathered "
            "positives to objective.loss(Views(anchors, positives, offset=...)): found "
            f"{len(anchors)} anchors and {len(positives)} positives"
        )
    return views


def _without_autocast(views: Views) -> contextlib.AbstractContextManager[object]:
    """Disable autocast, which would round similarities before the temperature divides them."""
    device = views.anchors.device.type
    if not torch.is_autocast_enabled(device):
        return contextlib.nullcontext()  # entering autocast costs as much as a small product
    return torch.autocast(device, enabled=False)


def _at_least_float32(views: Views) -> Views:
    """Half precision as float32."""
    return views.map(Tensor.float) if views.anchors.dtype in _HALF else views


def _constant_terms(objective: Objective, pairs: Pairs) -> Terms:
    with torch.no_grad():
        return objective.components(pairs).detached()
