"""Checks a plain loss: its gradient, and that chunks, processes and the order of rows keep it.

The checks accept any loss: a function of anchors and positives, or a module. The loss is called on
the embeddings of a small encoder. Each check compares the gradients of the weights of encoder and
loss with the gradients of one plain call. Subclasses of ``Objective`` are checked by the stricter
:func:`isotrope.paradigm.objective_check.prove`.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from isotrope.core.autograd import seeded
from isotrope.core.distributed import all_reduce_sum, process_group, rows_of
from isotrope.core.errors import InputError
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.objective_check import Check, prove, raised
from isotrope.paradigm.proof import DEGENERATE, degenerate
from isotrope.training.launch import launch
from isotrope.training.loss_gradient import gradient_checks
from isotrope.training.loss_subject import (
    DIMENSIONS,
    MISSING,
    ROWS,
    SIZES,
    Loss,
    LossAndGradients,
    Subject,
    distance,
    parameters_of,
    required_of,
)

SAME = 1e-5
"""Largest relative difference that counts as rounding. Bugs cause larger ones."""
_MARGINS, _WIDER = ("margin", "triplet_margin"), 0.3
_LABELS = ("label", "labels", "target", "targets", "y")
_ROUNDINGS = 8  # number of random roundings of the inputs in the check of bfloat16
_TIMES = 4.0  # largest allowed error in bfloat16, divided by the largest effect of a rounding


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
        parameters_of(loss)
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
    needed = required_of(loss)
    called = f"{key}({', '.join(map(str, parameters_of(loss).values()))})"
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
    subject = Subject(loss, dimensions)
    try:
        whole, again, reseeded = (subject.run(seed=seed) for seed in (0, 0, 1))
    except Exception as error:  # whatever somebody's loss raises is the finding
        means = _SHAPE.format(ROWS, dimensions) if isinstance(error, RuntimeError) else ""
        yield raised("one call", error, means)  # shapes that do not fit are a RuntimeError
        return
    if not all(bool(x.isfinite().all()) for x in (whole.value, *whole.gradients)):
        shown = f"a loss of {float(whole.value):.4g}"
        yield Check("one call", 1, shown, passed=False, means=_NOT_FINITE)
        return
    change = distance(reseeded, whole)
    # an infinite distance means NaN, not random numbers
    remembers = SAME < distance(again, whole) < math.inf
    is_repeatable = not (remembers or SAME < change < math.inf)
    if is_repeatable:
        order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(1))
        yield _compared("rows permuted", lambda: subject.run(order), whole, _PERMUTED)
        yield from _in_chunks(subject, whole)
    else:
        values = float(whole.value), float(again.value)
        means = _REMEMBERS.format(*values) if remembers else _DRAWS
        yield Check("called again", 1, f"{change:.1e}", passed=None, means=means)
    if not remembers:
        yield from _by_margin(subject)
        try:
            yield from gradient_checks(subject)
        except Exception as error:  # whatever somebody's loss raises is the finding
            yield replace(raised("gradient on fewer rows", error, _FEWER), passed=None)
        yield _compared("gradient-cached", lambda: subject.run(caching=True), whole, _CACHED)
    if is_repeatable:
        if source is not None:
            yield _on_two(subject, source, whole)
        yield _rounded(subject)
    yield from _collapsed(subject)


_SHAPE = "if the loss needs N dimensions, use --dimensions N: this batch has {} rows of {}"
_NOT_FINITE = "look for divisions by 0 and logarithms or roots of 0: a result is not finite"
_DRAWS = (
    "not checked with permuted rows, in chunks, on two processes and in bfloat16: the loss draws "
    "random numbers, which would differ there"
)
_REMEMBERS = (
    "checked only for finite values: of two calls on the same batch with the same seed, the first "
    "gives {:.4g} and the second {:.4g}, or another gradient"
)
_PERMUTED = "look for masks and a fixed seed, unless row order gives labels: it changes the loss"
_FEWER = f"not all checked: with --dimensions 48, the loss gets up to {ROWS} rows"
_CACHED = "do not train this loss with gradient caching: it would change the gradient"
_CHUNKS = "use all rows in each chunk: the size of the chunks changes the result"
_GATHERED = "compare with the loss of one process: the mean of two processes differs"
_TURNED = (
    "use a constant margin: for positives that are {}similar, a larger margin raises the loss; for "
    "those that are {}similar, it lowers the loss"
)
_OWN = "not a fault: the loss gathers no rows, so each process compares only the rows that it has"
_ALONE = "not a fault if no batch has {} (drop_last=True): the loss refuses it"
_REFUSE = "raise a ValueError for {}, or return a finite loss"
_BOUND = "keep it finite, for example by a lower bound on norms"
_BF16 = "compute in float32: arithmetic in bfloat16 adds more error than rounding the inputs does"


def _in_chunks(subject: Subject, whole: LossAndGradients) -> Iterator[Check]:
    """Compare several chunk sizes, if the loss computes its batch in chunks."""
    for name in [name for name in SIZES if subject.setting(name) is not MISSING]:
        for size in (ROWS, 8, 7):
            divided = subject.varied(name, size)
            yield _compared(f"in chunks: {name}={size}", divided.run, whole, _CHUNKS)


def _by_margin(subject: Subject) -> Iterator[Check]:
    """Compare a larger margin with the loss's own, for similar and for opposite positives."""
    encoder, inputs = subject.inputs()
    anchors, *rest = (encoder(x) for x in inputs)
    for name in _MARGINS:
        margin = subject.setting(name)
        if not isinstance(margin, (int, float)):
            continue
        label, views = f"wider: {name}", ([anchors, *rest], [-anchors, *rest])
        try:
            narrow, wide = (subject.varied(name, m).value for m in (margin, margin + _WIDER))
            changes = [wide(x) - narrow(x) for x in views]
        except Exception as error:  # whatever somebody's loss raises is the finding
            yield raised(label, error)
            continue
        shown = " and ".join(f"{change:+.1e}" for change in changes)
        if not any(changes):
            continue  # the check of settings reports it
        is_turned = min(changes) < -SAME and max(changes) > SAME
        raised_for, lowered_for = ("", "dis") if changes[0] > 0 else ("dis", "")
        means = _TURNED.format(raised_for, lowered_for) if is_turned else ""
        yield Check(label, 1, shown, passed=not is_turned, means=means)


def _on_two(subject: Subject, source: tuple[Path, str], whole: LossAndGradients) -> Check:
    """Compare with the mean gradient of two processes, which DistributedDataParallel computes."""
    name = "on two processes"
    try:
        _, answer = launch(2, _rank, (*source, subject.dimensions))
    except (RuntimeError, InputError) as error:
        return raised(name, error)
    if answer is None:
        return Check(name, 1, "no answer", passed=False, means="a process has ended early")
    both = LossAndGradients(*answer)
    one, two = map(subject.run, (slice(ROWS // 2), slice(ROWS // 2, ROWS)))
    gradients = [(a + b) / 2 for a, b in zip(one.gradients, two.gradients, strict=True)]
    separate = LossAndGradients((one.value + two.value) / 2, gradients)
    if distance(both, whole) > SAME and distance(both, separate) <= SAME:
        return Check(name, 1, f"{distance(both, whole):.1e}", passed=None, means=_OWN)
    return _compared(name, lambda: both, whole, _GATHERED)


def _rank(source: tuple[Path, str, int]) -> tuple[int, tuple[Tensor, list[Tensor]]]:
    """In one of two processes, compute the loss of its rows; return the means over both."""
    file, key, dimensions = source
    torch.set_num_threads(1)
    subject = Subject(_built(file, key, vars(_run(file))[key]), dimensions)
    with process_group("cpu"):
        result = subject.run(rows_of(ROWS))
        mean = [all_reduce_sum(x) / 2 for x in (result.value, *result.gradients)]
    return 0, (mean[0], mean[1:])


def _rounded(subject: Subject) -> Check:
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
        effects.append(distance(subject.by_embeddings(off), true))
    try:
        low = subject.by_embeddings([x.bfloat16() for x in exact])
    except Exception as refused:  # a loss may refuse the dtype
        return replace(raised(name, refused, "the loss refuses bfloat16"), passed=None)
    error, most = distance(low, true), _TIMES * max(*effects, unit)
    means = "" if error <= most else f"{_BF16} (rounding alone: {max(effects):.1e})"
    return Check(name, 1, f"{error:.1e}", passed=not means, means=means)


def _collapsed(subject: Subject) -> Iterator[Check]:
    """Check that value and gradients are finite for degenerate batches, such as equal rows."""
    cases = {case: degenerate(case, torch.float32, subject.dimensions, ROWS) for case in DEGENERATE}
    cases["one row"] = degenerate("identical views", torch.float32, subject.dimensions, 1)
    for case, (anchors, positives) in cases.items():
        name = f"at the edge: {case}"
        is_few = len(anchors) < ROWS
        views = [anchors, positives, positives.detach().clone().flip(0).requires_grad_()]
        try:
            value = subject.fresh(torch.float32)(*views[: subject.views])
            gradients: tuple[Tensor, ...] = ()
            if value.requires_grad:
                gradients = torch.autograd.grad(value, views, materialize_grads=True)
        except Exception as error:  # a training would stop there
            stop = raised(name, error, _ALONE.format(case) if is_few else "")
            yield replace(stop, passed=None) if is_few else stop
            continue
        is_finite = bool(value.isfinite())
        faults = [] if is_finite else [f"the loss is {float(value.detach())}"]
        for kind, x in zip(("anchors", "positives", "negatives"), gradients, strict=False):
            if rows := (~x.isfinite()).any(dim=1).nonzero().flatten().tolist():
                where = f"in rows {rows[:6]}{' and more' * (len(rows) > 6)}"
                faults.append(f"the gradient of the {kind} is not finite {where}")
        outcome, means = "finite", ""
        if faults:
            outcome = f"{'gradient' if is_finite else 'value'} not finite"
            means = f"{_REFUSE.format(case) if is_few else _BOUND}: {', '.join(faults)}"
        yield Check(name, 1, outcome, passed=not faults, means=means)


def _compared(
    name: str, call: Callable[[], LossAndGradients], whole: LossAndGradients, means: str
) -> Check:
    """Compare the result of a call with the result ``whole`` of the plain call."""
    try:
        result = call()
    except Exception as error:  # whatever somebody's loss raises is the finding
        return raised(name, error)
    difference = distance(result, whole)
    measured = "" if difference <= SAME else f"{means} ({_difference(result, whole)})"
    return Check(name, 1, f"{difference:.1e}", passed=not measured, means=measured)


def _difference(result: LossAndGradients, reference: LossAndGradients) -> str:
    """Return how a result differs from that of the plain call."""
    one, other = (torch.cat([g.flatten() for g in x.gradients]) for x in (result, reference))
    factor = (one * other).sum() / other.square().sum()
    off = float((one - factor * other).abs().max() / other.abs().max())
    gradient = f"the gradient is {float(factor):.4g} times that of the plain call"
    if not off <= SAME:  # also if it is NaN
        off = float((one - other).abs().max() / other.abs().max())
        gradient = f"gradients differ by up to {off:.2g} of the largest"
    return f"the loss is {float(result.value):.6g}, plain {float(reference.value):.6g}; {gradient}"
