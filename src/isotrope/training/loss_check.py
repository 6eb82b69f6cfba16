"""Checks that chunks, caching, two processes and the order of rows do not change a gradient.

The checks accept any loss: a function of anchors and positives, or a module. The loss is called on
the embeddings of a small encoder. Each check compares the gradients of the weights of encoder and
loss with the gradients of one plain call. Subclasses of ``Objective`` are checked by the stricter
:func:`isotrope.paradigm.objective_check.prove`.
"""

import copy
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from isotrope.core.autograd import seeded
from isotrope.core.distributed import all_reduce_sum, process_group, rows_of
from isotrope.core.errors import InputError
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.objective_check import Check, prove, raised
from isotrope.paradigm.proof import DEGENERATE, degenerate
from isotrope.training.gradient_cache import cached
from isotrope.training.launch import launch

SAME = 1e-5
"""Largest relative difference that counts as rounding. Bugs cause larger ones."""
DIMENSIONS = 16
"""Default number of dimensions of the embeddings that a loss receives."""
_ROWS, _INPUTS = 24, 12
_SIZES = ("chunk_size", "mini_batch_size", "micro_batch_size", "block_size")
"""Names of parameters or attributes that set the size of the chunks of a loss."""
_MARGINS, _WIDER = ("margin", "triplet_margin"), 0.3
_LABELS = ("label", "labels", "target", "targets", "y")
_MISSING = object()
_ROUNDINGS = 8  # number of random roundings of the inputs in the check of bfloat16
_TIMES = 4.0  # largest allowed error in bfloat16, divided by the largest effect of a rounding

Loss = Callable[..., Tensor]


class _LossAndGradients(NamedTuple):
    """The value of a loss, and the gradients of the weights of encoder and loss."""

    value: Tensor
    gradients: list[Tensor]


def checks_in(
    file: Path, name: str = "", *, dimensions: int = DIMENSIONS
) -> Iterator[tuple[str, Check]]:
    """Check the losses of a Python file; yield the name of the loss with each check.

    Args:
        file: File that defines losses: objectives, or functions or modules that take (anchors,
            positives) or (anchors, positives, negatives).
        name: Name of the loss to check. By default, all objectives are checked, and all functions
            and modules with "loss" in their names.
        dimensions: Number d of dimensions of the embeddings that the losses receive.

    Raises:
        InputError: The file has no loss, or a loss takes other arguments.
    """
    module = _run(file)
    losses = _losses(vars(module), module.__name__, name)
    if not losses:
        raise InputError(
            "give FILE:NAME, where NAME is a function of (anchors, positives) or a module: "
            f"{file} has {f'no {name}' if name else 'no objective, and no name that contains loss'}"
        )
    # build all first: a loss that cannot be built is reported before the slow checks of others
    built = {
        key: None if _is_objective(value) else _built(file, key, value, name)
        for key, value in losses.items()
    }
    for key, loss in built.items():
        checks = prove(losses[key])
        if loss is not None:
            checks = checks_of(loss, (file, key), dimensions=dimensions)
        yield from ((key, check) for check in checks)


def _losses(namespace: dict[str, Any], module: str, name: str) -> dict[str, Any]:
    """Return all losses that a file defines, or only the loss with the given name."""
    if name:
        return {name: namespace[name]} if callable(namespace.get(name)) else {}
    losses: dict[str, Any] = {}
    for key, value in namespace.items():
        if key.startswith("_") or not callable(value):
            continue
        is_own = getattr(value, "__module__", module) == module
        is_own |= isinstance(value, (nn.Module, Objective))  # perhaps of an imported class
        if is_own and (_is_objective(value) or "loss" in key.lower()):
            losses[key] = value
    return losses


def _is_objective(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Objective)


def _run(file: Path) -> ModuleType:
    """Run a file, with the same random numbers in every process."""
    with seeded(0):
        return registry.run_file(file)


def _built(file: Path, key: str, value: Any, name: str = "") -> Loss:  # noqa: ANN401 - any object
    """Return a function or an instance."""
    try:
        with seeded(0):  # so that weights and queues are equal in all processes
            loss: Loss = value() if isinstance(value, type) else value
        _parameters(loss)
    except (TypeError, ValueError) as error:
        remedy = f"add an instance, such as loss = {key}(...), and check {file}:loss"
        raise InputError(f"{remedy}: {key} cannot be built without arguments ({error})") from error
    try:
        _check_signature(loss, key)
    except InputError as error:
        others = "" if name else f"; {file}:NAME checks only the loss NAME"
        raise InputError(f"{file}: {error}{others}") from None
    return loss


def _check_signature(loss: Loss, key: str) -> None:
    """Refuse a loss if its signature does not show what its parameters take."""
    needed = _needed(loss)
    called = f"{key}({', '.join(map(str, _parameters(loss).values()))})"
    if not 2 <= len(needed) <= 3:
        raise InputError(
            f"{key} must take anchors and positives, or anchors, positives and negatives; found "
            f"{called}"
        )
    for place, parameter in enumerate(needed):
        if parameter.kind is parameter.KEYWORD_ONLY:
            raise InputError(
                f"give the parameter {parameter.name} of {called} a default, or set it with "
                "functools.partial: the check passes no keywords"
            )
        if parameter.name in _LABELS:
            raise InputError(
                f"write a function of anchors and positives that makes {parameter.name} and calls "
                f"{key}, and check this function: no check passes {parameter.name}"
            )
        if place == 2 and "neg" not in parameter.name.lower():
            raise InputError(
                f"call the parameter {parameter.name} of {called} negatives if it takes embeddings "
                "of negatives, or give it a default: its name does not say what it takes"
            )


def _needed(loss: Loss) -> list[inspect.Parameter]:
    """Return the parameters without a default."""
    every = _parameters(loss).values()
    return [p for p in every if p.default is p.empty and p.kind is not p.VAR_KEYWORD]


def _parameters(loss: Loss) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(loss.forward if isinstance(loss, nn.Module) else loss).parameters


def check_loss(loss: Loss, *, dimensions: int = DIMENSIONS) -> list[Check]:
    """Check a loss with :func:`checks_of`, and return a list of the results."""
    return list(checks_of(loss, dimensions=dimensions))


def checks_of(
    loss: Loss, source: tuple[Path, str] | None = None, *, dimensions: int = DIMENSIONS
) -> Iterator[Check]:
    """Check a loss; the checks take a few seconds.

    Args:
        loss: Function of anchors and positives (n x d, not normalised) that returns a scalar. A
            third parameter without a default receives negatives if its name contains "neg". A
            module is copied for each call.
        source: Tuple (file, name) from which two processes load the loss. None skips the check on
            two processes.
        dimensions: Number d of dimensions of the embeddings that the loss receives.

    Yields: A ``Check`` for each comparison; ``passed`` is None if the comparison was impossible.

    Raises:
        InputError: The signature does not show what the loss takes.
    """
    _check_signature(loss, getattr(loss, "__name__", type(loss).__name__))
    subject = _Subject(loss, dimensions)
    try:
        whole, again, reseeded = (subject.run(seed=seed) for seed in (0, 0, 1))
    except Exception as error:  # whatever somebody's loss raises is the finding
        means = _WIDTH.format(dimensions) if isinstance(error, RuntimeError) else ""
        yield raised("one call", error, means)  # shapes that do not fit are a RuntimeError
        return
    if not all(bool(x.isfinite().all()) for x in (whole.value, *whole.gradients)):
        shown = f"a loss of {float(whole.value):.4g}"
        yield Check("one call", 1, shown, passed=False, means=_NOT_FINITE)
        return
    change = _distance(reseeded, whole)
    # an infinite distance means NaN, not random numbers
    remembers = SAME < _distance(again, whole) < math.inf
    is_repeatable = not (remembers or SAME < change < math.inf)
    if is_repeatable:
        order = torch.randperm(_ROWS, generator=torch.Generator().manual_seed(1))
        yield _compared("rows permuted", lambda: subject.run(order), whole, _PERMUTED)
        yield from _in_chunks(subject, whole)
    else:
        values = float(whole.value), float(again.value)
        means = _REMEMBERS.format(*values) if remembers else _DRAWS
        yield Check("called again", 1, f"{change:.1e}", passed=None, means=means)
    if not remembers:
        yield from _by_margin(subject)
        yield _compared("gradient-cached", lambda: subject.run(caching=True), whole, _CACHED)
    if is_repeatable:
        if source is not None:
            yield _on_two(subject, source, whole)
        yield _rounded(subject)
    yield from _collapsed(subject)


_WIDTH = "if the loss needs embeddings of N dimensions, use --dimensions N; this check had {}"
_NOT_FINITE = (
    "look for a division by 0, or a logarithm or root of 0: loss or gradient is not finite"
)
_DRAWS = (
    "not checked with permuted rows, in chunks, on two processes and in bfloat16: the loss draws "
    "random numbers, which would differ there"
)
_REMEMBERS = (
    "checked only for finite values: of two calls on the same batch with the same seed, the first "
    "gives {:.4g} and the second {:.4g}, or another gradient"
)
_PERMUTED = "look for masks, labels or numbers of a fixed seed: the order of rows changes the loss"
_CACHED = "do not train this loss with gradient caching: it would change the gradient"
_CHUNKS = "use all rows in each chunk: the size of the chunks changes the result"
_GATHERED = "compare with the loss of one process: the mean of two processes differs"
_TURNED = (
    "use a constant margin: for positives that are {}similar, a larger margin raises the loss; for "
    "those that are {}similar, it lowers the loss"
)
_UNUSED = (
    "check that the loss uses the margin: a larger margin does not change the loss, neither for "
    "similar nor for opposite positives"
)
_OWN = "not a fault: the loss gathers no rows, so each process compares only the rows that it has"
_ALONE = "not a fault if no batch has one row (drop_last=True): the loss refuses it"
_BF16 = "compute in float32: arithmetic in bfloat16 adds more error than rounding the inputs does"


class _Subject:
    """A loss in its initial state, and a small encoder that makes its embeddings."""

    def __init__(self, loss: Loss, dimensions: int = DIMENSIONS) -> None:
        self.loss, self.dimensions = loss, dimensions
        self.options: dict[str, Any] = {}
        self.parameters = _parameters(loss)
        self.views = 3 if len(_needed(loss)) > 2 else 2
        self.needs_float32 = False  # it refuses float64 if it keeps float32 tensors
        try:
            self.run()
        except Exception as error:  # a later call reports the error
            self.needs_float32 = isinstance(error, RuntimeError) and "double" in str(error).lower()

    def fresh(self, dtype: torch.dtype = torch.float64, seed: int = 0) -> Loss:
        """Return the loss in its initial state, and seed the random numbers."""
        torch.manual_seed(seed)
        if not isinstance(self.loss, nn.Module):
            return self.loss
        fresh = copy.deepcopy(self.loss)
        return fresh if self.needs_float32 else fresh.to(dtype)

    def called(self, loss: Loss, views: list[Tensor]) -> Tensor:
        """Call the loss in its own dtype."""
        given = views[: self.views]
        if not self.needs_float32:
            return loss(*given, **self.options)
        return loss(*(x.float() for x in given), **self.options).double()

    def inputs(self) -> tuple[nn.Module, list[Tensor]]:
        """Return an encoder, and the inputs of anchors, positives and negatives."""
        numbers = torch.Generator().manual_seed(0)
        layer = nn.Linear(_INPUTS, self.dimensions)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=numbers))
        x, noise, other = (torch.randn(_ROWS, _INPUTS, generator=numbers) for _ in range(3))
        encoder = nn.Sequential(layer, nn.Tanh()).double()
        return encoder, [view.double() for view in (x, x + 0.5 * noise, other)]

    def run(
        self, rows: slice | Tensor = slice(None), *, caching: bool = False, seed: int = 0
    ) -> _LossAndGradients:
        """Call the loss on some rows and backward(), unless the loss has called it itself."""
        loss, (encoder, inputs) = self.fresh(seed=seed), self.inputs()

        def embedded(x: Tensor) -> Tensor:
            parts = [(part,) for part in x.split(7)]
            return torch.cat(cached(encoder, parts)) if caching else encoder(x)

        value = self.called(loss, [embedded(x[rows]) for x in inputs])
        if not isinstance(value, Tensor) or value.numel() != 1:
            shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise InputError(f"the loss returns {shape}, not a scalar")
        if value.requires_grad:
            value.backward()
        if all(p.grad is None for p in encoder.parameters()):
            raise InputError("remove detach(): no gradient reaches the embeddings")
        own = loss.parameters() if isinstance(loss, nn.Module) else ()
        parameters = [*encoder.parameters(), *own]
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        return _LossAndGradients(value.detach(), gradients)

    def value(self, views: list[Tensor]) -> float:
        """Return the value of the loss for given embeddings."""
        return float(self.called(self.fresh(), views).detach())

    def by_embeddings(self, views: list[Tensor]) -> _LossAndGradients:
        """Return the value of the loss and its gradients with respect to the embeddings."""
        leaves = [x.detach().clone().requires_grad_() for x in views]
        value = self.called(self.fresh(views[0].dtype), leaves)
        if value.requires_grad:  # otherwise the loss has called backward itself
            value.backward()
        gradients = [torch.zeros_like(x) if x.grad is None else x.grad for x in leaves]
        return _LossAndGradients(value.detach().double(), [g.double() for g in gradients])

    def setting(self, name: str) -> object:
        """Return a parameter's default, or else an attribute of the loss, or else ``_MISSING``."""
        if name in self.parameters:
            return self.parameters[name].default
        return getattr(self.loss, name, _MISSING) if isinstance(self.loss, nn.Module) else _MISSING

    def varied(self, name: str, value: float) -> "_Subject":
        """Return the loss with another value of a setting."""
        other = copy.copy(self)
        if name in self.parameters:
            other.options = {name: value}
        else:
            other.loss = copy.deepcopy(self.loss)
            setattr(other.loss, name, value)
        return other


def _in_chunks(subject: _Subject, whole: _LossAndGradients) -> Iterator[Check]:
    """Compare several chunk sizes, if the loss computes its batch in chunks."""
    for name in [name for name in _SIZES if subject.setting(name) is not _MISSING]:
        for size in (_ROWS, 8, 7):
            divided = subject.varied(name, size)
            yield _compared(f"in chunks: {name}={size}", divided.run, whole, _CHUNKS)


def _by_margin(subject: _Subject) -> Iterator[Check]:
    """Compare a larger margin with the loss's own, for similar and for opposite positives."""
    encoder, inputs = subject.inputs()
    anchors, *rest = (encoder(x) for x in inputs)
    for name in _MARGINS:
        margin = subject.setting(name)
        if not isinstance(margin, (int, float)):
            continue
        label, changes = f"wider: {name}", list[float]()
        try:
            narrow, wide = (subject.varied(name, m) for m in (margin, margin + _WIDER))
            for views in ([anchors, *rest], [-anchors, *rest]):
                before = narrow.value(views)
                changes.append(wide.value(views) - before)
        except Exception as error:  # whatever somebody's loss raises is the finding
            yield raised(label, error)
            continue
        shown = " and ".join(f"{change:+.1e}" for change in changes)
        if not any(changes):
            yield Check(label, 1, shown, passed=None, means=_UNUSED)
            continue
        is_turned = min(changes) < -SAME and max(changes) > SAME
        raised_for, lowered_for = ("", "dis") if changes[0] > 0 else ("dis", "")
        means = _TURNED.format(raised_for, lowered_for) if is_turned else ""
        yield Check(label, 1, shown, passed=not is_turned, means=means)


def _on_two(subject: _Subject, source: tuple[Path, str], whole: _LossAndGradients) -> Check:
    """Compare with the mean gradient of two processes, which DistributedDataParallel computes."""
    name = "on two processes"
    try:
        _, answer = launch(2, _rank, (*source, subject.dimensions))
    except (RuntimeError, InputError) as error:
        return raised(name, error)
    if answer is None:
        return Check(name, 1, "no answer", passed=False, means="a process has ended early")
    both = _LossAndGradients(*answer)
    one, two = map(subject.run, (slice(_ROWS // 2), slice(_ROWS // 2, _ROWS)))
    gradients = [(a + b) / 2 for a, b in zip(one.gradients, two.gradients, strict=True)]
    separate = _LossAndGradients((one.value + two.value) / 2, gradients)
    if _distance(both, whole) > SAME and _distance(both, separate) <= SAME:
        return Check(name, 1, f"{_distance(both, whole):.1e}", passed=None, means=_OWN)
    return _compared(name, lambda: both, whole, _GATHERED)


def _rank(source: tuple[Path, str, int]) -> tuple[int, tuple[Tensor, list[Tensor]]]:
    """In one of two processes, compute the loss of its rows; return the means over both."""
    file, key, dimensions = source
    torch.set_num_threads(1)
    subject = _Subject(_built(file, key, vars(_run(file))[key]), dimensions)
    with process_group("cpu"):
        result = subject.run(rows_of(_ROWS))
        mean = [all_reduce_sum(x) / 2 for x in (result.value, *result.gradients)]
    return 0, (mean[0], mean[1:])


def _rounded(subject: _Subject) -> Check:
    """Compare bfloat16 with float64 on the same rounded embeddings.

    The allowed error is a multiple of the effect of rounding alone: the change of the result in
    float64 if half a unit in the last place of bfloat16 is added to or subtracted from each input.
    """
    name = "in bfloat16"
    if subject.needs_float32:
        return Check(name, 0, "the loss computes in float32", passed=None)
    numbers = torch.Generator().manual_seed(2)
    encoder, inputs = subject.inputs()
    exact = [encoder(x).detach().bfloat16().double() for x in inputs]
    true = subject.by_embeddings(exact)
    unit = torch.finfo(torch.bfloat16).eps / 2
    effects = []
    for _ in range(_ROUNDINGS):
        signs = [torch.randint(0, 2, x.shape, generator=numbers).to(x) * 2 - 1 for x in exact]
        off = [x * (1 + unit * sign) for x, sign in zip(exact, signs, strict=True)]
        effects.append(_distance(subject.by_embeddings(off), true))
    try:
        low = subject.by_embeddings([x.bfloat16() for x in exact])
    except Exception as error:  # a loss may refuse the dtype
        return replace(raised(name, error, "the loss refuses bfloat16"), passed=None)
    distance, most = _distance(low, true), _TIMES * max(*effects, unit)
    means = "" if distance <= most else f"{_BF16} (rounding alone: {max(effects):.1e})"
    return Check(name, 1, f"{distance:.1e}", passed=not means, means=means)


def _collapsed(subject: _Subject) -> Iterator[Check]:
    """Check that value and gradients are finite for degenerate batches, such as equal rows."""
    cases = {case: degenerate(case, torch.float32, subject.dimensions) for case in DEGENERATE}
    one, other = (x.detach()[:1].clone().requires_grad_() for x in cases["identical views"])
    cases["one row"] = one, other
    for case, (anchors, positives) in cases.items():
        name = f"at the edge: {case}"
        views = [anchors, positives, positives.detach().clone().flip(0).requires_grad_()]
        try:
            value = subject.fresh(torch.float32)(*views[: subject.views])
            gradients: tuple[Tensor, ...] = ()
            if value.requires_grad:
                gradients = torch.autograd.grad(value, views, materialize_grads=True)
        except Exception as error:  # a training would stop there
            if case == "one row" and isinstance(error, ValueError):
                yield replace(raised(name, error, _ALONE), passed=None)
            else:
                yield raised(name, error)
            continue
        is_finite = bool(value.isfinite())
        faults = [] if is_finite else [f"the loss is {float(value.detach())}"]
        for kind, x in zip(("anchors", "positives", "negatives"), gradients, strict=False):
            if rows := (~x.isfinite()).any(dim=1).nonzero().flatten().tolist():
                faults.append(f"the gradient of the {kind} is not finite in rows {rows}")
        outcome, means = "finite", ""
        if faults:
            outcome = f"{'gradient' if is_finite else 'value'} not finite"
            means = f"keep it finite, for example by a lower bound on norms: {', '.join(faults)}"
        yield Check(name, 1, outcome, passed=not faults, means=means)


def _compared(
    name: str, call: Callable[[], _LossAndGradients], whole: _LossAndGradients, means: str
) -> Check:
    """Compare the result of a call with the result ``whole`` of the plain call."""
    try:
        result = call()
    except Exception as error:  # whatever somebody's loss raises is the finding
        return raised(name, error)
    difference = _distance(result, whole)
    measured = "" if difference <= SAME else f"{means} ({_difference(result, whole)})"
    return Check(name, 1, f"{difference:.1e}", passed=not measured, means=measured)


def _difference(result: _LossAndGradients, reference: _LossAndGradients) -> str:
    """Return how a result differs from that of the plain call."""
    one, other = (torch.cat([g.flatten() for g in x.gradients]) for x in (result, reference))
    factor = (one * other).sum() / other.square().sum()
    off = float((one - factor * other).abs().max() / other.abs().max())
    gradient = f"the gradient is {float(factor):.4g} times that of the plain call"
    if not off <= SAME:  # also if it is NaN
        off = float((one - other).abs().max() / other.abs().max())
        gradient = f"gradients differ by up to {off:.2g} of the largest"
    return f"the loss is {float(result.value):.6g}, plain {float(reference.value):.6g}; {gradient}"


def _distance(result: _LossAndGradients, reference: _LossAndGradients) -> float:
    """Return the largest relative difference of values and of gradients; infinite for NaN."""
    size = max([float(g.abs().max()) for g in reference.gradients], default=0.0) or 1.0
    errors = [float((result.value - reference.value).abs()) / (1 + float(reference.value.abs()))]
    for a, b in zip(result.gradients, reference.gradients, strict=True):
        errors.append(float((a - b).abs().max()) / size)
    return math.inf if any(map(math.isnan, errors)) else max(errors)
