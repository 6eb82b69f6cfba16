"""Makes the image tasks of ``isotrope.evaluate``; they read a run's data or a labelled folder.

Pictures are read and encoded in blocks. Memory holds all features, and the pixels of one block.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from isotrope.core.errors import InputError
from isotrope.core.fingerprint import fingerprint
from isotrope.core.progress import bar, showing
from isotrope.core.result import Result
from isotrope.core.run_folder import RunFolder
from isotrope.core.trust import check_named
from isotrope.data.images.records import ImagePart, ImageSet, balanced_prefix, matched
from isotrope.data.text.labelled import Features
from isotrope.data.text.repeats import hash64
from isotrope.evaluation.embed import Encoder, encode_all
from isotrope.evaluation.nearest import knn as nearest_neighbours
from isotrope.evaluation.tasks import Task, classification_tasks
from isotrope.measures.judgement import DevEvaluation

_HELD_OUT = 0.2  # share of every class to test on, if labelled pictures have no test part


def takes_images(model: object, *, ask_hub: bool = False) -> bool:
    """Return True if a model takes pictures, False if it takes texts. The model is not loaded.

    Args:
        model: A name, a folder or an encoder. An encoder with ``image_size`` takes pictures.
        ask_hub: Whether to look up a name on the hub if there is no folder with this name.
    """
    if not isinstance(model, (str, Path)):
        return hasattr(model, "image_size")
    from isotrope.encoders.model_folder import is_image, is_model
    from isotrope.encoders.names import is_bm25, resolve

    folder = Path(model).expanduser()
    if folder.is_dir():
        own = RunFolder(folder).model
        return is_image(folder) if is_model(folder) else _is_image_run(folder) or is_image(own)
    return ask_hub and not is_bm25(model) and is_image(resolve(model))


def _is_image_run(run: Path) -> bool:
    """Return whether a folder is the folder of a run on images, finished or not."""
    files = RunFolder(run)
    return files.is_begun and files.config.is_file() and "data" in files.settings()


def own_images(run: str | Path) -> ImageSet:
    """Open the training and test pictures of a run, split and resized as in its training."""
    from isotrope.data.images.sets import load_images

    run = Path(run).expanduser()
    remedy = "give labelled pictures with `--labels FOLDER`"
    if not _is_image_run(run):
        raise InputError(f"{remedy}: {run} is not the folder of a run on images")
    settings = RunFolder(run).settings()
    data = str(settings["data"])
    check_named(data)
    if data != "digits" and not Path(data).exists():
        raise InputError(
            "run this where the training ran, or give the new folder with `--labels FOLDER`: "
            f"{run} was trained on the pictures in {data}, and this path does not exist"
        )
    result = Result.load(RunFolder(run).result)
    data_fingerprint, data_details = result.provenance.get("data"), result.details.get("data")
    side = data_details.get("side") if isinstance(data_details, Mapping) else None
    image_set = load_images(
        data,
        side=side if isinstance(side, int) else None,
        holdout=settings.get("holdout", 0.0),
        seed=settings.get("seed", 0),
        limit=settings.get("limit"),
        classes=Path(str(settings["classes"])) if settings.get("classes") else None,
    )
    if data_fingerprint != image_set.fingerprint:
        raise InputError(
            f"use `--labels {data}` to score on the present pictures: they changed after {run} was "
            f"trained (fingerprint then: {data_fingerprint}; now: {image_set.fingerprint})"
        )
    if image_set.test is None or image_set.train.labels is None:
        lack = "no labels" if image_set.train.labels is None else "no test part"
        raise InputError(f"{remedy}: the pictures of {run} have {lack}")
    return image_set


def labelled_images(labels: Path, test: Path | None, side: int) -> ImageSet:
    """Open labelled pictures. If ``test`` is None, a fifth of each class is the test part.

    The classes of ``labels`` and ``test`` are matched by name, or by number if neither has names.
    """
    from isotrope.data.images.sets import load_images

    if test is None:
        return load_images(labels, side=side, holdout=_HELD_OUT)
    train_set, test_set = load_images(labels, side=side), load_images(test, side=side)
    numbers = test_set.train.labels  # a set without a split is all training part
    if numbers is not None:
        numbers = matched(numbers, test_set.class_names, train_set.class_names)
    return replace(
        train_set,
        test=replace(test_set.train, labels=numbers),
        fingerprint=fingerprint(train_set.fingerprint, test_set.fingerprint, numbers),
        skipped=train_set.skipped + test_set.skipped,
    )


def image_tasks(image_set: ImageSet, *, knn: bool, linear: bool, batch_size: int) -> list[Task]:
    """Return the tasks (kNN, linear probe) of a labelled set of pictures."""
    features = partial(both_features, image_set=image_set, batch_size=batch_size)

    def counts() -> dict[str, int]:
        return {"skipped": len(image_set.skipped), "replaced": len(image_set.replaced)}

    return classification_tasks(image_set.fingerprint, features, counts, knn=knn, linear=linear)


def image_features(
    encoder: Encoder,
    part: ImagePart,
    *,
    what: str = "training",
    limit: int | None = None,
    batch_size: int = 256,
) -> Features:
    """Return the features (n x d, float32), the labels and the hashes of labelled pictures.

    Pictures without a label (below 0) are left out.

    Args:
        encoder: An ImageEncoder, or any object whose ``encode`` returns n vectors of one size for n
            pictures (uint8, n x 3 x side x side). ``encode`` must switch to evaluation mode.
        part: The pictures.
        what: Name of the part for messages.
        limit: Largest number of pictures, taken in turn from the classes. None takes all.
        batch_size: Number of pictures that are read and encoded at a time.
    """
    if part.labels is None:
        raise InputError(
            f"put each class into its own folder, or add labels to the .npz file: the {what} "
            "pictures have no labels, which kNN and a linear probe need"
        )
    labels = np.asarray(part.labels)
    known = np.flatnonzero(labels >= 0)
    count = len(known) if limit is None else limit
    chosen = known[balanced_prefix(labels[known], count, len(known))]
    blocks, marks = list[np.ndarray](), np.empty(len(chosen), np.uint64)
    with bar(len(chosen), "embed", f"{what} pictures") as done, showing(show=False):
        for first in range(0, len(chosen), batch_size):
            index = chosen[first : first + batch_size]
            pictures = part.images.read(index)
            marks[first : first + len(index)] = [hash64(pixels.tobytes()) for pixels in pictures]
            blocks.append(encode_all(encoder, pictures, batch_size))
            done(len(pictures))
    return Features(np.concatenate(blocks or [np.empty((0, 0), np.float32)]), labels[chosen], marks)


def both_features(
    encoder: Encoder, image_set: ImageSet, *, limit: int | None = None, batch_size: int = 256
) -> tuple[Features, Features]:
    """Return the features of the training pictures and of the test pictures, ``limit`` of each."""
    assert image_set.test is not None  # sets without a test part are refused, or not scored
    features = partial(image_features, encoder, limit=limit, batch_size=batch_size)
    return features(image_set.train, what="training"), features(image_set.test, what="test")


def knn_evaluation(
    encoder: Encoder, image_set: ImageSet, *, limit: int | None = None
) -> DevEvaluation:
    """Return the kNN accuracy in percent, and for each test picture whether its class is right."""
    result = nearest_neighbours(*both_features(encoder, image_set, limit=limit))
    return DevEvaluation(100 * float(result.metrics["knn_top1"] or 0.0), result.items["knn_top1"])
