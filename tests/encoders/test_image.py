import copy
import io
import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from isotrope.core.errors import InputError
from isotrope.encoders import ImageEncoder
from isotrope.encoders.image_nets import (
    ARCHITECTURES,
    IMAGENET_MEAN,
    IMAGENET_STD,
    freeze_patches,
)


def count(encoder):
    return sum(parameter.numel() for parameter in encoder.parameters())


def pictures(n, side, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, 3, side, side), dtype=np.uint8)


@pytest.fixture(scope="module")
def resnet():
    return ImageEncoder.build("resnet9", width=4, image_size=16, seed=0)


@pytest.fixture(scope="module")
def vit():
    return ImageEncoder.build("vit-tiny", width=24, image_size=16, seed=0)


class TestBuild:
    @pytest.mark.parametrize(
        ("name", "choice", "expected", "dimension"),
        [
            # of the papers
            ("resnet18", {}, 11_168_832, 512),
            ("resnet9", {}, 4_898_112, 512),
            ("resnet18", {"image_size": 96}, 11_176_512, 512),
            ("resnet18", {"stem": "imagenet"}, 11_176_512, 512),
            ("resnet18", {"stem": "cifar", "image_size": 96}, 11_168_832, 512),
            # torchvision's, without the last layer
            ("resnet34", {"image_size": 224}, 21_284_672, 512),
            ("resnet50", {"image_size": 224}, 23_508_032, 2048),
            # DeiT's, without the last layer
            ("vit-tiny", {"image_size": 224}, 5_524_416, 192),
            ("vit-small", {"image_size": 224}, 21_665_664, 384),
        ],
    )
    def test_sizes(self, name, choice, expected, dimension):
        encoder = ImageEncoder.build(name, **choice)
        assert (count(encoder), encoder.dimension) == (expected, dimension)

    @pytest.mark.parametrize("size", [8, 16, 32, 33, 64, 65])
    def test_the_stem_goes_by_the_size_of_the_images(self, size):
        model = ImageEncoder.build("resnet9", width=2, image_size=size).model
        small = size <= 32
        convolution = model.embedder.embedder.convolution
        assert convolution.kernel_size == ((3, 3) if small else (7, 7))
        assert convolution.stride == ((1, 1) if small else (2, 2))
        assert isinstance(model.embedder.pooler, nn.Identity if small else nn.MaxPool2d)

    @pytest.mark.parametrize("width", [4, 16])
    def test_kernels_have_their_channels_last_unless_they_are_few(self, width):
        model = ImageEncoder.build("resnet9", width=width).model
        weight = model.embedder.embedder.convolution.weight
        assert weight.is_contiguous(memory_format=torch.channels_last) is (width == 16)

    @pytest.mark.slow  # a process that imports everything
    def test_few_channels_do_not_kill_the_process(self):
        """In a process of its own: torch writes where it may not, and that is a matter of luck."""
        code = (
            "import torch; from isotrope.encoders import ImageEncoder\n"
            "encoder = ImageEncoder.build('resnet9', width=4, image_size=224).train()\n"
            "for _ in range(3): encoder(torch.rand(2, 3, 224, 224)).sum().backward()"
        )
        checked = {**os.environ, "MALLOC_CHECK_": "3"}
        assert subprocess.run([sys.executable, "-c", code], env=checked).returncode == 0

    @pytest.mark.parametrize(("size", "patch"), [(8, 4), (32, 4), (64, 4), (96, 16), (224, 16)])
    def test_patches_go_by_the_size_of_the_images(self, size, patch):
        encoder = ImageEncoder.build("vit-tiny", width=12, image_size=size)
        assert encoder.model.config.patch_size == patch

    @pytest.mark.parametrize("name", ["resnet9", "resnet50"])
    @pytest.mark.parametrize("stem", ["cifar", "imagenet"])
    def test_convolutions_start_as_in_torchvision(self, name, stem):
        model = ImageEncoder.build(name, width=16, stem=stem, seed=1).model
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                fan_out = module.out_channels * math.prod(module.kernel_size)
                ratio = module.weight.std() / math.sqrt(2 / fan_out)
                assert abs(ratio - 1) < 4 / math.sqrt(2 * module.weight.numel())
                # normal, not uniform: the largest of so many lies beyond a uniform's end
                assert module.weight.abs().max() > 2 * module.weight.std()
                assert module.bias is None
            elif isinstance(module, nn.BatchNorm2d):
                assert module.weight.eq(1).all()
                assert module.bias.eq(0).all()

    def test_transformers_start_as_in_deit(self):
        model = ImageEncoder.build("vit-tiny", seed=1).model
        for name, value in model.named_parameters():
            if name.endswith("bias"):
                assert value.eq(0).all()
            elif "norm" in name:
                assert value.eq(1).all()
            else:
                ratio = value.std().item() / 0.02
                assert abs(ratio - 1) < 4 / math.sqrt(2 * value.numel())

    @pytest.mark.parametrize("name", ["resnet9", "vit-tiny"])
    def test_weights_are_a_function_of_the_seed(self, name):
        def built(seed):
            return ImageEncoder.build(name, width=12, seed=seed).fingerprint()

        state = torch.random.get_rng_state()
        assert built(3) == built(3) != built(4)
        assert torch.equal(torch.random.get_rng_state(), state)
        torch.manual_seed(5)
        first, second = built(None), built(None)
        torch.manual_seed(5)
        assert (built(None), built(None)) == (first, second)
        assert first != second

    @pytest.mark.parametrize(
        ("name", "choice", "message"),
        [
            ("resnet19", {}, r"no image encoder 'resnet19' \(did you mean 'resnet\d+'\?\); known"),
            ("resnet18", {"stem": "small"}, "'auto', 'cifar' or 'imagenet'; found 'small'"),
            ("resnet18", {"width": 0}, "image size and width of at least 1; found 32 and 0"),
            ("resnet18", {"image_size": 0}, "image size and width of at least 1; found 0"),
            ("vit-tiny", {"stem": "cifar"}, "use the stem 'auto' for vit-tiny"),
            ("vit-tiny", {"image_size": 30}, "30 pixels cannot be cut into patches of 4"),
            ("vit-tiny", {"width": 13}, "a multiple of 3, the number of heads; found 13"),
            ("resnet9", {"std": (0.2, 0, 0.2)}, "standard deviations above 0"),
            ("resnet9", {"mean": (0.5,)}, r"the mean as 3 finite numbers; found \(0.5,\)"),
            ("resnet9", {"std": (1, 1, float("nan"))}, "deviation as 3 finite numbers"),
        ],
    )
    def test_what_cannot_be_built(self, name, choice, message):
        with pytest.raises(InputError, match=message):
            ImageEncoder.build(name, **choice)

    def test_the_names_are_those_that_are_built(self):
        assert set(ARCHITECTURES) >= {"resnet9", "resnet18", "resnet50", "vit-tiny", "vit-small"}


class TestForward:
    def test_a_resnet_pools_its_last_map(self, resnet):
        x = torch.rand(3, 3, 16, 16)
        mean, std = (torch.tensor(v)[:, None, None] for v in resnet._colours)
        maps = resnet.eval().model(pixel_values=(x - mean) / std).last_hidden_state
        torch.testing.assert_close(resnet(x), maps.mean((2, 3)))

    def test_a_transformer_gives_the_class_token_after_the_last_norm(self, vit):
        x = torch.rand(3, 3, 16, 16)
        h = vit.eval()(x)
        model = copy.deepcopy(vit)
        with torch.no_grad():
            model.model.layernorm.bias.add_(1)
        torch.testing.assert_close(model(x), h + 1)

    def test_colours_are_settings_and_no_state(self, resnet):
        assert not {"mean", "std"} & set(resnet.state_dict())
        plain = ImageEncoder.build(
            "resnet9", width=4, image_size=16, mean=[0] * 3, std=[1] * 3, seed=0
        ).eval()
        x = torch.rand(3, 3, 16, 16)
        torch.testing.assert_close(plain((x - resnet.mean) / resnet.std), resnet.eval()(x))
        assert plain.fingerprint() != resnet.fingerprint()

    @pytest.mark.parametrize("side", [8, 12, 24])
    def test_crops_of_another_size(self, resnet, vit, side):
        for encoder in (resnet, vit):
            assert encoder(torch.rand(2, 3, side, side)).shape == (2, encoder.dimension)

    def test_crops_that_no_patches_fit(self, vit):
        with pytest.raises(InputError, match="these images have 10 x 16 pixels"):
            vit(torch.rand(2, 3, 10, 16))

    @pytest.mark.parametrize("name", ["resnet9", "vit-tiny"])
    def test_every_parameter_learns(self, name):
        encoder = ImageEncoder.build(name, width=12, image_size=16, seed=0).double()
        h = encoder(torch.rand(4, 3, 16, 16, dtype=torch.float64))
        (h * torch.randn_like(h)).sum().backward()
        assert all(parameter.grad is not None for parameter in encoder.parameters())

    def test_a_frozen_patch_projection(self, vit, resnet):
        encoder = copy.deepcopy(vit)
        freeze_patches(nn.Sequential(encoder, nn.Linear(2, 2)))
        frozen = {name for name, p in encoder.named_parameters() if not p.requires_grad}
        place = "model.embeddings.patch_embeddings.projection."
        assert frozen == {place + "weight", place + "bias"}
        freeze_patches(resnet)  # it has none
        assert all(parameter.requires_grad for parameter in resnet.parameters())


class TestEncode:
    def test_it_is_forward_in_evaluation_mode(self, resnet):
        images = pictures(5, 16)
        with torch.no_grad():
            expected = resnet.eval()(torch.from_numpy(images) / 255).numpy()
        resnet.train()
        resnet.model.embedder.eval()
        found = resnet.encode(images, batch_size=2)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=1e-5)
        assert resnet.training
        assert not resnet.model.embedder.training

    def test_a_single_array_is_no_list_of_pictures(self, resnet):
        with pytest.raises(InputError, match="found 3 x 16 x 16"):
            resnet.encode(pictures(1, 16)[0])

    def test_arrays_tensors_pictures_and_files_are_alike(self, resnet, tmp_path):
        images = pictures(4, 20)
        last = images.transpose(0, 2, 3, 1)
        Image.fromarray(last[3]).save(tmp_path / "d.png")
        mixed = [images[0], torch.from_numpy(last[1]), Image.fromarray(last[2]), tmp_path / "d.png"]
        found = resnet.encode(images)
        for kind in (last, torch.from_numpy(images), list(images), iter(images), mixed):
            assert np.array_equal(resnet.encode(kind), found)

    def test_no_pictures_and_unit_vectors(self, vit):
        assert vit.encode([]).shape == (0, 24)
        norms = np.linalg.norm(vit.encode(pictures(3, 16), normalize=True), axis=1)
        np.testing.assert_allclose(norms, 1, atol=1e-6)

    @pytest.mark.usefixtures("terminal")
    def test_the_bar_counts_images(self, vit, capsys):
        vit.encode(pictures(3, 16), batch_size=2, progress=True)
        assert "3/3" in capsys.readouterr().err

    def test_what_cannot_be_encoded(self, vit):
        with pytest.raises(InputError, match="a batch size of at least 1; found 0"):
            vit.encode(pictures(1, 16), batch_size=0)
        for single in ("a.png", Image.new("RGB", (16, 16)), io.BytesIO()):
            with pytest.raises(InputError, match="give a list of pictures, even for a single"):
                vit.encode(single)
        with pytest.raises(InputError, match=r"h x w x 3 or h x w; found shape \(16, 16, 5\)"):
            vit.encode([np.zeros((16, 16, 5), np.uint8)])

    def test_broken_weights(self, vit):
        encoder = copy.deepcopy(vit).train()
        with torch.no_grad():
            encoder.model.layernorm.bias.fill_(float("nan"))
        with pytest.raises(InputError, match=r"train .* again .*, because some embeddings"):
            encoder.encode(pictures(1, 16))
        assert encoder.training


class TestWrap:
    def test_any_module(self):
        module = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))
        encoder = ImageEncoder.wrap(module, dimension=2, image_size=8, mean=[0] * 3, std=[1] * 3)
        x = torch.rand(4, 3, 8, 8)
        assert torch.equal(encoder(x), module(x))
        assert encoder.encode(pictures(4, 30)).shape == (4, 2)
        assert (encoder.name, encoder.device.type) == ("Sequential", "cpu")

    def test_one_without_parameters(self):
        encoder = ImageEncoder.wrap(nn.Flatten(), dimension=12, image_size=2)
        assert encoder.encode(pictures(1, 2)).shape == (1, 12)
        assert len(encoder.fingerprint()) == 16

    @pytest.mark.parametrize("head", [nn.Identity(), nn.Flatten(0), nn.Flatten(2)])
    @pytest.mark.parametrize("dimension", [2, 3])
    def test_another_shape_than_n_x_d(self, head, dimension):
        """A ResNet of torchvision without its last layer returns n x d x 1 x 1."""
        module = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(3, dimension, 1), head)
        encoder = ImageEncoder.wrap(module, dimension=dimension, image_size=8)
        with pytest.raises(InputError, match=r"nn.Sequential\(module, nn.Flatten\(\)\)"):
            encoder.encode(pictures(3, 8))

    def test_one_column_is_not_repeated(self):
        module = nn.Sequential(nn.Flatten(), nn.Linear(12, 1))
        with pytest.raises(InputError, match=r"returned torch.Size\(\[3, 1\]\)"):
            ImageEncoder.wrap(module, dimension=4, image_size=2).encode(pictures(3, 2))

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
    def test_weights_of_another_dtype(self, resnet, dtype, tmp_path):
        encoder = copy.deepcopy(resnet).to(dtype)
        assert encoder.encode(pictures(2, 16)).shape == (2, resnet.dimension)
        assert encoder._colours == resnet._colours
        encoder.save(tmp_path / "saved")
        saved = json.loads((tmp_path / "saved" / "preprocessor_config.json").read_text())
        assert saved["image_mean"] == list(IMAGENET_MEAN)
        assert saved["image_std"] == list(IMAGENET_STD)

    def test_weights_that_move_after_wrap(self):
        module = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
        encoder = ImageEncoder.wrap(module, dimension=2, image_size=2)
        module.to("meta")
        assert encoder.device.type == "meta"
        assert encoder(torch.rand(3, 3, 2, 2, device="meta")).shape == (3, 2)


class TestFingerprint:
    def test_it_changes_with_what_decides_the_embeddings(self, resnet):
        found = resnet.fingerprint()
        other = copy.deepcopy(resnet)
        other.name = "another name"
        assert other.fingerprint() == found
        with torch.no_grad():
            next(other.parameters())[0, 0, 0, 0] += 1
        assert other.fingerprint() != found
        other = copy.deepcopy(resnet)
        other.image_size = 8
        assert other.fingerprint() != found
