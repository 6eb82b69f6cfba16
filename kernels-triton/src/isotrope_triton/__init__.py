"""The backend ``triton`` of isotrope: row statistics on a GPU, in tiles that stay in fast memory.

``tiles`` holds the two kernels, ``passes`` launches them, ``operands`` pairs blocks of rows with
blocks of columns, and ``parts`` says which vectors each anchor is compared with. ``fused`` computes
a loss and its gradients in two passes, ``statistics`` single statistics. The functions below are
those that ``isotrope.kernels.choose`` calls.

bfloat16 embeddings go through the GPU's matrix units as they are, summed in float32; float32 only
does where torch may round it to TensorFloat-32. On a CPU the kernels run through Triton's
interpreter, for tests.
"""

import torch
from torch import Tensor

from isotrope.core.errors import InputError
from isotrope_triton.fused import value_and_gradients
from isotrope_triton.statistics import TritonPairs, surrogate_pairs
from isotrope_triton.tiles import INTERPRETED

__all__ = ["pairs", "refusal", "surrogate_pairs", "value_and_gradients"]

_AMPERE = (8, 0)

pairs = TritonPairs


def refusal(x: Tensor) -> InputError | None:
    """Return the error to raise for embeddings that the kernels cannot take."""
    if not x.is_cuda or torch.version.hip is not None:
        if INTERPRETED and x.device.type == "cpu":
            return None
        return InputError(
            f"the triton backend computes on an NVIDIA GPU; found embeddings on {x.device.type}: "
            "move them there, use backend='rowblock', or, to try the kernels on a CPU, set "
            "TRITON_INTERPRET=1 before Python starts"
        )
    if (capability := torch.cuda.get_device_capability(x.device)) < _AMPERE:
        return InputError(
            "the triton backend needs compute capability 8.0 (Ampere) or more; found "
            f"{capability[0]}.{capability[1]}: use backend='rowblock'"
        )
    return None
