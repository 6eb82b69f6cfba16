"""The folder of an image encoder: read back by us, and by transformers where it can."""

import json
import shutil
import stat

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, load_model, save_file
from torch import nn

import isotrope
from isotrope.core.errors import InputError
from isotrope.encoders import ImageEncoder, SentenceEncoder, load
from isotrope.encoders.image_folder import CIFAR, MODULE
from isotrope.encoders.quiet import quiet_loading

# plain and fractional scales, upright and lying, smaller and larger than the side
SIZES = [(32, 32), (64, 32), (45, 33), (20, 31), (31, 90), (5, 7)]


@pytest.fixture(scope="module")
def pictures():
    rng = np.random.default_rng(0)
    return [Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)) for size in SIZES]


def trained(name, **choice):
    """An encoder whose batch norms have seen something, and whose norms are not the identity."""
    encoder = ImageEncoder.build(name, image_size=32, seed=0, mean=(0.4, 0.5, 0.6), **choice)
    generator = torch.Generator().manual_seed(0)
    encoder.train()(torch.rand(8, 3, 32, 32, generator=generator))
    with torch.no_grad():
        for parameter in encoder.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return encoder.eval()


ENCODERS = {
    "cifar": lambda: trained("resnet9", width=4),
    "imagenet": lambda: trained("resnet9", width=4, stem="imagenet"),
    "bottleneck": lambda: trained("resnet50", width=2, stem="imagenet"),
    "vit": lambda: trained("vit-tiny", width=24),
}


@pytest.fixture(scope="module", params=ENCODERS)
def saved(request, tmp_path_factory):
    encoder = ENCODERS[request.param]()
    folder = tmp_path_factory.mktemp("encoders") / request.param
    encoder.save(folder)
    return encoder, folder


@pytest.fixture(scope="module")
def cifar(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoders") / "cifar"
    ENCODERS["cifar"]().save(folder)
    return folder


@pytest.fixture
def folder(cifar, tmp_path):
    """A saved encoder, for a test to spoil."""
    shutil.copytree(cifar, tmp_path / "encoder")
    return tmp_path / "encoder"


def edit(file, **values):
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


class TestOurs:
    def test_what_was_saved_is_read_back(self, saved, pictures):
        encoder, folder = saved
        found = isotrope.load(folder, device="cpu")
        assert isinstance(found, ImageEncoder)
        assert np.array_equal(found.encode(pictures), encoder.encode(pictures))
        assert found.fingerprint() == encoder.fingerprint()
        assert (found.dimension, found.image_size) == (encoder.dimension, 32)
        assert found.name == str(folder)
        assert not found.training
        assert found._colours == encoder._colours

    def test_it_holds_no_code_and_no_pickle(self, saved):
        names = {"README.md", "config.json", "model.safetensors", "preprocessor_config.json"}
        assert {file.name for file in saved[1].iterdir()} == names
        assert stat.S_IMODE((saved[1] / "model.safetensors").stat().st_mode) == 0o644
        assert "isotrope.load" in (saved[1] / "README.md").read_text()

    def test_saving_changes_nothing(self, saved, tmp_path):
        encoder, folder = saved
        encoder.save(tmp_path / "again", card="mine")
        for name in ("config.json", "model.safetensors", "preprocessor_config.json"):
            assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()
        assert (tmp_path / "again" / "README.md").read_text() == "mine"
        assert not any("pooler" in name for name in encoder.state_dict())

    def test_a_run_folder(self, folder, tmp_path):
        run = tmp_path / "run"
        run.mkdir()
        (run / "result.json").write_text("{}")
        folder.rename(run / "model")
        assert isinstance(load(run, device="cpu"), ImageEncoder)

    def test_a_folder_that_cannot_be_written(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(InputError, match="cannot write"):
            ENCODERS["cifar"]().save(tmp_path / "file" / "encoder")


class TestTransformers:
    @pytest.mark.parametrize("saved", ["imagenet", "bottleneck", "vit"], indirect=True)
    def test_it_gives_the_same_features(self, saved, pictures):
        from transformers import AutoImageProcessor, AutoModel

        encoder, folder = saved
        with quiet_loading() as report:
            model = AutoModel.from_pretrained(folder)
            processor = AutoImageProcessor.from_pretrained(folder)
        assert not any("MISSING" in text for text in report.messages)
        # pixels by pixels, and the features
        prepared = processor(pictures, return_tensors="pt")["pixel_values"]
        with torch.no_grad():
            output = model(prepared)
        found = encoder.encode(pictures)
        expected = output.pooler_output.flatten(1).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(found).max())
        if "vit" in folder.name:
            assert torch.equal(output.pooler_output, output.last_hidden_state[:, 0])

    def test_a_stem_that_it_does_not_know_is_refused_loudly(self, cifar):
        from transformers import (
            AutoImageProcessor,
            AutoModel,
            AutoModelForImageClassification,
            ResNetModel,
        )

        with quiet_loading():
            for kind in (AutoModel, AutoModelForImageClassification):
                with pytest.raises(ValueError, match=f"model type `{CIFAR}` but Transformers does"):
                    kind.from_pretrained(cifar)
            with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
                ResNetModel.from_pretrained(cifar)
            assert AutoImageProcessor.from_pretrained(cifar).crop_size["height"] == 32

    def test_models_of_others(self, pictures, tmp_path):
        from transformers import (
            ConvNextConfig,
            ConvNextModel,
            Dinov2Config,
            Dinov2Model,
            ResNetConfig,
            ResNetForImageClassification,
            ViTConfig,
            ViTModel,
        )

        sizes = {"hidden_sizes": [4, 8, 8, 12], "depths": [1, 1, 1, 1]}
        token = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2}
        with quiet_loading():
            models = [
                ResNetForImageClassification(ResNetConfig(embedding_size=4, **sizes)),
                ConvNextModel(ConvNextConfig(**sizes)),
                ViTModel(ViTConfig(**token, image_size=32, patch_size=8)),
                Dinov2Model(Dinov2Config(**token, image_size=28, patch_size=14)),
            ]
            for model in models:
                model.eval().save_pretrained(tmp_path / type(model).__name__)
        for model in models:
            encoder = load(tmp_path / type(model).__name__, device="cpu")
            assert encoder.dimension == 12
            x = torch.rand(2, 3, encoder.image_size, encoder.image_size)
            with torch.no_grad():
                output = getattr(model, "resnet", model)((x - encoder.mean) / encoder.std)
                tokens = output.last_hidden_state
                first = tokens[:, 0] if tokens.ndim == 3 else output.pooler_output.flatten(1)
                torch.testing.assert_close(encoder(x), first)
        # the last one, DINOv2, has a parameter that is not used: DDP would wait for its gradient
        encoder(x).sum().backward()
        assert all(p.grad is not None for p in encoder.parameters() if p.requires_grad)

    @pytest.mark.parametrize(
        ("processor", "expected"),
        [
            ({"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}}, 224),
            ({"size": {"height": 48, "width": 48}}, 48),
            ({"size": 40}, 40),
            ({}, 224),
        ],
    )
    def test_sizes_as_processors_write_them(self, folder, processor, expected):
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
        assert ImageEncoder.load(folder, device="cpu").image_size == expected


class TestModules:
    @pytest.fixture
    def stored(self, tmp_path):
        module = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
        module.append(module[1])  # shared weights are stored once
        ImageEncoder.wrap(module[:2], dimension=2, image_size=2).save(tmp_path / "own")
        return module, tmp_path / "own"

    def test_the_weights_of_ones_own_module(self, stored):
        module, folder = stored
        fresh = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
        load_model(fresh, folder / "model.safetensors")
        assert torch.equal(fresh[1].weight, module[1].weight)
        with pytest.raises(InputError, match=r"build the module Sequential, load its weights"):
            load(folder)

    def test_its_card_says_how_it_is_loaded(self, stored):
        module, folder = stored
        card = (folder / "README.md").read_text()
        code = card.split("```python\n")[1].split("```")[0]
        built = "nn.Sequential(nn.Flatten(), nn.Linear(12, 2))"
        code = code.replace("Sequential(...)", built).replace("path/to/this/folder", str(folder))
        code = code.partition("features =")[0]
        names = {"nn": nn}
        exec(code, names)
        encoder = names["encoder"]
        assert (encoder.dimension, encoder.image_size) == (2, 2)
        pictures = np.zeros((1, 3, 2, 2), np.uint8)
        expected = ImageEncoder.wrap(module[:2], dimension=2, image_size=2).encode(pictures)
        np.testing.assert_array_equal(encoder.encode(pictures), expected)

    def test_transformers_refuses_it(self, stored):
        from transformers import AutoModel

        with quiet_loading(), pytest.raises(ValueError, match=f"model type `{MODULE}` but Trans"):
            AutoModel.from_pretrained(stored[1])

    def test_a_config_makes_no_module_a_network(self, tmp_path):
        """A module that keeps the config of its backbone, and a subclass with another output."""
        from transformers import ViTModel

        class Headed(nn.Module):
            def __init__(self, backbone):
                super().__init__()
                self.backbone, self.config = backbone, backbone.config

            def forward(self, x):
                return self.backbone(pixel_values=x).last_hidden_state[:, 0]

        class Mean(ViTModel):
            def forward(self, pixels):
                return super().forward(pixel_values=pixels).last_hidden_state.mean(dim=1)

        net = ENCODERS["vit"]().model
        mean = Mean(net.config, add_pooling_layer=False)
        for module in (Headed(net), mean):
            encoder = ImageEncoder.wrap(module, dimension=net.config.hidden_size, image_size=32)
            encoder.save(tmp_path / "own")
            written = json.loads((tmp_path / "own" / "config.json").read_text())
            assert written == {"model_type": MODULE, "module": type(module).__name__}
            with pytest.raises(InputError, match="holds only the weights"):
                ImageEncoder.load(tmp_path / "own")


class TestBroken:
    def test_another_network(self, folder):
        edit(folder / "config.json", model_type="swin")
        with pytest.raises(InputError, match=r"give an image encoder .* of the type 'swin'"):
            ImageEncoder.load(folder)

    def test_text_is_no_image_encoder_and_the_other_way_round(self, tiny, folder, tmp_path):
        tiny.save(tmp_path / "text")
        assert isinstance(load(tmp_path / "text", device="cpu"), SentenceEncoder)
        with pytest.raises(InputError, match=r"or a model of the type resnet"):
            ImageEncoder.load(tmp_path / "text")
        with pytest.raises(
            InputError, match=r"load .* with isotrope\.load; this model takes images, not text"
        ):
            SentenceEncoder.load(folder)

    def test_a_pooling_is_for_text(self, folder):
        with pytest.raises(InputError, match=r"leave out pooling, .* takes images"):
            load(folder, pooling="mean")
        with pytest.raises(InputError, match="leave out model_kwargs, an option for text"):
            load(folder, model_kwargs={"dtype": "float16"})

    @pytest.mark.parametrize("kind", ["cifar", "resnet"])
    def test_weights_that_are_not_all_there(self, kind, folder, tmp_path):
        if kind == "resnet":
            folder = tmp_path / "imagenet"
            ENCODERS["imagenet"]().save(folder)
        weights = load_file(folder / "model.safetensors")
        del weights["encoder.stages.0.layers.0.layer.0.convolution.weight"]
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        with pytest.raises(InputError, match=r"can be loaded: .*Missing key|lacks weights"):
            ImageEncoder.load(folder)

    def test_weights_of_other_shapes(self, folder):
        edit(folder / "config.json", embedding_size=8)
        with pytest.raises(InputError, match="is not a model that can be loaded: "):
            ImageEncoder.load(folder)

    def test_pickles_are_not_opened(self, folder):
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        with pytest.raises(InputError, match=r"has only pytorch_model\.bin, a pickle, which"):
            load(folder)

    def test_code_in_the_folder_is_not_run(self, tmp_path):
        ENCODERS["imagenet"]().save(tmp_path / "trap")
        (tmp_path / "trap" / "net.py").write_text("raise SystemExit('the code of the folder ran')")
        for file, auto in (("config", "AutoModel"), ("preprocessor_config", "AutoImageProcessor")):
            edit(tmp_path / "trap" / f"{file}.json", auto_map={auto: "net.Net"})
        with pytest.raises(InputError, match="leave out trust_remote_code"):
            load(tmp_path / "trap", device="cpu", trust_remote_code=True)
        encoder = load(tmp_path / "trap", device="cpu")
        assert type(encoder.model).__name__ == "ResNetModel"

    @pytest.mark.parametrize("size", [{"longest_edge": 9}, "large", -3])
    def test_no_size(self, folder, size):
        edit(folder / "preprocessor_config.json", crop_size=size)
        with pytest.raises(InputError, match=r"set the size in .*preprocessor_config\.json"):
            ImageEncoder.load(folder)

    def test_pictures_are_normalised_as_the_processor_does(self, folder):
        from transformers import AutoImageProcessor

        grey = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
        for values in ({}, {"rescale_factor": 0.003921569}, {"do_normalize": False}):
            edit(folder / "preprocessor_config.json", **values)
            processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
            expected = processor(grey, return_tensors="np")["pixel_values"][0]
            encoder = ImageEncoder.load(folder, device="cpu")
            pixels = grey.transpose(2, 0, 1) / 255
            found = (pixels - encoder.mean.numpy()) / encoder.std.numpy()
            np.testing.assert_allclose(found, expected, atol=1e-4)

    @pytest.mark.parametrize(
        "values", [{"do_rescale": False}, {"rescale_factor": 1 / 127.5}, {"rescale_factor": "x"}]
    )
    def test_pixels_of_another_scale(self, folder, values):
        edit(folder / "preprocessor_config.json", **values)
        with pytest.raises(
            InputError, match=r"set do_rescale to true and rescale_factor to 0\.0039"
        ):
            ImageEncoder.load(folder)

    @pytest.mark.parametrize(("key", "value"), [("image_mean", 0.5), ("image_std", ["a"] * 3)])
    def test_no_colours(self, folder, key, value):
        edit(folder / "preprocessor_config.json", **{key: value})
        with pytest.raises(InputError, match="as 3 finite numbers; found"):
            ImageEncoder.load(folder)

    def test_colours_that_are_not_normalised(self, folder):
        edit(folder / "preprocessor_config.json", do_normalize=False)
        encoder = ImageEncoder.load(folder)
        assert (*encoder.mean.flatten(), *encoder.std.flatten()) == (0, 0, 0, 1, 1, 1)

    @pytest.mark.parametrize("name", ["config.json", "preprocessor_config.json"])
    def test_a_file_that_was_cut_short(self, folder, name):
        (folder / name).write_text("{")
        with pytest.raises(InputError, match=f"{name}: .* is not valid JSON"):
            load(folder)

    def test_a_hub_id_while_the_hub_is_switched_off(self):
        with pytest.raises(InputError, match="'microsoft/resnet-18' is neither a folder here nor"):
            ImageEncoder.load("microsoft/resnet-18")
