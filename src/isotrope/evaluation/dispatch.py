"""``isotrope.evaluate``: chooses the tasks, scores an encoder on them, joins their Results."""

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

from isotrope.core.errors import InputError
from isotrope.core.hub import named_by
from isotrope.core.result import Result, provenance
from isotrope.encoders.names import is_bm25
from isotrope.evaluation.bm25 import BM25
from isotrope.evaluation.embed import Encoder, Truncated, encoder_name
from isotrope.evaluation.image_tasks import image_tasks, labelled_images, own_images, takes_images
from isotrope.evaluation.retrieval import own_prompts
from isotrope.evaluation.store import Store, store_folder
from isotrope.evaluation.tasks import (
    PROTOCOLS,
    Task,
    corpus_tasks,
    finish,
    join,
    labelled_tasks,
    retrieval_tasks,
    sts_tasks,
    transfer_tasks,
)


def evaluate(
    model: str | os.PathLike[str] | Encoder,
    *,
    sts: str | Path | None = None,
    transfer: str | Path | None = None,
    retrieval: str | Path | None = None,
    labels: str | Path | None = None,
    labels_test: str | Path | None = None,
    knn: bool = True,
    linear: bool = True,
    corpus: str | Path | None = None,
    mode: Literal["full", "prototyping"] = "full",
    only: Sequence[str] | None = None,
    pooling: str | None = None,
    truncate_dim: int | None = None,
    device: str = "auto",
    batch_size: int = 128,
    results: str | Path | None = "auto",
    again: bool = False,
    progress: bool = False,
) -> Result:
    """Score a model by any of the protocols, or several together.

    An image encoder is scored on labelled pictures: ``labels`` is then a folder, an ``.npz`` file
    or any other image data that can be trained on. Without it, a run folder is scored on its own
    training and test part, split as in training. All other data are text.

    Every finished task is stored on disk at once, under fingerprints of the model and the data, and
    reused by the next call. The scores of an encoder without a method ``fingerprint`` (ours has
    one) are not stored.

    Args:
        model: a name or folder for ``isotrope.load``, ``bm25`` (for retrieval alone), an
            outcome of ``isotrope.fit``, or anything with ``encode``.
        sts: folder of the seven STS tasks, or one file of scored pairs.
        transfer: folder of the seven transfer tasks.
        retrieval: folder of a retrieval set, or file of pairs.
        labels: Labelled texts (or pictures): the training part, all data, or a folder of both
            parts.
        labels_test: Test part of the labelled texts.
        knn: Classify ``labels`` by nearest neighbours.
        linear: Classify ``labels`` by a linear probe.
        corpus: File or folder of texts or pairs, to measure the geometry of the embeddings.
        mode: Mode of the transfer tasks; papers print ``full``.
        only: Transfer tasks to score (``["MR", "TREC"]``), without an average.
        pooling: None keeps the model's own; only for a name or folder.
        truncate_dim: For text, score only so many of the first coordinates.
        device: ``auto``, ``cpu``, ``cuda``, ...; only for a name or folder.
        batch_size: Texts or pictures in each batch.
        results: Folder of the finished tasks; ``auto`` is ``evaluations`` in a run folder, else
            ``isotrope/evaluations`` in the user's cache; None keeps nothing.
        again: Score finished tasks again.
        progress: Show bars and the tasks that were finished before, on stderr.

    Returns:
        A Result of kind ``sts``, ``transfer``, ``retrieval``, ``knn``, ``linear``, ``corpus``, or
        several joined by ``+``. Its ``details`` are ``{"tasks": {"STS12": {"spearman": ...}, "MR":
        {"accuracy": ...}, ...}, "average": ..., "transfer_average": ..., "retrieval": {"mrr@10":
        ...}, ...}``, with ``model``, ``data`` and ``protocol`` to identify them. Its ``items``
        hold a value for each pair, example or query, which ``compare`` resamples.

    Raises:
        InputError: there are no data, or the model or the data have an error.
    """
    model = Path(model) if isinstance(model, os.PathLike) else model
    options: dict[str, Any] = {"progress": progress, "batch_size": batch_size}
    settings: dict[str, Any] = {"knn": knn, "linear": linear, **options}
    texts = {"sts": sts, "transfer": transfer, "retrieval": retrieval, "corpus": corpus}
    of_text = [name for name, path in texts.items() if path is not None]
    if takes_images(model, ask_hub=labels is not None and not of_text):
        _check_pictures(model, of_text, knn=knn, linear=linear)
        if truncate_dim is not None:
            raise InputError("embeddings of pictures cannot be truncated: leave the dimension out")
        encoder = _encoder(model, pooling, device)
        tasks = _of_pictures(model, encoder, labels, labels_test, settings)
    else:
        # all data first: a mistyped folder, or a broken line, shows before a model is loaded
        tasks = _of_texts(texts, mode, only, labels, labels_test, settings)
        encoder = _encoder(model, pooling, device)
        if takes_images(encoder):
            _check_pictures(model, of_text, knn=knn, linear=linear)
        if truncate_dim is not None:
            encoder = Truncated(encoder, truncate_dim)
    prompts = own_prompts(encoder)
    if any(prompts):  # of all tasks they decide the numbers of a search alone
        searched = {"prompts": list(prompts)}
        tasks = [replace(t, settings=searched) if t.kind == "retrieval" else t for t in tasks]
    print_of = getattr(encoder, "fingerprint", None)
    identity = print_of() if callable(print_of) else None
    store = None
    if results is not None and identity is not None:
        store = Store(store_folder(model) if results == "auto" else Path(results))
    finished = _finished_before(tasks, store, identity, again=again, progress=progress)

    def keep(task: Task, result: Result) -> None:
        if store is not None and identity is not None:
            try:
                store.keep(task.key(identity), result)
            except InputError as error:  # a full disk is no reason to lose hours of scoring
                print(f"{task.name} is scored but not stored: {error}", file=sys.stderr)

    scored = finish(tasks, encoder, keep, finished, **options)
    return _together(tasks, scored, encoder_name(encoder), identity, list(finished))


def _of_texts(
    paths: dict[str, Any],
    mode: Literal["full", "prototyping"],
    only: Sequence[str] | None,
    labels: str | Path | None,
    labels_test: str | Path | None,
    settings: dict[str, Any],
) -> list[Task]:
    """Return the tasks on text for the paths that the caller named."""
    options = {name: settings[name] for name in ("progress", "batch_size")}
    chosen = {name: Path(path) for name, path in paths.items() if path is not None}
    tasks: list[Task] = []
    if "sts" in chosen:
        tasks += sts_tasks(chosen["sts"])
    if "transfer" in chosen:
        tasks += transfer_tasks(chosen["transfer"], mode, only, **options)
    if "retrieval" in chosen:
        tasks += retrieval_tasks(chosen["retrieval"], **options)
    test = _test_part(labels, labels_test)
    if labels is not None:
        tasks += labelled_tasks(Path(labels), test, **settings)
    if "corpus" in chosen:
        tasks += corpus_tasks(chosen["corpus"], **options)
    if not tasks:
        raise InputError(
            "nothing to evaluate on: give the folder of the STS tasks or of the transfer tasks, a "
            "retrieval set, labelled texts or a corpus"
        )
    return tasks


def _test_part(labels: str | Path | None, labels_test: str | Path | None) -> Path | None:
    if labels is None and labels_test is not None:
        raise InputError("labels_test is a test part without its training part; also give labels")
    return None if labels_test is None else Path(labels_test)


def _check_pictures(
    model: str | Path | Encoder, of_text: Sequence[str], *, knn: bool, linear: bool
) -> None:
    name = model if isinstance(model, (str, Path)) else encoder_name(model)
    if of_text:
        raise InputError(
            f"{name} takes pictures, but {', '.join(of_text)} hold text; score it by nearest "
            "neighbours or a linear probe on labelled pictures (`--knn`, `--linear`, "
            "`--labels FOLDER`)"
        )
    if not knn and not linear:
        raise InputError(f"no score is chosen for {name}: set knn, linear, or both")


def _of_pictures(
    model: str | Path | Encoder,
    encoder: Encoder,
    labels: str | Path | None,
    labels_test: str | Path | None,
    settings: dict[str, Any],
) -> list[Task]:
    """Return the tasks on the labelled pictures that the caller named, or else on a run's own."""
    test = _test_part(labels, labels_test)
    if labels is not None:
        side = cast("Any", encoder).image_size  # by which it was told to take pictures
        return image_tasks(labelled_images(Path(labels), test, side), **settings)
    if not isinstance(model, (str, Path)):
        raise InputError(
            f"nothing to evaluate {encoder_name(model)} on: give labelled pictures (labels)"
        )
    run = Path(model).expanduser()
    with named_by(run, f"isotrope evaluate {shlex.quote(str(run))} --labels="):
        return image_tasks(own_images(model), **settings)


def _finished_before(
    tasks: Sequence[Task], store: Store | None, identity: str | None, *, again: bool, progress: bool
) -> dict[str, Result]:
    """Return the stored results of tasks, by name, and print which they are."""
    if again or store is None or identity is None:
        return {}
    stored = {task.name: store.find(task.key(identity)) for task in tasks}
    finished = {name: result for name, result in stored.items() if result is not None}
    if progress and finished:
        print(
            f"finished before, in {store.folder}: {', '.join(finished)} (--again repeats them)",
            file=sys.stderr,
        )
    return finished


def _together(
    tasks: Sequence[Task],
    results: Sequence[Result],
    name: str,
    identity: str | None,
    reused: list[str],
) -> Result:
    """Join the Results of all tasks into one."""
    kinds = list(dict.fromkeys(task.kind for task in tasks))
    joined = [
        join(kind, [r for task, r in zip(tasks, results, strict=True) if task.kind == kind])
        for kind in kinds
    ]
    details: dict[str, Any] = {}
    for result in joined:
        both = {**details.get("tasks", {}), **result.details.get("tasks", {})}
        details |= result.details | ({"tasks": both} if both else {})
    details["model"] = {"name": name, "fingerprint": identity}
    details["data"] = {task.name: task.data for task in tasks}
    details["protocol"] = {kind: PROTOCOLS[kind] for kind in kinds}
    return Result(
        kind="+".join(kinds),
        name=name,
        metrics={key: value for result in joined for key, value in result.metrics.items()},
        details=details,
        provenance={**provenance(), "reused": reused},
        items={key: values for result in joined for key, values in result.items.items()},
    )


def _encoder(model: str | Path | Encoder, pooling: str | None, device: str) -> Encoder:
    if not isinstance(model, (str, Path)):
        return model
    if is_bm25(model):
        return BM25()
    from isotrope.encoders.loading import load

    return load(model, pooling=pooling, device=device)
