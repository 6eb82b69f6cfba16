"""The batch at which a run met NaN or infinity, once more: what is not finite, and where it begins.

``python -m isotrope.training.replay RUN/nan-step-12.safetensors`` prints what :func:`replay` finds.
The file has the batch, as token ids or images, and the weights as they were; the settings in it
say the rest. A text encoder from scratch, and images, need the data of the run where they were.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from isotrope.core.documents import parse_yaml
from isotrope.core.errors import InputError
from isotrope.core.views import Views
from isotrope.data.images.batches import ImageBatch
from isotrope.data.text.batches import Batch, Chunk
from isotrope.encoders.sentence import find_device
from isotrope.paradigm import registry
from isotrope.training import text
from isotrope.training.images import train
from isotrope.training.images.settings import ImageSettings
from isotrope.training.nan_guard import described, non_finite_names
from isotrope.training.rebuild import image_terms
from isotrope.training.settings import RunSettings, TrainSettings
from isotrope.training.simcse import SimCSE, nested, step_seed

__all__ = ["Replayed", "main", "replay"]

Precision = Literal["32", "bf16", "16"]


@dataclass(frozen=True)
class Replayed:
    """What came of a batch.

    Attributes:
        step: of the run.
        loss: of the batch.
        first: the module whose output was the first with something in it that is not finite; None
            if there was none.
        weights: names of those that were not finite before.
        gradients: names of the parameters whose gradient is not.
        lines: the same and the objective's components, to be read.
    """

    step: int
    loss: float
    first: str | None
    weights: list[str]
    gradients: list[str]
    lines: list[str]


def replay(
    file: Path,
    *,
    precision: Precision | None = None,
    device: str = "auto",
    plugin: Sequence[Path] = (),
) -> Replayed:
    """Send the batch of a file through the encoder, the objective and back once more.

    The random numbers are those of the run (on a CPU; a GPU draws its own), of each process that
    had a part of the batch. Nothing is written.

    Args:
        file: ``nan-step-N.safetensors`` of a run folder.
        precision: of the encoder's arithmetic; None for the run's.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        plugin: files with objectives of one's own: code that only ``file`` names is not run.

    Raises:
        InputError: no such file, or what the run was made with is not there.
    """
    for path in plugin:
        registry.load_plugin(path)
    about, tensors = _read(Path(file))
    kind = TrainSettings if about["kind"] == "text" else ImageSettings
    settings = kind.read(parse_yaml(about["config"], Path(file)), source=str(file))
    registry.check_plugins(settings.plugin, Path(file))
    precision = precision or settings.precision
    changes = {"devices": 1, "progress": False, "precision": "32", "device": device}
    settings = settings.model_copy(update={**changes, "micro_batch": None, "plugin": []})
    step, processes = int(about["step"]), int(about["processes"])
    parts = [_under(tensors, f"batch.{process}") for process in range(processes)]
    module, terms = _built(settings, _under(tensors, "weights"), parts, step)
    with _watched(module) as broken:
        with _arithmetic(precision, module.device.type):
            views = terms()
        losses = [module.objective.loss(v, backend=settings.backend) for v in views]
        loss = torch.stack(losses).mean()
    loss.backward()
    named = list(module.named_parameters())
    return Replayed(
        step=step,
        loss=float(loss.detach()),
        first=broken[0] if broken else None,
        weights=non_finite_names(named),
        gradients=non_finite_names((name, p.grad) for name, p in named),
        lines=[
            f"step {step}, {about['what']} of which was not finite, in precision {precision}:",
            *described(module, [view.detached() for view in views], loss.detach()),
            f"  first output that is not finite: {broken[0] if broken else 'none'}",
        ],
    )


def _read(file: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    try:
        with safe_open(file, framework="pt") as opened:
            about = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot read {file}: {error}") from error
    if not {"kind", "what", "step", "processes", "config"} <= set(about):
        raise InputError(f"{file} is no batch that a run has left; give a nan-step-N.safetensors")
    return about, tensors


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    start = len(prefix) + 1
    return {name[start:]: x for name, x in tensors.items() if name.startswith(f"{prefix}.")}


def _built(
    settings: RunSettings, weights: dict[str, Tensor], parts: list[dict[str, Tensor]], step: int
) -> tuple[Any, Any]:
    """Return the module as it was before the step, and what makes the terms of its loss."""
    device = find_device(settings.device)
    module: Any
    if isinstance(settings, ImageSettings):
        module = train.prepare(settings).module
        images = torch.cat([part["images"] for part in parts])
        _fill(module, weights, device)
        return module, image_terms(module, ImageBatch(images, step, len(images)))
    assert isinstance(settings, TrainSettings)
    objective = registry.build(settings.objective, settings.objective_settings)
    encoder = text.encoder_of(settings)
    # of the learning rate alone does it matter how many steps there are
    module = text.module_of(settings, encoder, objective, settings.max_steps or step + 1)
    _fill(module, weights, device)
    batches = [_text_batch(part) for part in parts]
    seeds = [step_seed(settings.seed, step, process) for process in range(len(parts))]
    return module, lambda: nested(
        _joined([_views(module, b, s) for b, s in zip(batches, seeds, strict=True)]),
        module.prefixes,
    )


def _fill(module: nn.Module, weights: dict[str, Tensor], device: torch.device) -> None:
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(
            f"the weights do not fit the settings they were saved with: {reason}"
        ) from error
    module.to(device).train()


def _text_batch(part: dict[str, Tensor]) -> Batch:
    arrays = {name: x.numpy() for name, x in part.items()}
    chunks: list[Chunk] = []
    while f"chunks.{len(chunks)}.input_ids" in arrays:
        chunks.append(Chunk(*(arrays[f"chunks.{len(chunks)}.{field}"] for field in Chunk._fields)))
    return Batch(
        chunks=chunks,
        inverse=arrays["inverse"],
        sizes=arrays["sizes"].tolist(),
        groups=arrays["groups"],
        tokens=sum(int(chunk.attention_mask.sum()) for chunk in chunks),
    )


def _views(module: SimCSE, batch: Batch, seed: int) -> Views:
    torch.manual_seed(seed)
    return module.views(batch).map(lambda x: x.float())


def _joined(parts: list[Views]) -> Views:
    """The rows of all processes in one batch."""
    further = [part.negatives for part in parts if part.negatives is not None]
    return Views(
        torch.cat([part.anchors for part in parts]),
        torch.cat([part.positives for part in parts]),
        torch.cat(further) if further else None,
        groups=torch.cat([part.groups for part in parts if part.groups is not None]),
    )


@contextmanager
def _watched(module: nn.Module) -> Iterator[list[str]]:
    """Yield the list of modules whose output is not finite, the first to give one first."""
    broken: list[str] = []

    def look(name: str) -> Any:  # noqa: ANN401 - a hook
        def hook(_: nn.Module, __: object, output: object) -> None:
            if (
                isinstance(output, Tensor)
                and output.is_floating_point()
                and non_finite_names([("", output)])
            ):
                broken.append(name)

        return hook

    hooks = [part.register_forward_hook(look(name)) for name, part in module.named_modules()]
    try:
        yield broken
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _arithmetic(precision: Precision, device: str) -> Iterator[None]:
    dtype = torch.float16 if precision == "16" else torch.bfloat16
    with torch.autocast(device, dtype=dtype, enabled=precision != "32"):
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay a file and print what was found; 2 where it cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m isotrope.training.replay", description=__doc__)
    parser.add_argument("file", type=Path, metavar="RUN/nan-step-N.safetensors")
    parser.add_argument("--precision", choices=("32", "bf16", "16"), help="default: the run's")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or mps [auto]")
    parser.add_argument("--plugin", action="append", default=[], type=Path, metavar="FILE")
    given = parser.parse_args(arguments)
    try:
        found = replay(**vars(given))
    except InputError as error:
        print(f"isotrope: error: {error}", file=sys.stderr)
        return 2
    print("\n".join(found.lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
