"""LoRA with peft: trains small matrices that are added to a transformer's frozen weights.

A layer ``W x`` becomes ``W x + (alpha / rank) B A x`` (Hu et al. 2021, "LoRA: low-rank adaptation
of large language models", section 4.1). ``B`` starts at zero, so training starts from the
unmodified encoder. The saved model is a plain encoder with the weights ``W + (alpha / rank) B A``.
The folder ``adapter/`` in this model has the matrices ``A`` and ``B`` in peft's format.
"""

import copy
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from torch import nn

from isotrope.core.autograd import seeded
from isotrope.core.errors import SettingError, nearest, needs_extra
from isotrope.encoders.names import hub_name

if TYPE_CHECKING:
    from peft import LoraConfig

    from isotrope.encoders.sentence import SentenceEncoder

ALL_LINEAR = "all-linear"
"""The name in peft for all linear layers."""


def add_lora(
    encoder: "SentenceEncoder",
    rank: int,
    *,
    alpha: int | None = None,
    targets: Sequence[str] = (),
    seed: int = 0,
) -> None:
    """Freeze an encoder and add trainable matrices to the layers of its transformer.

    Args:
        encoder: The encoder, which is changed in place.
        rank: Rank of ``B A``.
        alpha: Numerator of the factor ``alpha / rank`` of ``B A``. None means twice the rank.
        targets: Layers that get matrices: last parts of their names, such as ``query``, or
            ``all-linear``. If empty, the layers are peft's default for the architecture; if peft
            has no default, all linear layers.
        seed: Seed of the initial matrices ``A``.
    """
    with needs_extra("lora"):
        from peft import LoraConfig, TaskType, inject_adapter_in_model
        from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as DEFAULT_TARGETS
    transformer = encoder.transformer("lora")
    chosen = list(targets) or DEFAULT_TARGETS.get(transformer.config.model_type) or [ALL_LINEAR]
    _check_targets(transformer, chosen, encoder.name)
    everything = ALL_LINEAR in chosen
    config = LoraConfig(
        task_type=TaskType.FEATURE_EXTRACTION,
        base_model_name_or_path=hub_name(encoder.name) or encoder.name,
        r=rank,
        lora_alpha=2 * rank if alpha is None else alpha,
        target_modules=ALL_LINEAR if everything else sorted(chosen),
        # layers that are already frozen, such as BERT's pooler, do not affect the embedding
        exclude_modules=[
            name
            for name, layer in transformer.named_modules()
            if _is_linear(layer)
            and not layer.weight.requires_grad
            and (everything or name.rpartition(".")[2] in chosen)
        ]
        or None,
    )
    encoder.requires_grad_(False)
    with seeded(seed), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"peft\.")
        try:
            inject_adapter_in_model(config, transformer)
        except ValueError as error:  # a kind of layer that peft does not support, or no layer left
            raise SettingError(
                f"{encoder.name}: {str(error).splitlines()[0]}", setting="lora", value=rank
            ) from error


def _is_linear(layer: nn.Module) -> bool:
    """Return whether a layer is a matrix product; GPT-2 has Conv1D of transformers for it."""
    return isinstance(layer, nn.Linear) or type(layer).__name__ == "Conv1D"


def _check_targets(transformer: nn.Module, targets: Sequence[str], name: str) -> None:
    """Refuse a target that matches no layer; peft would ignore it if another target matches."""
    layers = transformer.named_modules()
    linear = {path.rpartition(".")[2] for path, layer in layers if _is_linear(layer)}
    for target in targets:
        if target != ALL_LINEAR and target not in linear:
            raise SettingError(
                f"{name} has no linear layer with this name{nearest(target, linear)}",
                setting="lora_targets",
                value=target,
                remedy=f"use some of {', '.join(sorted(linear))}, or {ALL_LINEAR} for all",
            )


def _config(encoder: "SentenceEncoder") -> "LoraConfig | None":
    configs = getattr(getattr(encoder.model[0], "model", None), "peft_config", {})
    return cast("LoraConfig | None", configs.get("default"))


def lora_facts(encoder: "SentenceEncoder") -> dict[str, Any] | None:
    """Return a dict that describes the LoRA of an encoder; None if the encoder has no LoRA.

    The keys are ``rank``, ``alpha``, ``targets`` (names of the layers), ``parameters`` (number of
    the encoder's parameters), ``trainable`` (number of trained parameters) and ``share``
    (``trainable / parameters``).
    """
    config = _config(encoder)
    if config is None:
        return None
    trainable = sum(p.numel() for p in encoder.parameters() if p.requires_grad)
    parameters = sum(p.numel() for p in encoder.parameters())
    return {
        "rank": config.r,
        "alpha": config.lora_alpha,
        "targets": sorted({path.rpartition(".")[2] for path, _ in _layers(encoder)}),
        "trainable": trainable,
        "parameters": parameters,
        "share": trainable / parameters,
    }


def _layers(encoder: "SentenceEncoder") -> list[tuple[str, Any]]:
    from peft.tuners.lora import LoraLayer

    modules = encoder.transformer("lora").named_modules()
    return [(path, m) for path, m in modules if isinstance(m, LoraLayer)]


@contextmanager
def merged_weights(encoder: "SentenceEncoder") -> Iterator[None]:
    """Merge the matrices into the encoder's weights during the ``with`` block.

    Afterwards, the weights are exactly as before, without the rounding of peft's unmerging.
    """
    if _config(encoder) is None:
        yield
        return
    transformer = encoder.transformer("lora")
    layers = _layers(encoder)
    try:
        for path, layer in layers:
            plain = copy.deepcopy(layer)
            plain.merge()
            transformer.set_submodule(path, plain.get_base_layer())
        yield
    finally:
        for path, layer in layers:
            transformer.set_submodule(path, layer)


def save_adapter(encoder: "SentenceEncoder", folder: Path) -> None:
    """Write the matrices for ``peft.PeftModel.from_pretrained``. Without LoRA, write nothing."""
    config = _config(encoder)
    if config is None:
        return
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    # "auto" would make peft ask the hub for the encoder's configuration
    state = get_peft_model_state_dict(encoder.transformer("lora"), save_embedding_layers=False)
    folder.mkdir()
    weights = {f"base_model.model.{name}": value.contiguous() for name, value in state.items()}
    save_file(weights, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    saved = copy.copy(config)
    saved.inference_mode = True
    saved.target_modules = sorted(cast("set[str]", config.target_modules))
    saved.save_pretrained(str(folder))
