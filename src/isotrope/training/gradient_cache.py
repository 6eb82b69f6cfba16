"""Embeds a batch of any size with the activations of one chunk at a time.

The loss needs the embeddings of the whole batch at once, but not the activations that they came
from: the backward pass computes those of one chunk after the other again, from the random states
they had, so with the same dropout masks. The price is one more forward pass. Text is embedded so by
sentence-transformers (``CachedObjectiveLoss``: Gao, Zhang, Han and Callan 2021, "Scaling deep
contrastive learning batch size under memory limited setup", section 3).
"""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from isotrope.core.errors import InputError


def cached(module: nn.Module, chunks: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Return ``[module(*chunk) for chunk in chunks]``, keeping the activations of no chunk.

    The values, the random numbers drawn and the gradients are the same.

    Args:
        module: gives one tensor for a chunk; each row depends on nothing but its own input, the
            parameters and torch's global random state.
        chunks: the module's arguments, of any sizes.
    """
    refuse_batch_statistics(module)
    return [checkpoint(module, *chunk, use_reentrant=False) for chunk in chunks]


def refuse_batch_statistics(module: nn.Module) -> None:
    """Do nothing for a module whose rows do not depend on each other."""
    for name, part in module.named_modules():
        if isinstance(part, _BatchNorm) and (part.training or part.running_mean is None):
            raise InputError(
                f"gradient caching (`--micro-batch`) cannot be used with {name or 'this module'} "
                f"({type(part).__name__}): batch normalisation takes its statistics from the rows "
                "it sees, which would be those of one chunk, not of the batch; train without "
                "`--micro-batch`, put the layer into eval() for good, or use GroupNorm or LayerNorm"
            )
