"""Folders of pictures: what is a class, what is left out, and what stands in for what breaks."""

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from isotrope.core.errors import InputError
from isotrope.core.pictures import square
from isotrope.data.images.encoded import EncodedImages
from isotrope.data.images.folder import load_folder
from isotrope.data.images.records import ImageSet
from isotrope.data.images.sets import load_images
from tests.patience import MINUTES

from ..pictures import folders, ramp, save


def names(found: ImageSet) -> list[str]:
    images = found.train.images
    assert isinstance(images, EncodedImages)
    return list(images.names)


def test_a_flat_folder_has_no_labels(tmp_path: Path) -> None:
    for name in ("b.PNG", "ä ö.jpg", "a.JPEG", "日本.WebP", ".hidden.png"):
        save(tmp_path / name, ramp(8, 8))
    (tmp_path / "notes.txt").write_text("no picture")
    found = load_folder(tmp_path)
    assert names(found) == ["a.JPEG", "b.PNG", "ä ö.jpg", "日本.WebP"]
    assert found.train.labels is None
    assert found.class_names is found.test is None
    assert found.skipped == ()


def test_folders_are_classes_and_what_lies_deeper_belongs_to_them(tmp_path: Path) -> None:
    save(tmp_path / "dog" / "x" / "y" / "1.png", ramp(8, 8))
    save(tmp_path / "dog" / "2.png", ramp(8, 8))
    save(tmp_path / "cat" / "3.png", ramp(8, 8))
    (tmp_path / "empty").mkdir()
    (tmp_path / "readme.md").write_text("pets")
    found = load_folder(tmp_path)
    assert found.class_names == ("cat", "dog")
    assert names(found) == ["cat/3.png", "dog/2.png", "dog/x/y/1.png"]
    assert found.train.labels is not None
    assert found.train.labels.tolist() == [0, 1, 1]


def test_one_folder_in_another_is_passed_through(tmp_path: Path) -> None:
    folders(tmp_path / "unpacked" / "data")
    (tmp_path / "unpacked" / "LICENSE").write_text("free")
    found = load_folder(tmp_path)
    assert found.class_names == ("c0", "c1")
    assert names(found)[0] == "c0/0.png"
    assert load_folder(tmp_path / "unpacked" / "data" / "c0").train.labels is None


def test_folders_without_pictures_do_not_count(tmp_path: Path) -> None:
    folders(tmp_path / "photos")
    for name in ("__MACOSX/photos/c0", "Annotations/c1"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "0.mat").write_text("outlines")
    assert load_images(tmp_path).class_names == ("c0", "c1")


def test_train_and_test(tmp_path: Path) -> None:
    folders(tmp_path / "train")
    assert load_folder(tmp_path).test is None
    save(tmp_path / "test" / "secret.png", ramp(8, 8))  # flat, as ImageNet's is
    found = load_folder(tmp_path)
    assert found.test is not None
    assert found.test.labels is None
    folders(tmp_path / "val", each=2)
    save(tmp_path / "val" / "never trained" / "0.png", ramp(8, 8))
    (tmp_path / "validation").mkdir()
    found = load_folder(tmp_path)
    assert found.class_names == ("c0", "c1", "never trained")
    assert found.train.labels is not None
    assert found.test is not None
    assert found.test.labels is not None
    assert found.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert found.test.labels.tolist() == [0, 0, 1, 1, 2]
    assert names(found)[0] == "train/c0/0.png"


@pytest.mark.parametrize(
    ("train", "test"),
    [("Train", "Test"), ("training", "testing"), ("TRAIN", "Valid"), ("train", "valid")],
)
def test_parts_of_other_names(tmp_path: Path, train: str, test: str) -> None:
    folders(tmp_path / train, classes=3)
    folders(tmp_path / test, classes=3, each=1)
    found = load_folder(tmp_path)
    assert found.class_names == ("c0", "c1", "c2")
    assert found.test is not None
    assert found.test.labels is not None
    assert found.test.labels.tolist() == [0, 1, 2]


def test_a_class_called_train_is_no_part(tmp_path: Path) -> None:
    for name in ("plane", "train"):
        save(tmp_path / name / "0.png", ramp(8, 8))
    with pytest.raises(InputError, match=r"if plane/ is the test part, rename it to test/"):
        load_folder(tmp_path)
    (tmp_path / "plane" / "0.png").unlink()  # a folder of annotations, say
    assert load_folder(tmp_path).class_names is None


def test_pictures_of_one_size_and_length_are_told_apart(tmp_path: Path) -> None:
    for shown in (ramp(8, 8), 255 - ramp(8, 8)):
        for place in ("a/0.bmp", "b/1.bmp"):
            save(tmp_path / str(shown[0, 0, 0]) / place, shown)
    first, second = (load_images(folder).fingerprint for folder in sorted(tmp_path.iterdir()))
    assert first != second


def test_names_of_classes_with_spaces(tmp_path: Path) -> None:
    for name in ("great white shark", "great", "tiger"):
        save(tmp_path / name / "0.png", ramp(8, 8))
        save(tmp_path / name / "1.png", ramp(8, 8))
    listed = tmp_path / "list.txt"
    listed.write_text("great white shark\ntiger\n")
    assert load_images(tmp_path, classes=listed).class_names == ("great white shark", "tiger")


def test_chosen_classes(tmp_path: Path) -> None:
    folders(tmp_path / "train", classes=4)
    folders(tmp_path / "val", classes=4, each=1)
    listed = tmp_path / "list.txt"
    listed.write_text("c3 a kind of dog\n\nc1\n")
    for classes in (("c3", "c1"), listed):
        found = load_images(tmp_path, classes=classes)
        assert found.class_names == ("c1", "c3")
        assert len(found.train.images) == 6
        assert found.test is not None
        assert found.test.labels is not None
        assert found.test.labels.tolist() == [0, 1]
    with pytest.raises(
        InputError,
        match=r"correct the class 'C3' .*'c3'.*; no folder exists for 1 of the 2 requested classes",
    ):
        load_images(tmp_path, classes=["c1", "C3"])
    with pytest.raises(InputError, match="name at least 2 different classes, not 1"):
        load_images(tmp_path, classes=["c1", "c1"])


def test_links_are_followed_but_not_round(tmp_path: Path) -> None:
    root = folders(tmp_path / "data")
    save(tmp_path / "elsewhere" / "9.png", ramp(8, 8))
    (root / "c2").symlink_to(tmp_path / "elsewhere")
    (root / "c0" / "up").symlink_to(root)
    (root / "c0" / "self").symlink_to(root / "c0")
    (root / "nowhere").symlink_to(root / "nowhere")
    (root / "c1" / "gone.png").symlink_to(tmp_path / "missing.png")
    (root / "c1" / "itself.png").symlink_to(root / "c1" / "itself.png")
    found = load_folder(root)
    assert found.class_names == ("c0", "c1", "c2")
    c0 = [name for name in names(found) if name.startswith("c0/")]
    assert c0 == ["c0/0.png", "c0/1.png", "c0/2.png"]
    assert names(found)[-1] == "c2/9.png"
    assert found.skipped == ("c1/gone.png", "c1/itself.png")
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "back").symlink_to(tmp_path / "alone")
    with pytest.raises(
        InputError, match=r"their names must end in .*, but the folder has no files"
    ):
        load_folder(tmp_path / "alone")


def test_what_cannot_be_read_is_left_out_and_counted(tmp_path: Path) -> None:
    folders(tmp_path)
    (tmp_path / "c0" / "text.png").write_text("these are words")
    (tmp_path / "c1" / "empty.jpg").touch()
    save(tmp_path / "c1" / "a jpeg.png", ramp(8, 8)).rename(tmp_path / "c1" / "a png.jpg")
    found = load_images(tmp_path)
    assert found.skipped == ("c0/text.png", "c1/empty.jpg")
    assert found.train.labels is not None
    assert found.train.labels.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert len(found.train.images) == 7
    assert found.replaced == ()


def test_names_are_written_once_for_all_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders(tmp_path)
    for i in range(5):
        (tmp_path / "c0" / f"text {i}.png").write_text("these are words")
    asked, names_of = [], EncodedImages.names.fget
    monkeypatch.setattr(
        EncodedImages, "names", property(lambda images: asked.append(1) or names_of(images))
    )
    found = load_folder(tmp_path)
    assert len(found.skipped) == 5
    found.train.images.broken[:4] = True
    assert len(found.replaced) == 4
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda root: None, r"must end in .bmp, .gif, .* .webp, but the folder has no files"),
        (lambda root: (root / "a.svg").touch(), r"put pictures .*, but the folder has only \.svg"),
        (
            lambda root: (root / "a.png").touch(),
            "none of 1 files can be read .* for example 'a.png'",
        ),
        (
            lambda root: save(folders(root) / "loose.png", ramp(8, 8)),
            r"2 subfolder\(s\) with pictures, and 1 picture\(s\) outside them",
        ),
        (
            lambda root: [folders(root / "train"), save(root / "train" / "l.png", ramp(8, 8))],
            r"train: put .* 2 subfolder\(s\) with pictures, and 1 picture\(s\) outside them",
        ),
        (
            lambda root: save(root / "one.png", ramp(8, 8)),
            "give at least 2 pictures to train on, not 1",
        ),
    ],
)
def test_folders_that_will_not_do(
    tmp_path: Path, make: Callable[[Path], object], message: str
) -> None:
    make(tmp_path)
    with pytest.raises(InputError, match=message):
        load_images(tmp_path)


def test_a_folder_that_goes_away(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"missing: check the path; it cannot be read .No such file"
    ):
        load_folder(tmp_path / "missing")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


class TestBroken:
    """Files whose body is damaged: the header says nothing of it."""

    @staticmethod
    def images(root: Path, *broken: str) -> EncodedImages:
        folders(root, classes=3, each=4)
        for name in broken:
            cut(root / name)
        images = load_folder(root).train.images.resized(8)
        assert isinstance(images, EncodedImages)
        return images

    def test_the_next_of_the_same_class_stands_in(self, tmp_path: Path) -> None:
        images = self.images(tmp_path, "c0/3.png", "c1/1.png", "c1/2.png")
        expected = {3: "c0/0.png", 5: "c1/3.png", 6: "c1/3.png", 4: "c1/0.png"}
        for i, name in expected.items():
            assert np.array_equal(images.read([i])[0], square(tmp_path / name, 8))
        assert images.replaced == ("c0/3.png", "c1/1.png", "c1/2.png")

    def test_in_any_order_it_is_the_same(self, tmp_path: Path) -> None:
        broken = ("c0/3.png", "c1/1.png", "c1/2.png", "c2/0.png")
        forward = self.images(tmp_path / "a", *broken).read(range(12))
        backward = self.images(tmp_path / "b", *broken).read(range(11, -1, -1))
        assert np.array_equal(forward, backward[::-1])

    def test_without_another_of_its_class_any(self, tmp_path: Path) -> None:
        images = self.images(tmp_path, *(f"c1/{i}.png" for i in range(4)))
        assert np.array_equal(images.read([5])[0], square(tmp_path / "c2/0.png", 8))

    def test_none_is_whole(self, tmp_path: Path) -> None:
        images = self.images(tmp_path, *(f"c{c}/{i}.png" for c in range(3) for i in range(4)))
        with pytest.raises(
            InputError, match="none of 12 pictures can be decoded, for example 'c1/1"
        ):
            images.read([5])

    def test_the_rest_of_a_set_never_leaks_in(self, tmp_path: Path) -> None:
        """What is held out to score on does not stand in for what is trained on."""
        folders(tmp_path, classes=2, each=10)
        found = load_images(tmp_path, holdout=0.5)
        assert isinstance(found.train.images, EncodedImages)
        assert found.test is not None
        for i in range(4):
            cut(tmp_path / found.train.images.names[i])
        own = {row.tobytes() for row in found.train.images.read(range(10))}
        assert not own & {row.tobytes() for row in found.test.images.read(range(10))}
        assert len(found.replaced) == 4


def test_a_copy_for_another_process_reads_the_same(tmp_path: Path) -> None:
    images = load_folder(folders(tmp_path)).train.images.resized(8)
    again = pickle.loads(pickle.dumps(images))
    assert np.array_equal(again.read([1, 4]), images.read([1, 4]))


class TestFingerprint:
    @staticmethod
    def of(root: Path, **settings: int) -> str:
        return load_images(root, **settings).fingerprint

    def test_it_changes_with_the_files(self, tmp_path: Path) -> None:
        root = folders(tmp_path / "a")
        first = self.of(root)
        assert self.of(folders(tmp_path / "elsewhere")) == first
        assert self.of(root, side=4) != first
        (root / "c0" / "0.png").touch()  # the time says nothing
        assert self.of(root) == first
        (root / "c0" / "0.png").rename(root / "c0" / "00.png")
        renamed = self.of(root)
        save(root / "c0" / "00.png", ramp(8, 8) // 7)
        assert len({first, renamed, self.of(root)}) == 3

    def test_it_changes_with_the_labels(self, tmp_path: Path) -> None:
        flat = folders(tmp_path / "a", classes=1)
        first = self.of(flat)
        save(flat / "c1" / "0.png", ramp(8, 8))
        labelled = load_images(flat)
        assert first != labelled.fingerprint

    def test_no_picture_is_decoded_for_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def never(*_: object) -> None:
            raise AssertionError

        monkeypatch.setattr("isotrope.data.images.encoded.square", never)
        self.of(folders(tmp_path))


def test_worker_processes_tell_what_broke(tmp_path: Path) -> None:
    images = TestBroken.images(tmp_path, "c1/1.png")
    process = torch.multiprocessing.get_context("fork").Process(target=images.read, args=([5],))
    process.start()
    process.join(MINUTES)
    assert process.exitcode == 0
    assert images.replaced == ("c1/1.png",)


def test_photos_of_other_kinds_are_read_or_counted(tmp_path: Path) -> None:
    for i in range(3):
        Image.fromarray(np.full((8, 8, 3), 60 * i, np.uint8)).save(tmp_path / f"{i}.png")
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "photo.jfif", format="JPEG")
    (tmp_path / "IMG_1.HEIC").write_bytes(b"\0\0\0\x18ftypheic" + bytes(40))
    found = load_folder(tmp_path)
    assert len(found.train.images) == 4
    assert found.skipped == ("IMG_1.HEIC",)
