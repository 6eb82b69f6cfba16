"""The image encoder: maps pictures to embeddings with a network of transformers, or any module.

The image encoder has three uses:

- training calls :meth:`ImageEncoder.forward` on batches of crops;
- evaluation and users call :meth:`ImageEncoder.encode` on pictures of any kind and size;
- :meth:`ImageEncoder.save` writes a folder that :meth:`ImageEncoder.load` reads.
  ``transformers.AutoModel`` and ``AutoImageProcessor`` read this folder too, unless the network is
  a user's module or a ResNet with a CIFAR stem, which transformers does not have.

With a ResNet, the embedding is the mean over the last feature map. With a vision transformer, the
embedding is the class token after the last layer norm.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from isotrope.core.autograd import modes_kept
from isotrope.core.errors import InputError
from isotrope.core.fingerprint import fingerprint
from isotrope.core.pictures import Picture, square
from isotrope.core.progress import bar
from isotrope.core.spelling import brief
from isotrope.encoders import image_folder, image_nets
from isotrope.encoders.device import find_device
from isotrope.encoders.image_nets import IMAGENET_MEAN, IMAGENET_STD, RGB, build_net
from isotrope.encoders.names import resolve


class ImageEncoder(nn.Module):
    """Maps pictures to embeddings.

    Make an encoder with :meth:`build`, :meth:`load` or :meth:`wrap`.

    Args:
        model: The network, which has all weights of the encoder.
        read: Function that takes the model and normalised pixels, and returns embeddings (n x d).
        name: Name or path that the user gave.
        dimension: Number d of values in an embedding.
        image_size: Height and width, in pixels, to which :meth:`encode` brings pictures.
        mean: Mean of red, green and blue, for pixels in [0, 1].
        std: Standard deviation of red, green and blue, for pixels in [0, 1].
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        model: nn.Module,
        read: image_nets.Reader,
        *,
        name: str,
        dimension: int,
        image_size: int,
        mean: RGB,
        std: RGB,
    ) -> None:
        super().__init__()
        for what, values in (("mean", mean), ("standard deviation", std)):
            if not _three(values):
                raise InputError(f"give the {what} as 3 finite numbers; found {values}")
        if min(std) <= 0:
            raise InputError(f"give standard deviations above 0; found {std}")
        self.model = model
        self.name = name
        self.dimension = dimension
        self.image_size = image_size
        self._read = read
        self._colours = [round(float(x), 7) for x in mean], [round(float(x), 7) for x in std]
        first = next(model.parameters(), None)
        # not persistent: buffers move to the device of the weights, but are not saved with them
        for what, values in (("mean", mean), ("std", std)):
            buffer = torch.tensor(values, device=None if first is None else first.device).float()
            self.register_buffer(what, buffer.view(3, 1, 1), persistent=False)

    @classmethod
    def build(
        cls,
        name: str = "resnet18",
        *,
        width: int | None = None,
        stem: str = "auto",
        image_size: int = 32,
        mean: RGB = IMAGENET_MEAN,
        std: RGB = IMAGENET_STD,
        seed: int | None = None,
    ) -> "ImageEncoder":
        """Build an untrained encoder.

        Args:
            name: ``resnet9`` (a ResNet with one block per stage), ``resnet18``, ``resnet34``,
                ``resnet50``, ``vit-tiny``, ``vit-small`` or ``vit-base``.
            width: Number of channels in a ResNet's first stage (None: 64), or dimension of a vision
                transformer's tokens. For tokens, None means 192 (tiny, 3 heads), 384 (small, 6
                heads) or 768 (base, 12 heads).
            stem: First layers of a ResNet: ``cifar`` (a 3 x 3 convolution of stride 1),
                ``imagenet`` (a 7 x 7 convolution of stride 2, then max-pooling), or ``auto``
                (``cifar`` for pictures of up to 32 pixels, otherwise ``imagenet``).
            image_size: Height and width of the pictures in pixels. The patches of a vision
                transformer have 4 x 4 pixels if this size is at most 64, otherwise 16 x 16. For
                crops of another size, it interpolates its position embeddings.
            mean: Mean of red, green and blue, for pixels in [0, 1].
            std: Standard deviation of red, green and blue, for pixels in [0, 1].
            seed: Seed of the initial weights. If None, torch's global generator draws a seed.
        """
        model: Any = build_net(name, width=width, stem=stem, image_size=image_size, seed=seed)
        return cls._around(name, model, image_size, mean, std)

    @classmethod
    def load(cls, name: str | Path, *, device: str = "auto") -> "ImageEncoder":
        """Load an encoder in float32 and evaluation mode. Code in the folder is not run.

        Args:
            name: A folder written by :meth:`save`, a run folder of isotrope, a folder of
                transformers (ResNet, ViT, DINOv2 or ConvNeXt), or an id of the Hugging Face hub.
            device: ``auto`` (the first available of CUDA, MPS and CPU) or a device of torch.
        """
        where = find_device(device)
        return cls._around(str(name), *image_folder.read(resolve(name))).to(where).eval()

    @classmethod
    def wrap(
        cls,
        module: nn.Module,
        *,
        dimension: int,
        image_size: int,
        mean: RGB = IMAGENET_MEAN,
        std: RGB = IMAGENET_STD,
    ) -> "ImageEncoder":
        """Make an encoder from a module that maps normalised pixels to embeddings.

        Args:
            module: Any module that maps pixels (n x 3 x h x w) to embeddings (n x d). :meth:`save`
                writes only the weights of this module.
            dimension: Number d of values in an embedding.
            image_size: Height and width, in pixels, to which :meth:`encode` brings pictures.
            mean: Mean of red, green and blue, for pixels in [0, 1].
            std: Standard deviation of red, green and blue, for pixels in [0, 1].
        """
        return cls(
            module,
            _output,
            name=type(module).__name__,
            dimension=dimension,
            image_size=image_size,
            mean=mean,
            std=std,
        )

    @classmethod
    def _around(
        cls, name: str, model: nn.Module, image_size: int, mean: RGB, std: RGB
    ) -> "ImageEncoder":
        config: Any = model.config  # transformers has no common type for it
        sizes = getattr(config, "hidden_sizes", None)
        return cls(
            model,
            image_nets.READERS[config.model_type],
            name=name,
            dimension=int(sizes[-1] if sizes else config.hidden_size),
            image_size=image_size,
            mean=mean,
            std=std,
        )

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.model.parameters(), self.mean).device

    def forward(self, x: Tensor) -> Tensor:
        """Return the n x d embeddings of n x 3 x h x w pixels in [0, 1]."""
        dtype = next((p.dtype for p in self.model.parameters() if p.is_floating_point()), x.dtype)
        x = (x - self.mean.to(x.device)) / self.std.to(x.device)
        h = self._read(self.model, x.to(dtype))
        shape, right = getattr(h, "shape", type(h).__name__), (len(x), self.dimension)
        if shape != right:
            raise InputError(
                "give a module that returns n x d embeddings, for example nn.Sequential(module, "
                f"nn.Flatten()): {self.name} returned {brief(shape)} in place of {right}"
            )
        return h

    def encode(
        self,
        images: Sequence[Picture] | NDArray[np.uint8] | Tensor,
        *,
        batch_size: int = 256,
        progress: bool = False,
        normalize: bool = False,
    ) -> NDArray[np.float32]:
        """Embed pictures in evaluation mode. Afterwards, the modes of all modules are restored.

        Args:
            images: The n pictures: a list of paths, PIL images and uint8 arrays of any size, or one
                uint8 array or tensor, n x 3 x h x w or n x h x w x 3. The shorter side of a picture
                is resized to :attr:`image_size`, then the square in the centre is cut out.
            batch_size: Number of pictures in each batch.
            progress: Whether to show a progress bar on stderr.
            normalize: Whether to return unit vectors.

        Returns:
            Embeddings, n x d, float32.
        """
        if batch_size < 1:
            raise InputError(f"give a batch size of at least 1; found {batch_size}")
        if isinstance(images, str) or hasattr(images, "read") or not hasattr(images, "__iter__"):
            raise InputError(
                f"give a list of pictures, even for a single picture; found {images!s:.60}"
            )
        if not isinstance(images, np.ndarray | Tensor):
            images = list(images)
        elif images.ndim != 4:
            raise InputError(
                "give n x 3 x h x w or n x h x w x 3 pixels, n = 1 for a single picture; found "
                + " x ".join(map(str, images.shape))
            )
        out = np.empty((len(images), self.dimension), dtype=np.float32)
        show = bar(len(images), "", "images", show=progress)
        with modes_kept(self), torch.inference_mode(), show as done:
            self.eval()
            for first in range(0, len(images), batch_size):
                rows = slice(first, first + batch_size)
                pixels = [square(picture, self.image_size) for picture in images[rows]]
                x = torch.from_numpy(np.stack(pixels)).to(self.device)
                h = self(x.float() / 255)
                h = nn.functional.normalize(h, dim=-1) if normalize else h
                out[rows] = h.float().cpu().numpy()
                done(len(pixels))
        if not np.isfinite(out).all():
            raise InputError(
                f"use another encoder, or train {self.name} again with a lower `--learning-rate`, "
                "because some embeddings of this encoder are NaN or infinite"
            )
        return out

    def fingerprint(self) -> str:
        """Return a hash (16 hexadecimal digits) of everything that affects the embeddings."""
        weights = {
            name: (str(tensor.dtype), tensor.contiguous().view(-1).view(torch.uint8).cpu().numpy())
            for name, tensor in self.model.state_dict().items()
        }
        return fingerprint(repr(self.model), weights, self.image_size, *self._colours)

    def save(self, folder: Path, card: str | None = None) -> None:
        """Write a folder that :meth:`load` reads. A failed save changes no existing folder.

        For a user's module, only the weights are written; :attr:`usage` shows how to load them.

        Args:
            folder: Folder to write. An existing folder is replaced.
            card: Text of the model card (README.md). If None, a short card is written.
        """
        text = self._card() if card is None else card
        (mean, std), own = self._colours, self._read is _output
        image_folder.write(Path(folder), self.model, self.image_size, mean, std, text, own=own)

    @property
    def usage(self) -> str:
        """Section of the model card (Markdown) with Python code that loads the saved encoder."""
        if self._read is not _output:
            load = 'import isotrope\n\nencoder = isotrope.load("path/to/this/folder")\n'
        else:
            mean, std = self._colours
            load = (
                "from isotrope.encoders import ImageEncoder\n"
                "from safetensors.torch import load_model\n\n"
                f"module = {type(self.model).__name__}(...)  # with the arguments of the training\n"
                'load_model(module, "path/to/this/folder/model.safetensors")\n'
                f"encoder = ImageEncoder.wrap(\n    module, dimension={self.dimension}, "
                f"image_size={self.image_size}, mean={mean}, std={std}\n)\n"
            )
        return f'```python\n{load}features = encoder.encode(["a.jpg", "b.png"])\n```'

    def _card(self) -> str:
        return (
            "---\nlibrary_name: transformers\npipeline_tag: image-feature-extraction\n"
            "tags:\n- isotrope\n---\n\n"
            f"# Image encoder\n\nMaps an image ({self.image_size} x {self.image_size}) to "
            f"{self.dimension} numbers. Compare images by the cosine of their embeddings.\n\n"
            f"{self.usage}\n"
        )


def _three(values: object) -> bool:
    return (
        isinstance(values, Sequence)
        and len(values) == 3
        and all(isinstance(value, int | float) and math.isfinite(value) for value in values)
    )


def _output(model: nn.Module, x: Tensor) -> Tensor:
    """Return the output of a user's module."""
    output: Tensor = model(x)
    return output
