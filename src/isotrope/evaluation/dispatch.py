"""``isotrope.evaluate``: chooses the tasks, scores an encoder on them, and joins the Results.

Finished tasks are stored on disk, so that no task is scored twice. Each task has a JSON file, which
is written as soon as the task is finished, so a killed process loses only the current task. The
file's name contains a fingerprint of everything that determines the scores: model, data, settings
and version of the protocol. The scores of single examples are in an .npz file beside the JSON file.
The .npz file is written first, and its name contains a fingerprint of its content. Therefore two
processes may finish the same task at the same time.
"""

import os
import shlex
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from zipfile import BadZipFile

import numpy as np

from isotrope.core.documents import open_arrays
from isotrope.core.errors import InputError
from isotrope.core.files import atomic_replace, os_errors_as_input_errors
from isotrope.core.fingerprint import fingerprint
from isotrope.core.progress import showing
from isotrope.core.result import Result, provenance
from isotrope.core.run_folder import RunFolder
from isotrope.core.trust import named_by
from isotrope.encoders.names import is_bm25
from isotrope.evaluation.embed import (
    CachedEncoder,
    Encoder,
    Truncated,
    encoder_name,
    fingerprint_of,
)
from isotrope.evaluation.image_tasks import image_tasks, labelled_images, own_images, takes_images
from isotrope.evaluation.options import OF_LABELS, Evaluation
from isotrope.evaluation.retrieval import BM25, own_prompts
from isotrope.evaluation.tables import Scores
from isotrope.evaluation.tasks import (
    PROTOCOLS,
    Task,
    labelled_tasks,
    retrieval_tasks,
    sts_tasks,
    transfer_tasks,
    with_average,
)


def evaluate(
    model: str | os.PathLike[str] | Encoder, *, progress: bool = False, **options: Any
) -> Scores:
    """Score a model on STS, transfer, retrieval or labelled data, or on several of them.

    An image encoder is scored on labelled pictures: ``labels`` is a folder, an ``.npz`` file or any
    other image data that ``isotrope train`` reads. If the model is the folder of a run on images,
    ``labels`` may be left out; then the pictures of the run are used. All other data are texts.

    The scores of every finished task are stored on disk; later calls with the same model and data
    reuse them. The scores of an encoder without a method ``fingerprint`` are not stored.

    Args:
        model: Name or folder for ``isotrope.load``, ``bm25`` (for retrieval only), an outcome of
            ``isotrope.fit``, or any object with ``encode``.
        progress: Whether to show progress bars and the names of stored tasks on stderr.
        options: The data and how to score them. ``help(isotrope.evaluate)`` lists all keywords, and
            ``isotrope evaluate --help`` explains them. ``sts``, ``transfer``, ``retrieval`` and
            ``labels`` are paths. On ``labels``, ``knn=False`` leaves out the score of the nearest
            neighbours, ``linear=False`` that of the linear probe. ``only=["MR", "TREC"]`` scores
            these two transfer tasks, without an average. ``results=None`` stores nothing on disk.

    Returns:
        A Result; ``print`` shows its tables. Its ``kind`` is ``sts``, ``transfer``, ``retrieval``,
        ``knn``, ``linear``, or several of them joined by ``+``. Its ``details`` are ``{"tasks":
        {"STS12": {"spearman": ...}, "MR": {"accuracy": ...}, ...}, "average": ...,
        "transfer_average": ..., "retrieval": {"mrr@10": ...}, "model": ..., "data": ...,
        "protocol": ...}``. Its ``items`` are a dict of arrays, with one value per pair, example or
        query; ``compare`` resamples them.

    Raises:
        InputError: No data are given, or the model or the data cannot be used.
    """
    model = Path(model) if isinstance(model, os.PathLike) else model
    settings = Evaluation.read(options)
    loop: dict[str, Any] = {"batch_size": settings.batch_size}
    of_text = [name for name in settings.data if name not in OF_LABELS]
    if takes_images(model, ask_hub=settings.labels is not None and not of_text):
        _check_pictures(model, settings)
        encoder = _encoder(model, settings)
        tasks = _of_pictures(model, encoder, settings, loop)
    else:
        # data are read first, to find a wrong path or a broken line before the model is loaded
        tasks = _of_texts(settings, loop, progress=progress)
        encoder = _encoder(model, settings)
        if takes_images(encoder):
            _check_pictures(model, settings)
        if settings.truncate_dim is not None:
            encoder = Truncated(encoder, settings.truncate_dim)
    prompts = own_prompts(encoder)
    if any(prompts):  # only retrieval uses them, so only its stored scores depend on them
        before = {"prompts": list(prompts)}
        tasks = [
            replace(task, settings=task.settings | before) if task.kind == "retrieval" else task
            for task in tasks
        ]
    identity = fingerprint_of(encoder)
    store = None
    if settings.results is not None and identity is not None:
        own = settings.results == "auto"
        try:
            store = Store(store_folder(model) if own else Path(settings.results))
        except (InputError, RuntimeError) as error:  # RuntimeError: there is no home folder
            if not own:
                raise
            print(f"to store the scores, choose a folder with --results: {error}", file=sys.stderr)
    finished: dict[str, Result] = {}
    if store is not None and not settings.again:
        stored = {task.name: store.find(task.key(identity)) for task in tasks}
        finished = {name: result for name, result in stored.items() if result is not None}
        if progress and finished:
            names = f"{', '.join(finished)} (to repeat: --again)"
            scored = f"{encoder_name(encoder)} is already scored, see {store.folder}: {names}"
            print(scored, file=sys.stderr)
    # STS-B has sentences of the years STS12 to STS16, which are embedded once
    memory, results = CachedEncoder(encoder, **loop), []
    for task in tasks:
        result = finished.get(task.name)
        if result is None:
            with showing(show=progress):
                result = task.score(memory if task.kind == "sts" else encoder)
            try:
                if store is not None:
                    store.keep(task.key(identity), result)
            except InputError as error:  # on a full disk, the score is still returned
                print(f"{task.name} was scored, but not stored: {error}", file=sys.stderr)
        results.append(result)
    return _together(tasks, results, encoder_name(encoder), identity, list(finished))


vars(evaluate)["__signature__"] = Evaluation.signature(evaluate)


def _of_texts(settings: Evaluation, loop: dict[str, Any], *, progress: bool) -> list[Task]:
    """Return the tasks on text for the paths that the caller named."""
    tasks: list[Task] = []
    if settings.sts is not None:
        tasks += sts_tasks(settings.sts)
    if settings.transfer is not None:
        tasks += transfer_tasks(settings.transfer, settings.mode, settings.only or None, **loop)
    if settings.retrieval is not None:
        where = (settings.retrieval, settings.columns, settings.corpus)
        tasks += retrieval_tasks(*where, progress=progress, **loop)
    if settings.labels is not None:
        kinds = {"knn": settings.knn, "linear": settings.linear}
        tasks += labelled_tasks(settings.labels, settings.labels_test, **kinds, **loop)
    if not tasks:
        raise InputError(
            "give data to evaluate on: `--sts DIR`, `--transfer DIR`, `--retrieval DIR` or "
            "`--labels DIR`"
        )
    return tasks


def _check_pictures(model: str | Path | Encoder, settings: Evaluation) -> None:
    name = model if isinstance(model, (str, Path)) else encoder_name(model)
    settings.check_used(pictures=True)
    if not settings.knn and not settings.linear:
        raise InputError(f"choose knn, linear, or both: {name} takes pictures, with no other score")


def _of_pictures(
    model: str | Path | Encoder, encoder: Encoder, settings: Evaluation, loop: dict[str, Any]
) -> list[Task]:
    """Return the tasks on labelled pictures: the given tasks, or else the tasks of a run."""
    test, options = settings.labels_test, {"knn": settings.knn, "linear": settings.linear, **loop}
    if settings.labels is not None:
        side = cast("Any", encoder).image_size  # takes_images() checked that it has one
        return image_tasks(labelled_images(settings.labels, test, side), **options)
    if not isinstance(model, (str, Path)):
        who = encoder_name(model)
        raise InputError(f"give labelled pictures with `--labels FOLDER`: {who} takes images")
    run = Path(model).expanduser()
    with named_by(run, f"isotrope evaluate {shlex.quote(str(run))} --labels="):
        return image_tasks(own_images(model), **options)


def _together(
    tasks: Sequence[Task],
    results: Sequence[Result],
    name: str,
    identity: str | None,
    reused: list[str],
) -> Scores:
    """Join the Results of all tasks into one."""
    kinds = list(dict.fromkeys(task.kind for task in tasks))
    joined = [
        with_average([r for task, r in zip(tasks, results, strict=True) if task.kind == kind])
        for kind in kinds
    ]
    details: dict[str, Any] = {}
    for result in joined:
        both = {**details.get("tasks", {}), **result.details.get("tasks", {})}
        details |= result.details | ({"tasks": both} if both else {})
    details["model"] = {"name": name, "fingerprint": identity}
    details["data"] = {task.name: task.data for task in tasks}
    details["protocol"] = {kind: PROTOCOLS[kind] for kind in kinds}
    return Scores(
        kind="+".join(kinds),
        name=name,
        metrics={key: value for result in joined for key, value in result.metrics.items()},
        details=details,
        provenance={**provenance(), "reused": reused},
        items={key: values for result in joined for key, values in result.items.items()},
    )


def _encoder(model: str | Path | Encoder, settings: Evaluation) -> Encoder:
    if not isinstance(model, (str, Path)):
        return model
    if is_bm25(model):
        return BM25()
    from isotrope.encoders.loading import load

    return load(model, pooling=settings.pooling, device=settings.device)


def store_folder(model: object) -> Path:
    """Return the default folder for the finished tasks of a model.

    For a run whose folder is writable, this is ``evaluations`` in the run folder. For any other
    model, it is ``isotrope/evaluations`` in the folder XDG_CACHE_HOME, by default ~/.cache.
    """
    if isinstance(model, (str, Path)):
        run = Path(model).expanduser()
        files = RunFolder(run)
        if files.model.is_dir() and files.is_begun:
            in_run = files.evaluations
            if os.access(in_run if in_run.exists() else run, os.W_OK | os.X_OK):
                return in_run
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "isotrope" / "evaluations"


class Store:
    """Results of finished tasks, stored in a folder. A missing folder is created."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        # check now that the folder is writable, before hours of scoring
        with os_errors_as_input_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            if not os.access(self.folder, os.W_OK | os.X_OK):
                raise PermissionError(13, "permission denied")

    def find(self, key: Mapping[str, Any]) -> Result | None:
        """Return the Result stored under ``key``; None if it is missing or cannot be read."""
        try:
            path = stored_file(self.folder, key)
            result = Result.load(path)
            if not isinstance(result.provenance, dict) or result.provenance.get("key") != dict(key):
                return None
            items: dict[str, np.ndarray] = {}
            if name := result.provenance.get("items"):
                with open_arrays(self.folder / name) as arrays:
                    items = {item: arrays[item] for item in arrays.files}
                if name != _archive(path, items):  # an archive has no checksum of its names
                    return None
        # a file that is incomplete, edited or damaged (even as if encrypted) counts as not finished
        except (OSError, TypeError, ValueError, EOFError, BadZipFile, zlib.error, RuntimeError):
            return None
        return replace(result, items=items)

    def keep(self, key: Mapping[str, Any], result: Result) -> None:
        """Write the Result of a finished task under ``key``."""
        path = stored_file(self.folder, key)
        name = None
        if result.items:
            name = _archive(path, result.items)
            arrays: dict[str, Any] = dict(result.items)
            with atomic_replace(self.folder / name) as temporary, temporary.open("wb") as handle:
                np.savez_compressed(handle, **arrays)
        provenance = {**result.provenance, "key": dict(key), "items": name}
        replace(result, provenance=provenance).save(path)


def stored_file(folder: Path, key: Mapping[str, Any]) -> Path:
    """Return the file in which :class:`Store` keeps the Result of a task under ``key``."""
    task = "".join(c if c.isalnum() or c in "-." else "-" for c in str(key.get("task", "task")))
    return folder / f"{task[:60]}-{fingerprint(key)}.json"


def _archive(path: Path, items: Mapping[str, np.ndarray]) -> str:
    """Return a name for the file with the arrays of the task file ``path``."""
    return f"{path.stem}-{fingerprint(items)}.npz"
