"""Builds the networks of the image encoder from transformers: ResNets and vision transformers.

Weights are initialised as in the papers. In ResNets, convolutions have He's normal initialisation
by fan-out and batch norms start as the identity, as in torchvision. In vision transformers,
matrices, tokens and positions are N(0, 0.02) and biases are 0, as in DeiT and DINO. Manna et al.
(2023) use the library lightly, whose ResNets keep torch's default for convolutions. These weights
are smaller: by a factor of sqrt(6) if a layer has as many output channels as input channels.
Smaller weights before a batch norm mean a larger effective learning rate.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch
from torch import Tensor, nn

from isotrope.core.errors import InputError, unknown
from isotrope.encoders.quiet import quiet_loading

if TYPE_CHECKING:
    from transformers import ResNetConfig

IMAGENET_MEAN = (0.485, 0.456, 0.406)
"""Mean of red, green and blue in ImageNet, for pixels in [0, 1]."""

IMAGENET_STD = (0.229, 0.224, 0.225)
"""Standard deviation of red, green and blue in ImageNet, for pixels in [0, 1]."""

Reader: TypeAlias = Callable[[Any, Tensor], Tensor]

RGB: TypeAlias = Sequence[float]
"""Three numbers: for red, green and blue."""

# blocks of each stage, and their kind; resnet9 has one for each stage, as in the papers
_RESNETS = {
    "resnet9": ((1, 1, 1, 1), "basic"),
    "resnet18": ((2, 2, 2, 2), "basic"),
    "resnet34": ((3, 4, 6, 3), "basic"),
    "resnet50": ((3, 4, 6, 3), "bottleneck"),
}
# width and heads; Touvron et al. 2021, table 1: 12 layers; heads have the width 64
_VITS = {"vit-tiny": (192, 3), "vit-small": (384, 6), "vit-base": (768, 12)}

ARCHITECTURES = (*_RESNETS, *_VITS)
"""The networks that :func:`build_net` knows."""


def build_net(
    name: str, *, width: int | None, stem: str, image_size: int, seed: int | None
) -> nn.Module:
    """Return an untrained network. ``ImageEncoder.build`` describes the arguments."""
    if name not in ARCHITECTURES:
        raise InputError(unknown("there is no image encoder", name, ARCHITECTURES))
    if image_size < 1 or (width is not None and width < 1):
        raise InputError(f"give image size and width of at least 1; found {image_size} and {width}")
    if seed is None:
        seed = int(torch.randint(2**62, ()))
    with quiet_loading(seed):
        if name in _RESNETS:
            return _resnet(*_RESNETS[name], width or 64, _stem(stem, image_size))
        if stem != "auto":
            raise InputError(f"use the stem 'auto' for {name}: only a ResNet has a stem to choose")
        usual, heads = _VITS[name]
        return _vit(width or usual, heads, image_size)


def _stem(stem: str, image_size: int) -> str:
    if stem not in ("auto", "cifar", "imagenet"):
        raise InputError(f"use the stem 'auto', 'cifar' or 'imagenet'; found {stem!r}")
    return ("cifar" if image_size <= 32 else "imagenet") if stem == "auto" else stem


def _resnet(blocks: Sequence[int], layer: str, width: int, stem: str) -> nn.Module:
    from transformers import ResNetConfig, ResNetModel

    expansion = 4 if layer == "bottleneck" else 1
    config = ResNetConfig(
        embedding_size=width,
        hidden_sizes=[expansion * width * 2**stage for stage in range(4)],
        depths=list(blocks),
        layer_type=layer,
    )
    return channels_last(cifar_resnet(config) if stem == "cifar" else ResNetModel(config))


def channels_last(net: nn.Module) -> nn.Module:
    """Change the memory layout of the kernels of ``net`` in place, for fast convolutions."""
    convert: Callable[..., nn.Module] = net.to  # torch's type hints lack memory_format alone
    return convert(memory_format=_layout(net))


def _layout(net: nn.Module) -> torch.memory_format:
    """Return channels last, or the usual layout if a stage has fewer than 16 channels.

    With fewer channels last and 56 x 56 pixels or more, the backward pass of a 1 x 1 convolution of
    stride 2 kills the process on a CPU: it writes beyond its memory (torch 2.13).
    """
    config: Any = net.config  # transformers has no common type for it
    narrow = min(config.hidden_sizes) < 16
    return torch.contiguous_format if narrow else torch.channels_last


def cifar_resnet(config: "ResNetConfig") -> nn.Module:
    """Return a ResNet whose stem is one 3 x 3 convolution of stride 1, without max-pooling."""
    from transformers import ResNetModel

    net: Any = ResNetModel(config)
    convolution = nn.Conv2d(config.num_channels, config.embedding_size, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    net.embedder.embedder.convolution = convolution
    net.embedder.pooler = nn.Identity()
    return cast("nn.Module", net)


def _vit(width: int, heads: int, image_size: int) -> nn.Module:
    from transformers import ViTConfig, ViTModel

    patch = 4 if image_size <= 64 else 16
    if image_size % patch:
        raise InputError(
            f"use an image size that is a multiple of {patch}: {image_size} pixels cannot be cut "
            f"into patches of {patch} pixels"
        )
    if width % heads:
        raise InputError(
            f"use a width that is a multiple of {heads}, the number of heads; found {width}"
        )
    config = ViTConfig(
        hidden_size=width,
        num_hidden_layers=12,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        layer_norm_eps=1e-6,
        image_size=image_size,
        patch_size=patch,
    )
    return ViTModel(config, add_pooling_layer=False)


def freeze_patches(module: nn.Module) -> None:
    """Freeze the patch projections in ``module``, if any. MoCo v3 does this for stable training.

    Reference:
        Chen, Xie, He 2021 (MoCo v3), section 4.3.
    """
    for name, child in module.named_modules():
        if name.endswith("patch_embeddings.projection"):
            child.requires_grad_(False)


def _pooled(net: nn.Module, x: Tensor) -> Tensor:
    """Return the mean over the last feature map; ConvNeXt has a layer norm after it."""
    x = x.contiguous(memory_format=_layout(net))
    return cast("Tensor", net(pixel_values=x).pooler_output.flatten(1))


def _first_token(net: nn.Module, x: Tensor) -> Tensor:
    """Return the class token after the last layer norm, without any pretrained head."""
    return cast("Tensor", net(pixel_values=x).last_hidden_state[:, 0])


def _vit_token(net: nn.Module, x: Tensor) -> Tensor:
    """Return the class token. Positions are interpolated for crops of other sizes, as in DINO."""
    config: Any = net.config  # transformers has no common type for it
    patch = config.patch_size
    if x.shape[-2] % patch or x.shape[-1] % patch:
        raise InputError(
            f"use images whose height and width are multiples of {patch}, the side of a patch: "
            f"these images have {x.shape[-2]} x {x.shape[-1]} pixels"
        )
    other = x.shape[-2:] != (config.image_size,) * 2
    output = net(pixel_values=x, interpolate_pos_encoding=other)
    return cast("Tensor", output.last_hidden_state[:, 0])


READERS: dict[str, Reader] = {
    "resnet": _pooled,
    "convnext": _pooled,
    "vit": _vit_token,
    "dinov2": _first_token,
}
"""Functions that return the embeddings of n images, by the ``model_type`` of the network."""
