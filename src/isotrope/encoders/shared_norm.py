"""Batch normalisation over the rows of all processes, on any device.

:class:`SharedBatchNorm` computes the same as ``torch.nn.SyncBatchNorm``, and also takes tensors on
the CPU. The number of rows may differ between processes.
"""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from isotrope.core.autograd import Context, InputGradients, apply
from isotrope.core.distributed import all_reduce_sum, world_size
from isotrope.core.errors import InputError
from isotrope.core.rounding import at_least_float


def share_statistics(module: nn.Module) -> nn.Module:
    """Return ``module`` with every batch norm replaced by a :class:`SharedBatchNorm`.

    Parameters and buffers stay the same tensors under the same names. ``module`` is changed in
    place, unless ``module`` itself is a batch norm. Call this function in all processes or in none.
    All processes must run the same layers in the same order.

    Raises:
        InputError: A batch norm computes more than torch's (timm's ``BatchNormAct2d``).
    """
    if isinstance(module, _BatchNorm) and not isinstance(module, SharedBatchNorm):
        if type(module).forward not in (_BatchNorm.forward, nn.SyncBatchNorm.forward):
            raise InputError(
                "train in one process, or choose an encoder with torch's batch norms: several "
                f"processes share no statistics of {type(module).__name__}, which computes more"
            )
        return SharedBatchNorm(module)
    for name, child in module.named_children():
        shared = share_statistics(child)
        if shared is not child:
            setattr(module, name, shared)
    return module


class SharedBatchNorm(_BatchNorm):
    """A batch norm over the rows of all processes, for inputs with two or more dimensions.

    With one process, or in evaluation mode, the result is that of the replaced batch norm.
    """

    def __init__(self, norm: _BatchNorm) -> None:
        nn.Module.__init__(self)
        vars(self).update(vars(norm))  # the same parameters, buffers, hooks and mode
        self._replaced: str = norm._get_name()

    def _get_name(self) -> str:
        """Return the name for ``repr``: that of the replaced class, which computes the same."""
        return self._replaced

    def _check_input_dim(self, x: Tensor) -> None:
        if x.ndim < 2:
            raise ValueError(f"give inputs n x d or n x d x ...; found the shape {tuple(x.shape)}")

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` (n x d or n x d x ...) with each of the d features shifted and scaled."""
        single = world_size() == 1
        if single or not (self.training or self.running_mean is None):
            return super().forward(x)
        self._check_input_dim(x)
        output, mean, variance, count = apply(
            _Norm, tuple[Tensor, ...], x, self.weight, self.bias, self.eps
        )
        if self.training and self.running_mean is not None and self.running_var is not None:
            self._remember(mean, variance * (count / (count - 1)))
        return output

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        """Update the running statistics as torch does."""
        assert self.num_batches_tracked is not None
        assert self.running_mean is not None
        assert self.running_var is not None
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)


class _Norm(torch.autograd.Function):
    """Normalise with mean and variance over all processes, in the forward and backward pass."""

    @staticmethod
    def forward(
        ctx: Context, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        dims = [0, *range(2, x.ndim)]
        shape = [1, -1, *[1] * (x.ndim - 2)]
        wide = at_least_float(x)
        rows = wide.new_tensor([x.numel() / x.shape[1]])
        sums = all_reduce_sum(torch.cat([wide.sum(dims), rows]))
        count = sums[-1]
        # the test of ``count`` comes second, because it waits for a GPU
        if x.numel() < 2 * x.shape[1] and count < 2:
            raise ValueError(
                f"give 2 or more values of each feature; found the shape {tuple(x.shape)}"
            )
        mean = sums[:-1] / count
        # squares are summed after the mean is known: E[x^2] - mean^2 would lose digits
        variance = all_reduce_sum((wide - mean.view(shape)).square_().sum(dims)) / count
        scale = (variance + eps).rsqrt()
        ctx.save_for_backward(x, weight, mean, scale, count)
        ctx.has_bias = bias is not None
        ctx.mark_non_differentiable(mean, variance, count)
        slope = scale if weight is None else scale * weight
        output = (wide - mean.view(shape)).mul_(slope.view(shape))
        if bias is not None:
            output += bias.view(shape)
        return output.to(x.dtype), mean, variance, count

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Context, gradient: Tensor, *_: Tensor) -> InputGradients:
        x, weight, mean, scale, count = ctx.saved_tensors
        dims = [0, *range(2, x.ndim)]
        shape = [1, -1, *[1] * (x.ndim - 2)]
        wide = gradient.to(mean.dtype)
        unit = (x.to(mean.dtype) - mean.view(shape)).mul_(scale.view(shape))
        # sums over the rows of this process, because DDP averages gradients over the processes
        d_bias, d_weight = wide.sum(dims), (wide * unit).sum(dims)
        both = all_reduce_sum(torch.cat([d_bias, d_weight])) / count
        about_mean, about_scale = (part.view(shape) for part in both.chunk(2))
        slope = scale if weight is None else scale * weight
        d_x = (wide - about_mean - unit.mul_(about_scale)).mul_(slope.view(shape))
        return (
            d_x.to(x.dtype),
            None if weight is None else d_weight.to(weight.dtype),
            d_bias if ctx.has_bias else None,
            None,
        )
