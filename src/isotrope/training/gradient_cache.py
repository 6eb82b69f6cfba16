"""Gradient caching: embeds a batch of any size in the memory of one chunk.

The loss needs the embeddings of the whole batch at once, but not the graphs that they came from.
So the chunks are embedded one after the other and their graphs dropped; the loss gives every
embedding its gradient; and the backward pass builds the graphs again one by one, from the random
states they had (so with the same dropout masks), and sends those gradients through. The price is
one more forward pass. Source: Gao, Zhang, Han and Callan 2021, "Scaling deep contrastive learning
batch size under memory limited setup", section 3.

All of it is one node of autograd's graph, from the parameters to the embeddings: whatever scales,
accumulates, clips or averages gradients finds that of each parameter once and whole, as if all
graphs had been kept. (``torch.utils.checkpoint`` of every chunk gives the same gradients, but keeps
the nodes of all graphs, or with ``use_reentrant`` a gradient for every chunk.)
"""

from collections.abc import Sequence
from weakref import ref

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from isotrope.core.autograd import Context, apply
from isotrope.core.errors import InputError

__all__ = ["cached", "refuse_batch_statistics"]

# relative distance of embeddings that are still the same: rounding in bfloat16 stays below it,
# another dropout mask does not
_SAME = 1e-2


def cached(module: nn.Module, chunks: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Return ``[module(*chunk) for chunk in chunks]``, keeping no graph but that of one chunk.

    The values, the random numbers drawn and the gradients of the parameters are the same.

    Args:
        module: gives one tensor for a chunk; each row depends on nothing but its own input, the
            parameters and torch's global random state.
        chunks: the module's arguments, of any sizes; they are moved to its device when needed.

    Raises:
        InputError: a module with batch statistics; a parameter with a hook of
            ``Tensor.register_hook``; a tensor that requires a gradient and is none of the module's
            parameters; a reentrant checkpoint; in the backward pass, a module that gives other
            embeddings than before.
        ValueError: inputs that require a gradient: there is none for them.
    """
    refuse_batch_statistics(module)
    if any(value.requires_grad for chunk in chunks for value in chunk):
        raise ValueError(
            "gradient caching gives gradients of the module's parameters only, and found inputs "
            "that require one; detach them, or make what computes them a part of the module"
        )
    learnt = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if hooked := [name for name, p in learnt.items() if p._backward_hooks]:
        raise InputError(
            f"gradient caching (`--micro-batch`) excludes a hook of Tensor.register_hook "
            f"({hooked[0]} has one): it would see the gradient of every chunk, and then their sum; "
            "use Tensor.register_post_accumulate_grad_hook, which sees the sum alone"
        )
    parameters = list(learnt.values())
    return list(apply(_Cached, tuple[Tensor, ...], module, chunks, *parameters))


def refuse_batch_statistics(module: nn.Module) -> None:
    """Do nothing for a module whose rows do not depend on each other.

    Raises:
        InputError: a batch normalisation that takes its statistics from the batch.
    """
    for name, part in module.named_modules():
        if isinstance(part, _BatchNorm) and (part.training or part.running_mean is None):
            raise InputError(
                f"gradient caching (`--micro-batch`) cannot be used with {name or 'this module'} "
                f"({type(part).__name__}): batch normalisation takes its statistics from the rows "
                "it sees, which would be those of one chunk, not of the batch; train without "
                "`--micro-batch`, put the layer into eval() for good, or use GroupNorm or LayerNorm"
            )


class _Cached(torch.autograd.Function):
    """Embeddings without graphs forwards, the graphs one by one backwards."""

    @staticmethod
    def forward(
        ctx: Context,
        module: nn.Module,
        chunks: Sequence[Sequence[Tensor]],
        *parameters: nn.Parameter,
    ) -> tuple[Tensor, ...]:
        """Embed every chunk, remembering the random state before it."""
        ctx.set_materialize_grads(False)
        ctx.module, ctx.chunks, ctx.parameters = module, chunks, parameters
        ctx.device = next(module.parameters(), chunks[0][0] if chunks else torch.empty(0)).device
        kind = ctx.device.type
        ctx.autocast = {
            "device_type": kind,
            "dtype": torch.get_autocast_dtype(kind),
            "enabled": torch.is_autocast_enabled(kind),
        }
        ctx.states = []
        embeddings: list[Tensor] = []
        for chunk in chunks:
            ctx.states.append(_random_state(ctx.device))
            # with a graph, although it is dropped at once: without one, torch may choose other
            # kernels, which draw other masks, and autocast would keep weights cut off their graph
            with torch.enable_grad():
                h = _embed(module, chunk, ctx.device)
            leaves = [] if embeddings else _other_leaves(h, parameters)
            embeddings.append(h.detach())
            del h
            _refuse_lasting(leaves)
        # the parameters too, so that torch complains if they change before the backward pass
        ctx.save_for_backward(*parameters, *embeddings)
        return tuple(embeddings)

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Embed every chunk again and add up what the embeddings' gradients make of it."""
        parameters, device = ctx.parameters, ctx.device
        before = ctx.saved_tensors[len(parameters) :]
        totals: list[Tensor | None] = [None] * len(parameters)
        distances = []
        state = _random_state(device)
        buffers = [(buffer, buffer._version, buffer.clone()) for buffer in ctx.module.buffers()]
        try:
            # the last chunk first, as autograd does it: sums are then rounded alike
            for i in reversed(range(len(before))):
                if (gradient := gradients[i]) is None:
                    continue
                _restore(device, ctx.states[i])
                with torch.enable_grad(), torch.autocast(**ctx.autocast):
                    h = _embed(ctx.module, ctx.chunks[i], device)
                size = before[i].norm().clamp_min(torch.finfo(h.dtype).tiny)  # of zeros, or empty
                distances.append((h.detach() - before[i]).norm() / size)
                by_parameter = torch.autograd.grad(h, parameters, gradient, allow_unused=True)
                # never in place: two parameters may have been given one and the same tensor
                totals = [_sum(total, new) for total, new in zip(totals, by_parameter, strict=True)]
        finally:
            _restore(device, state)
            for buffer, version, value in buffers:
                if buffer._version != version:  # running statistics have moved once already
                    buffer.copy_(value)
        # one look for all chunks, because the device has to catch up for it
        # what is not a number says nothing, and must not hide the other chunks
        if distances and (worst := float(torch.stack(distances).nan_to_num(0).max())) > _SAME:
            raise InputError(
                "gradient caching runs the encoder twice, and its embeddings of the same input "
                f"differed by {worst:.1%}: it keeps a state, or draws random numbers from a "
                "generator of its own; train without `--micro-batch`"
            )
        return (None, None, *totals)


def _embed(module: nn.Module, chunk: Sequence[Tensor], device: torch.device) -> Tensor:
    embeddings: Tensor = module(*(value.to(device, non_blocking=True) for value in chunk))
    return embeddings


def _other_leaves(h: Tensor, parameters: Sequence[nn.Parameter]) -> list[ref[Tensor]]:
    """Return the tensors, other than the parameters, that a backward pass would give a gradient.

    Raises:
        InputError: a reentrant checkpoint, whose weights cannot be seen.
    """
    known = {id(parameter) for parameter in parameters}
    leaves, seen, nodes = [], set(), [h.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if type(node).__name__ == "CheckpointFunctionBackward":
            raise InputError(
                "gradient caching cannot be used with a reentrant checkpoint, which gives its "
                "weights a gradient only in a backward pass of its own; give use_reentrant=False "
                "to torch.utils.checkpoint, or {'use_reentrant': False} as transformers' "
                "gradient_checkpointing_kwargs"
            )
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in known:
            leaves.append(ref(leaf))
        nodes.extend(following for following, _ in node.next_functions)
    return leaves


def _refuse_lasting(leaves: Sequence[ref[Tensor]]) -> None:
    """Refuse learnable tensors that outlive their graph.

    Those that do not were made in the forward pass (transformers' ``enable_input_require_grads``
    makes one), and nobody learns them.
    """
    for leaf in (leaf() for leaf in leaves):
        if leaf is not None:
            raise InputError(
                "gradient caching gives gradients of the module's parameters only, and the "
                "embeddings depend on another tensor that requires one (of shape "
                f"{tuple(leaf.shape)}); make it a parameter of the module (nn.Parameter), or "
                "detach it"
            )


def _sum(total: Tensor | None, new: Tensor | None) -> Tensor | None:
    return new if total is None else total if new is None else total + new


def _random_state(device: torch.device) -> list[Tensor]:
    """Return the states of the CPU's generator and, after it, of an accelerator's."""
    if device.type == "cpu":
        return [torch.get_rng_state()]
    return [torch.get_rng_state(), torch.get_device_module(device).get_rng_state(device)]


def _restore(device: torch.device, state: list[Tensor]) -> None:
    torch.set_rng_state(state[0])
    if device.type != "cpu":
        torch.get_device_module(device).set_rng_state(state[1], device)
