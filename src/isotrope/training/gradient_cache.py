"""Embeds a large batch in chunks; only the activations of one chunk are in memory at a time.

The loss needs the embeddings of the whole batch at once, but not the activations. The backward
pass computes the activations again, chunk by chunk, from the same random states and therefore with
the same dropout masks. This takes one more forward pass. The method is from Gao, Zhang, Han and
Callan 2021, "Scaling deep contrastive learning batch size under memory limited setup", section 3.
"""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from isotrope.core.errors import InputError


def cached(module: nn.Module, chunks: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Return ``[module(*chunk) for chunk in chunks]`` without keeping activations.

    Values, gradients and random numbers equal those of this expression.

    Args:
        module: Module that returns one tensor for a chunk. Each row must depend only on its own
            input, the parameters and torch's global random state.
        chunks: Arguments of the module for each chunk. Chunks may have any sizes.
    """
    refuse_batch_statistics(module)
    return [checkpoint(module, *chunk, use_reentrant=False) for chunk in chunks]


def refuse_batch_statistics(module: nn.Module) -> None:
    """Refuse a module with batch normalisation, in which rows depend on each other."""
    for name, part in module.named_modules():
        if isinstance(part, _BatchNorm) and (part.training or part.running_mean is None):
            raise InputError(
                "train without `--micro-batch` (gradient caching): batch normalisation would use "
                f"the statistics of each chunk alone. Or replace {name or 'this module'} "
                f"({type(part).__name__}) by GroupNorm or LayerNorm, or keep it in eval mode"
            )
