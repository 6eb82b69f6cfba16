"""``isotrope.evaluate``: chooses the tasks, scores an encoder on them, and joins the Results."""

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

from isotrope.core.errors import InputError
from isotrope.core.progress import showing
from isotrope.core.result import Result, provenance
from isotrope.core.spelling import spell
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
from isotrope.evaluation.retrieval import BM25, ONLY_RANKS, own_prompts
from isotrope.evaluation.store import Store, store_folder
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

_Model = str | Path | Encoder  # a name, a folder or a loaded encoder


def evaluate(
    model: str | os.PathLike[str] | Encoder, *, progress: bool = True, **options: Any
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
    settings = Evaluation.read(options)
    tasks = text_tasks([model], settings, progress=progress)
    return score_model(model, settings, tasks, progress=progress)


vars(evaluate)["__signature__"] = Evaluation.signature(evaluate)


def text_tasks(
    models: Sequence[object], settings: Evaluation, *, progress: bool = False
) -> Callable[[], list[Task]]:
    """Return a function that returns the tasks on text; only its first call reads the data."""
    if any(map(is_bm25, models)) and settings.data.keys() - {"retrieval", "corpus"}:
        raise InputError(ONLY_RANKS)  # before a model is scored
    return cache(partial(_text_tasks, settings, progress=progress))


def score_model(
    model: str | os.PathLike[str] | Encoder,
    settings: Evaluation,
    of_text: Callable[[], list[Task]],
    *,
    progress: bool = False,
) -> Scores:
    """Score one of several models; ``of_text`` is from :func:`text_tasks`, for all of them."""
    model = Path(model) if isinstance(model, os.PathLike) else model
    tasks, encoder = _tasks_and_encoder(model, settings, of_text)
    identity = fingerprint_of(encoder)
    store = None if identity is None else _open_store(model, settings.results)
    finished = {} if store is None or settings.again else _finished(store, tasks, identity)
    if store is not None and progress and finished:
        names = spell(f"{', '.join(finished)} (to repeat: `--again`)")
        scored = f"{encoder_name(encoder)} is already scored, see {store.folder}: {names}"
        print(scored, file=sys.stderr)
    # STS-B has sentences of the years STS12 to STS16, which are embedded once
    sts_encoder = CachedEncoder(encoder, batch_size=settings.batch_size)
    results = []
    for task in tasks:
        result = finished.get(task.name)
        if result is None:
            with showing(show=progress):
                result = task.score(sts_encoder if task.kind == "sts" else encoder)
            try:
                if store is not None:
                    store.keep(task.key(identity), result)
            except InputError as error:  # on a full disk, the score is still returned
                print(f"{task.name} was scored, but not stored: {error}", file=sys.stderr)
        results.append(result)
    return _joined(tasks, results, encoder_name(encoder), identity, list(finished))


def _tasks_and_encoder(
    model: _Model, settings: Evaluation, of_text: Callable[[], list[Task]]
) -> tuple[list[Task], Encoder]:
    """Return what to score. Wrong settings and broken data are errors before a model is loaded."""
    has_text = bool(settings.data.keys() - OF_LABELS)
    if takes_images(model, ask_hub=settings.labels is not None and not has_text):
        _check_pictures(model, settings)
        encoder = _loaded(model, settings)
        return _picture_tasks(model, encoder, settings), encoder
    tasks = of_text()
    encoder = _loaded(model, settings)
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
    return tasks, encoder


def _check_pictures(model: _Model, settings: Evaluation) -> None:
    """Refuse settings that an encoder of pictures cannot use."""
    settings.check_used(pictures=True)
    if not settings.knn and not settings.linear:
        name = model if isinstance(model, (str, Path)) else encoder_name(model)
        raise InputError(f"choose knn, linear, or both: {name} takes pictures, with no other score")


def _loaded(model: _Model, settings: Evaluation) -> Encoder:
    if not isinstance(model, (str, Path)):
        return model
    if is_bm25(model):
        return BM25()
    from isotrope.encoders.loading import load

    return load(model, pooling=settings.pooling, device=settings.device)


def _picture_tasks(model: _Model, encoder: Encoder, settings: Evaluation) -> list[Task]:
    """Return the tasks on the labelled pictures of ``--labels`` or, without it, of a run."""
    kinds = {"knn": settings.knn, "linear": settings.linear}
    if settings.labels is not None:
        side = cast("Any", encoder).image_size  # takes_images() checked that it has one
        labelled = labelled_images(settings.labels, settings.labels_test, side)
        return image_tasks(labelled, **kinds, batch_size=settings.batch_size)
    if not isinstance(model, (str, Path)):
        name = encoder_name(model)
        raise InputError(f"give labelled pictures with `--labels FOLDER`: {name} takes images")
    run = Path(model).expanduser()
    with named_by(run, f"isotrope evaluate {shlex.quote(str(run))} --labels="):
        return image_tasks(own_images(model), **kinds, batch_size=settings.batch_size)


def _text_tasks(settings: Evaluation, *, progress: bool) -> list[Task]:
    """Read the data on text that the settings name, and return the tasks on them."""
    batch_size, tasks = settings.batch_size, list[Task]()
    if settings.sts is not None:
        tasks += sts_tasks(settings.sts)
    if settings.transfer is not None:
        names = settings.only or None
        tasks += transfer_tasks(settings.transfer, settings.mode, names, batch_size=batch_size)
    if settings.retrieval is not None:
        where = (settings.retrieval, settings.columns, settings.corpus)
        tasks += retrieval_tasks(*where, progress=progress, batch_size=batch_size)
    if settings.labels is not None:
        kinds: dict[str, Any] = {"knn": settings.knn, "linear": settings.linear}
        columns = [] if settings.retrieval is not None else settings.columns
        parts = (settings.labels, settings.labels_test, columns)
        tasks += labelled_tasks(*parts, **kinds, batch_size=batch_size)
    if not tasks:
        raise InputError(
            "give data to evaluate on: `--sts DIR`, `--transfer DIR`, `--retrieval DIR` or "
            "`--labels DIR`"
        )
    return tasks


def _open_store(model: _Model, results: str | None) -> Store | None:
    """Open the folder of stored scores; return None, with a message, if the default one fails."""
    if results is None:
        return None
    if results != "auto":
        return Store(Path(results))
    try:
        return Store(store_folder(model))
    except (InputError, RuntimeError) as error:  # RuntimeError: there is no home folder
        print(f"to store the scores, choose a folder with --results: {error}", file=sys.stderr)
        return None


def _finished(store: Store, tasks: Sequence[Task], identity: str | None) -> dict[str, Result]:
    """Return the stored Results of the finished tasks, by the name of the task."""
    stored = {task.name: store.find(task.key(identity)) for task in tasks}
    return {name: result for name, result in stored.items() if result is not None}


def _joined(
    tasks: Sequence[Task],
    results: Sequence[Result],
    name: str,
    identity: str | None,
    reused: list[str],
) -> Scores:
    """Join the Results of all tasks into one. ``identity`` is the encoder's fingerprint."""
    by_kind: dict[str, list[Result]] = {}
    for task, result in zip(tasks, results, strict=True):
        by_kind.setdefault(task.kind, []).append(result)
    kinds = [with_average(of_kind) for of_kind in by_kind.values()]
    details, scores = dict[str, Any](), dict[str, Any]()
    for result in kinds:
        details |= result.details
        scores |= result.details.get("tasks", {})
    if scores:
        details["tasks"] = scores
    for task in tasks:
        if task.searched is not None:
            details["near_copies"] = asdict(task.searched.near_copies)
            names = [name for name in details["retrieval"] if name.startswith("recall@")]
            details["at_most"] = {n: task.searched.highest_recall(int(n[7:])) for n in names}
    details["model"] = {"name": name, "fingerprint": identity}
    details["data"] = {task.name: task.data for task in tasks}
    details["protocol"] = {kind: PROTOCOLS[kind] for kind in by_kind}
    return Scores(
        kind="+".join(by_kind),
        name=name,
        metrics={key: value for result in kinds for key, value in result.metrics.items()},
        details=details,
        provenance={**provenance(), "reused": reused},
        items={key: values for result in kinds for key, values in result.items.items()},
    )
