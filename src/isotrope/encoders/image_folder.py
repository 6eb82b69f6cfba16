"""Reads and writes the folder of an image encoder: weights, network and preprocessing, no code.

``model.safetensors`` and ``config.json`` have the format of transformers.
``preprocessor_config.json`` has the format of the CLIP processor of transformers, which also
resizes the shorter side and cuts out the centre. For a ResNet with a CIFAR stem or a user's module,
which transformers cannot load, ``config.json`` has a ``model_type`` unknown to transformers.
"""

import copy
import json
import math
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from isotrope.core.errors import InputError
from isotrope.core.spelling import brief
from isotrope.encoders import image_nets
from isotrope.encoders.image_nets import RGB
from isotrope.encoders.model_folder import settings_of
from isotrope.encoders.quiet import model_written, quiet_loading

CIFAR = "isotrope-resnet-cifar"
"""Value of ``model_type`` for a ResNet with a CIFAR stem."""

MODULE = "isotrope-module"
"""Value of ``model_type`` for a user's own module."""

_LARGEST_SIDE = 8192  # largest side in pixels of the pictures that an encoder takes


def read(folder: Path) -> tuple[nn.Module, int, Any, Any]:
    """Return a folder's network, and the side, mean and standard deviation for its pictures."""
    config = settings_of(folder / "config.json")
    kind = config.get("model_type")
    if kind == MODULE:
        raise InputError(
            f"build the module {config.get('module')}, load its weights with "
            f"safetensors.torch.load_model, and pass the module to ImageEncoder.wrap: {folder} "
            "holds only the weights"
        )
    if not isinstance(kind, str) or (kind != CIFAR and kind not in image_nets.READERS):
        raise InputError(
            f"give an image encoder that isotrope saved, or a model of the type "
            f"{', '.join(image_nets.READERS)}: {folder} holds a model of the type {kind!r}"
        )
    try:
        with quiet_loading() as report:
            model = _cifar(folder, config) if kind == CIFAR else _transformers(folder, str(kind))
    # transformers, huggingface_hub and safetensors may raise any Exception
    except Exception as error:
        what = " ".join(str(error).split())[:300] or type(error).__name__
        why = f"{folder} is not a model that can be loaded: {what}"
        raise InputError(f"copy the model again from its source: {why}") from error
    report.check(folder)
    return model, *_preparation(folder, config)


def _cifar(folder: Path, config: dict[str, Any]) -> nn.Module:
    from safetensors.torch import load_file
    from transformers import ResNetConfig

    model = image_nets.cifar_resnet(ResNetConfig.from_dict({**config, "model_type": "resnet"}))
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return image_nets.channels_last(model)


def _transformers(folder: Path, kind: str) -> nn.Module:
    from transformers import AutoModel

    more = {"add_pooling_layer": False} if kind == "vit" else {}
    model = AutoModel.from_pretrained(
        folder,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        dtype=torch.float32,
        **more,
    )
    if kind == "dinov2" and model.embeddings.mask_token is not None:
        # no patch is masked, so this token gets no gradient, for which DDP would wait
        model.embeddings.mask_token.requires_grad_(False)
    return image_nets.channels_last(model) if kind in ("resnet", "convnext") else model


def _preparation(folder: Path, config: dict[str, Any]) -> tuple[int, Any, Any]:
    """Return the side, mean and standard deviation with which pictures are preprocessed."""
    processor = settings_of(folder / "preprocessor_config.json")
    size = processor.get("crop_size") or processor.get("size") or config.get("image_size") or 224
    if isinstance(size, dict):
        size = size.get("shortest_edge") or size.get("height")
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= _LARGEST_SIDE:
        raise InputError(
            f"set the size in {folder / 'preprocessor_config.json'} to a number of pixels from 1 "
            f"to {_LARGEST_SIDE}; found {brief(size)}"
        )
    # (factor * pixel - mean) / std, for pixels from 0 to 255
    scaled = processor.get("do_rescale") is not False
    factor = processor.get("rescale_factor") or 1 / 255 if scaled else 1.0
    if not isinstance(factor, float) or not math.isclose(factor, 1 / 255, rel_tol=1e-4):
        raise InputError(
            f"set do_rescale to true and rescale_factor to {1 / 255} in "
            f"{folder / 'preprocessor_config.json'}, and divide image_mean and image_std by 255 "
            f"times the present factor; isotrope takes pixels from 0 to 1, and the factor is "
            f"{brief(factor)}"
        )
    if processor.get("do_normalize") is False:
        return size, [0.0] * 3, [1.0] * 3
    mean = processor.get("image_mean") or image_nets.IMAGENET_MEAN
    std = processor.get("image_std") or image_nets.IMAGENET_STD
    return size, mean, std


def write(
    folder: Path, model: nn.Module, image_size: int, mean: RGB, std: RGB, card: str, *, own: bool
) -> None:
    """Write the folder of an image encoder; ``own``: ``model`` is a user's module, not a network.

    A failure changes no existing folder.
    """
    with model_written(folder) as temporary:
        _write_model(model, temporary, own=own)
        _write_json(temporary / "preprocessor_config.json", _processor(image_size, mean, std))
        (temporary / "README.md").write_text(card, encoding="utf-8")


def _write_model(model: nn.Module, folder: Path, *, own: bool) -> None:
    if own:
        from safetensors.torch import save_model

        save_model(model, str(folder / "model.safetensors"), {"format": "pt"})
        _write_json(folder / "config.json", {"model_type": MODULE, "module": type(model).__name__})
        return
    kind = cast("Any", model).config.model_type
    net: Any = _with_pooler(model) if kind == "vit" else model
    net.save_pretrained(folder)
    if kind == "resnet" and isinstance(net.embedder.pooler, nn.Identity):
        written = settings_of(folder / "config.json")
        written |= {"model_type": CIFAR, "architectures": ["IsotropeCifarResNet"]}
        _write_json(folder / "config.json", written)


def _with_pooler(net: nn.Module) -> nn.Module:
    """Return a copy with a pooler that changes nothing.

    Whenever transformers loads a ViT, it adds a pooler, with random weights if the folder has none.
    With this pooler, ``pooler_output`` is the class token.
    """
    from transformers.models.vit.modeling_vit import ViTPooler

    model: Any = copy.deepcopy(net)
    model.config.pooler_output_size = model.config.hidden_size
    model.config.pooler_act = "linear"
    model.pooler = ViTPooler(model.config)
    nn.init.eye_(model.pooler.dense.weight)
    nn.init.zeros_(model.pooler.dense.bias)
    return cast("nn.Module", model)


def _processor(image_size: int, mean: RGB, std: RGB) -> dict[str, Any]:
    """Return the settings with which transformers prepares pictures as isotrope does."""
    return {
        "image_processor_type": "CLIPImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": {"shortest_edge": image_size},
        "resample": 2,  # Pillow's number for bilinear
        "do_center_crop": True,
        "crop_size": {"height": image_size, "width": image_size},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": mean,
        "image_std": std,
    }


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
