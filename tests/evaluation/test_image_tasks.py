import json

import numpy as np
import pytest
from PIL import Image

import isotrope
from isotrope.core.errors import InputError
from isotrope.core.run_folder import RunFolder
from isotrope.data.images.sets import load_images
from isotrope.encoders.image import ImageEncoder
from isotrope.evaluation.image_tasks import both_features, labelled_images, own_images, takes_images
from isotrope.evaluation.linear_probe import linear_probe
from isotrope.evaluation.nearest import knn

from ..image_run import write_image_run, write_pictures
from ..refused import refused_setting
from .pictures import Sums


@pytest.fixture
def data(tmp_path):
    return write_pictures(tmp_path / "data" / "blobs.npz")


@pytest.fixture
def run(tmp_path, data):
    return write_image_run(tmp_path / "run", data)


def same(found, expected):
    assert expected.metrics.items() <= found.metrics.items()
    for key, items in expected.items.items():
        np.testing.assert_array_equal(found.items[key], items)


class TestOwnPictures:
    def test_a_run_is_scored_on_its_own_split(self, run, data, monkeypatch):
        found = isotrope.evaluate(run, device="cpu")
        features = both_features(ImageEncoder.load(run, device="cpu"), load_images(data))
        same(found, knn(*features))
        same(found, linear_probe(*features))
        assert found.kind == "knn+linear"
        assert found.details["knn"]["train"] == 80
        assert found.details["knn"]["test"] == 40
        assert (found.details["knn"]["skipped"], found.details["knn"]["replaced"]) == (0, 0)
        assert found.details["data"]["knn"] == load_images(data).fingerprint
        # kept in the run, and not scored again
        assert len(list((run / "evaluations").glob("*.json"))) == 2
        monkeypatch.setattr(ImageEncoder, "encode", None)
        again = isotrope.evaluate(str(run), device="cpu")
        assert again.metrics == found.metrics
        assert again.provenance["reused"] == ["knn", "linear"]

    def test_what_was_held_out_and_limited_is_so_again(self, tmp_path):
        data = write_pictures(tmp_path / "one.npz", test=False)
        options = {"holdout": 0.25, "seed": 3, "limit": 32}
        run = write_image_run(tmp_path / "run", data, **options)
        found = isotrope.evaluate(run, linear=False, device="cpu")
        expected = load_images(data, **options)
        same(found, knn(*both_features(ImageEncoder.load(run, device="cpu"), expected)))
        assert (found.details["knn"]["train"], found.details["knn"]["test"]) == (32, 20)

    def test_each_picture_is_encoded_once(self, run, monkeypatch):
        seen = []
        encode = ImageEncoder.encode
        monkeypatch.setattr(
            ImageEncoder,
            "encode",
            lambda self, images, **options: seen.append(len(images)) or encode(self, images),
        )
        isotrope.evaluate(run, device="cpu", batch_size=32)
        assert sum(seen) == 120
        assert max(seen) == 32

    def test_pictures_that_are_gone_or_others(self, run, data):
        moved = data.rename(data.with_name("moved.npz"))
        with pytest.raises(
            InputError, match=r"run this where.*labels=FOLDER: .* was trained on .*blobs\.npz"
        ):
            own_images(run)
        assert isotrope.evaluate(run, labels=moved, linear=False, device="cpu").kind == "knn"
        write_pictures(data, seed=1)
        with pytest.raises(InputError, match=r"labels=.* changed after .* was trained"):
            own_images(run)

    def test_no_labels_or_test_part(self, tmp_path):
        flat = write_pictures(tmp_path / "flat.npz", test=False, labels=False)
        with pytest.raises(InputError, match=r"give labelled pictures with .* have no labels"):
            own_images(write_image_run(tmp_path / "flat", flat))
        one = write_pictures(tmp_path / "one.npz", test=False)
        with pytest.raises(InputError, match=r"give labelled pictures with .* have no test part"):
            own_images(write_image_run(tmp_path / "one", one))

    def test_damaged_settings(self, run, data):
        (run / "config.yaml").write_text(f"data: {data}\nholdout: some\n")
        with pytest.raises(InputError, match=r"blobs\.npz.*; it is not opened, because only"):
            isotrope.evaluate(run, device="cpu")
        (run / "config.yaml").write_text("- data\n")
        with pytest.raises(InputError, match="must hold settings"):
            own_images(run)
        (run / "config.yaml").write_text("data: [")
        with pytest.raises(InputError, match="is not YAML"):
            own_images(run)
        with pytest.raises(InputError, match="is not the folder of a run on images"):
            isotrope.evaluate(run / "model", device="cpu")


def write_folder(folder, images, names):
    for i, (pixels, label) in enumerate(
        zip(images.images.read(np.arange(len(images.labels))), images.labels, strict=True)
    ):
        place = folder / names[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.transpose(1, 2, 0)).save(place / f"{i:03}.png")


class TestLabelledPictures:
    def test_a_set_of_both_parts(self, run, tmp_path):
        other = write_pictures(tmp_path / "other.npz", seed=5)
        found = isotrope.evaluate(run, labels=other, linear=False, device="cpu")
        encoder = ImageEncoder.load(run, device="cpu")
        same(found, knn(*both_features(encoder, load_images(other))))
        same(isotrope.evaluate(encoder, labels=other, linear=False, results=None), found)

    def test_one_part_gives_a_fifth_to_test_on(self, run, tmp_path):
        other = write_pictures(tmp_path / "other.npz", test=False)
        found = isotrope.evaluate(run, labels=other, linear=False, device="cpu")
        assert (found.details["knn"]["train"], found.details["knn"]["test"]) == (64, 16)

    def test_two_folders_agree_by_the_names_of_their_classes(self, tmp_path, data):
        whole = load_images(data)
        names = ["ant", "bee", "cow", "dog"]
        write_folder(tmp_path / "train", whole.train, names)
        write_folder(tmp_path / "test", whole.test, names)
        joined = labelled_images(tmp_path / "train", tmp_path / "test", 8)
        assert knn(*both_features(Sums(), joined)).metrics["knn_top1"] == pytest.approx(
            knn(*both_features(Sums(), whole)).metrics["knn_top1"], abs=0.05
        )
        # two classes of other names come first in order: their numbers are others, too
        for old, new in (("ant", "zebra"), ("bee", "aardvark")):
            (tmp_path / "test" / old).rename(tmp_path / "test" / new)
        renamed = labelled_images(tmp_path / "train", tmp_path / "test", 8)
        found = knn(*both_features(Sums(), renamed))
        assert found.details["knn"]["unseen"] == 20
        kept = np.isin(renamed.test.labels, [2, 3])
        assert kept.sum() == 20
        before = knn(*both_features(Sums(), joined)).items["knn_top1"][20:]
        np.testing.assert_array_equal(found.items["knn_top1"][kept], before)
        assert renamed.fingerprint != joined.fingerprint

    def test_names_and_numbers_do_not_agree(self, tmp_path):
        rng = np.random.default_rng(0)
        pixels = rng.integers(0, 256, size=(24, 8, 8, 3), dtype=np.uint8)
        numbers = np.arange(24) // 2  # 12 classes: sorted by name, 10 comes before 2
        np.savez(tmp_path / "numbers.npz", x=pixels, y=numbers)
        for i, picture in enumerate(pixels):
            (tmp_path / "folder" / str(numbers[i])).mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture).save(tmp_path / "folder" / str(numbers[i]) / f"{i}.png")
        for train, test in (("folder", "numbers.npz"), ("numbers.npz", "folder")):
            with pytest.raises(InputError, match="one part has names of classes, and the other"):
                labelled_images(tmp_path / train, tmp_path / test, 8)
        both = labelled_images(tmp_path / "numbers.npz", tmp_path / "numbers.npz", 8)
        assert knn(*both_features(Sums(), both), k=2).metrics["knn_top1"] == 1

    def test_they_are_read_at_the_size_of_the_encoder(self, run, tmp_path):
        rng = np.random.default_rng(0)
        pixels = rng.integers(0, 256, size=(20, 24, 24, 3), dtype=np.uint8)
        np.savez(tmp_path / "large.npz", x=pixels, y=np.arange(20) % 2)
        assert labelled_images(tmp_path / "large.npz", None, 8).side == 8
        assert isotrope.evaluate(run, labels=tmp_path / "large.npz", device="cpu").kind


class TestWhatIsAsked:
    def test_text_of_an_encoder_of_pictures(self, run, tmp_path):
        with refused_setting("truncate_dim", value=4):
            isotrope.evaluate(run, truncate_dim=4)
        with pytest.raises(InputError, match=r"sts=.*, retrieval=.* \(the encoder takes"):
            isotrope.evaluate(run, sts=tmp_path, retrieval=tmp_path)
        with refused_setting("sts", value=tmp_path):
            isotrope.evaluate(ImageEncoder.build("resnet9", width=4, image_size=8), sts=tmp_path)

    def test_too_little(self, run, data):
        with pytest.raises(InputError, match=r"choose knn, linear, or both: .*run takes pictures"):
            isotrope.evaluate(run, knn=False, linear=False)
        with refused_setting("labels_test", value=data):
            isotrope.evaluate(run, labels_test=data)
        encoder = ImageEncoder.build("resnet9", width=4, image_size=8)
        with pytest.raises(InputError, match=r"give labelled pictures with .*: .* takes images"):
            isotrope.evaluate(encoder)
        with pytest.raises(InputError, match="leave out pooling, an option for text"):
            isotrope.evaluate(run, pooling="mean")

    def test_what_takes_pictures(self, run, tmp_path, tiny):
        assert takes_images(run)
        assert takes_images(str(run / "model"))
        assert takes_images(ImageEncoder.build("resnet9", width=4, image_size=8))
        assert not takes_images(tiny)
        assert not takes_images("all-MiniLM-L6-v2")
        assert not takes_images("all-MiniLM-L6-v2", ask_hub=True)
        assert not takes_images("bm25", ask_hub=True)
        with pytest.raises(InputError, match="no/such/model"):
            takes_images("no/such/model", ask_hub=True)
        unfinished = tmp_path / "unfinished"
        unfinished.mkdir()
        RunFolder(unfinished).write_settings("data: pictures\n")
        assert takes_images(unfinished)
        with pytest.raises(InputError, match="finish the training with"):
            isotrope.evaluate(unfinished)
        RunFolder(unfinished).write_settings("files: [a.txt]\n")
        assert not takes_images(unfinished)

    def test_settings_of_another_program_beside_a_model(self, tiny, tmp_path):
        tiny.save(tmp_path / "m")
        for settings in ("data:\n  train: a.tsv\n", "- a\n", "net: !!python/name:os.system\n"):
            (tmp_path / "m" / "config.yaml").write_text(settings)
            assert not takes_images(tmp_path / "m")
        RunFolder(tmp_path / "m").write_settings("data: pictures\n")
        assert not takes_images(tmp_path / "m"), "the folder itself is a model of text"

    def test_a_run_cut_short_between_model_and_result(self, run):
        (run / "result.json").unlink()
        with pytest.raises(InputError, match=r"result\.json: check the path"):
            isotrope.evaluate(run)

    def test_runs_side_by_side(self, tmp_path, data):
        from isotrope.evaluation.compare import compare

        runs = [write_image_run(tmp_path / str(seed), data, weights=seed) for seed in range(2)]
        found = compare([isotrope.evaluate(run, linear=False, device="cpu") for run in runs])
        assert list(found.details["columns"]) == ["knn_top1"]
        other = write_image_run(tmp_path / "o", write_pictures(tmp_path / "o.npz", seed=4))
        with pytest.raises(InputError, match="was scored on other data than"):
            compare([isotrope.evaluate(r, linear=False, device="cpu") for r in (runs[0], other)])


def test_the_store_survives_json(run):
    isotrope.evaluate(run, linear=False, device="cpu")
    (kept,) = (run / "evaluations").glob("knn-*.json")
    assert json.loads(kept.read_text())["metrics"]["knn_top5"] is None
