"""Measures and diagnoses a run or a model, given by its name or folder.

The log, the scores and the settings of a run are read. If the run's encoder and its training data
still exist, the encoder is measured on a sample of the data. A model, which has no log, is only
measured. The diagnosis of a run is saved in its folder.
"""

import ast
import os
import shlex
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from isotrope.core.documents import read_json
from isotrope.core.errors import InputError
from isotrope.core.files import write_text
from isotrope.core.progress import showing
from isotrope.core.run_folder import RunFolder
from isotrope.core.trust import USER, named_by
from isotrope.data.sources import dataset_files, digests
from isotrope.diagnostics import doctor
from isotrope.diagnostics.anatomy import Anatomy, evidence
from isotrope.diagnostics.audit.rows import read_rows
from isotrope.diagnostics.evidence import Row, RunEvidence, Words, datasets_of, of_run
from isotrope.diagnostics.findings import MISSED, Diagnosis
from isotrope.diagnostics.observe import measure
from isotrope.diagnostics.probe import (
    ROWS,
    Texts,
    embed_views,
    measure_plain,
    model_geometry,
    probe_images,
    probe_texts,
    read_texts,
    texts_of,
)
from isotrope.encoders.model_folder import is_image
from isotrope.encoders.names import resolve
from isotrope.encoders.sentence import SentenceEncoder, check_prompts, saved_prompts
from isotrope.evaluation.uncover import uncover_records
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective

_TOKENS = 64
"""Number of tokens to which texts are cut, unless the run has set another."""


def diagnose(
    target: str | os.PathLike[str],
    *,
    data: str | Path | None = None,
    columns: Sequence[str] | None = None,
    objective: str | Objective | None = None,
    objective_settings: Mapping[str, float | str] | None = None,
    plugins: Sequence[str | Path] = (),
    progress: bool = True,
) -> Diagnosis:
    """Diagnose a run or a model: return its faults, root cause first, and propose changes.

    For a run, the log, the dev scores, the settings and the saved model are examined, and the file
    ``diagnosis.json`` is written for ``isotrope.report``. For a model, some data are embedded. For
    a text model with ``data``, the attribute ``model`` of the result also has statistics of the
    embeddings (Li et al., 2024) and the gain from whitening.

    Args:
        target: Run folder, outcome of ``isotrope.fit``, model folder, or name of a model.
        data: Texts, pairs or images to embed instead of a run's own data. By default, a text model
            embeds pairs from the docstrings of Python's standard library.
        columns: Columns to read if ``data`` is a table.
        objective: For a model, the objective whose gradient is measured on the data. For a run, the
            objective to judge the log by, in place of the run's own; no gradient is measured again.
        objective_settings: Settings of the objective, if it is given by name.
        plugins: Python files that define objectives. No other plugin of the run is executed.
        progress: Whether to show the reading and embedding on stderr.

    Raises:
        InputError: ``target`` is neither a run nor a model, or the data cannot be read.
    """
    registry.load_plugins(plugins)
    if isinstance(objective, str):
        objective = registry.build(objective, objective_settings)
    elif objective_settings:
        raise InputError("give the objective by its name, or leave out objective_settings")
    name = os.fspath(target)
    is_run, log = RunFolder(name).is_run, RunFolder(name).recording()
    log = log if data is None else None  # data are embedded even if the Doctor wrote a log
    if progress:
        embeds = ", and embedding some of the data" if log is None else ""
        print(f"reading {name}{embeds}", file=sys.stderr)
    if log is not None:
        cases = of_recording(log.path)
        if objective is not None:
            cases = {dataset: replace(x, objective=objective) for dataset, x in cases.items()}
    else:
        source = None if data is None else str(data)
        with showing(show=progress):
            cases = {
                dataset: examine(name, source, columns, objective, dataset)
                for dataset in (datasets_of(Path(name)) if is_run else []) or [""]
            }
    diagnosis = doctor.together({dataset: doctor.diagnose(x) for dataset, x in cases.items()})
    if is_run:
        _save(diagnosis, RunFolder(name).diagnosis)
    return diagnosis


def of_recording(folder: Path) -> dict[str, RunEvidence]:
    """Read the folder that ``anatomy.save`` wrote, and return what ``anatomy.evidence`` returns."""
    anatomy, file = Anatomy.load(folder), RunFolder(folder).diagnosis
    record: Mapping[str, Any] = {}
    if file.is_file():
        read = read_json(file)
        if not isinstance(read, Mapping):
            raise InputError(f"restore {file} from a backup, or remove it: it has no diagnosis")
        record = read
    settings, losses = record.get("settings"), record.get("loss")
    anatomy.settings = dict(settings) if isinstance(settings, Mapping) else {}
    words = record.get("words")
    if isinstance(words, Mapping) and words.keys() <= asdict(Words()).keys():
        anatomy.words = Words(**words)
    objectives = record.get("objectives")
    for name, objective in objectives.items() if isinstance(objectives, Mapping) else ():
        with suppress(KeyError, ValueError, TypeError):  # one of a file that is not loaded
            (anatomy.of(name) if name else anatomy).objective = registry.build(*objective)
    records = losses if isinstance(losses, list) else [losses]
    return evidence(anatomy, [loss for loss in records if isinstance(loss, Mapping)])


def _save(diagnosis: Diagnosis, path: Path) -> None:
    """Write the diagnosis to the run's folder; warn if that is impossible."""
    try:
        write_text(path, diagnosis.to_json())
    except (InputError, OSError) as error:
        print(f"isotrope: warning: the diagnosis is not saved: {error}", file=sys.stderr)


def examine(
    target: Path | str,
    data: str | None = None,
    columns: Sequence[str] | None = None,
    objective: Objective | None = None,
    dataset: str = "",
) -> RunEvidence:
    """Return the evidence on a run or on a model. :func:`diagnose` describes the arguments."""
    folder = Path(target)
    if not RunFolder(folder).is_run:
        return _of_model(target, data, columns, objective)
    case = of_run(folder, dataset)
    case = case if objective is None else replace(case, objective=objective)
    if not RunFolder(folder).model.is_dir():
        if data is not None:
            raise InputError(
                f"leave out `--data`: {folder} has no saved model that could embed {data}"
            )
        return _with_note(case, "no data were embedded, because the run has no saved model")
    try:
        with named_by(folder, f"isotrope diagnose {shlex.quote(str(folder))} --data="):
            if case.kind == "images":
                probe = _crops(folder, data, case.settings, case.details)
                note = f"{probe['count']:.0f} images, two crops of each"
                return replace(_with_note(case, note), probe=probe)
            return _texts_of_run(case, folder, data, columns, dataset)
    except InputError as error:
        if data is not None:
            raise
        return _with_note(case, f"{MISSED}the saved model could not be measured: {error}")


def _of_model(
    target: Path | str, data: str | None, columns: Sequence[str] | None, objective: Objective | None
) -> RunEvidence:
    if is_image(resolve(target)):
        if data is None:
            raise InputError(f"give images with `--data`: the model {target} embeds images")
        probe = _crops(target, data, {}, {}, objective)
        notes = (f"{probe['count']:.0f} images of {data}, two crops of each",)
        return RunEvidence(kind="images", objective=objective, probe=probe, notes=notes)
    texts = _docstrings() if data is None else read_texts([data], columns=columns)
    encoder = SentenceEncoder.load(target)
    prompts = saved_prompts(encoder.model) if texts.views == "pairs" else ("", "")
    check_prompts(encoder, *prompts)
    records = [
        tuple(prompt + text for prompt, text in zip(prompts, record, strict=False))
        for record in texts.records
    ]
    texts = replace(texts, records=records)
    views, plain = embed_views(encoder, texts, max_length=_TOKENS)
    probe = measure(objective, views) | measure_plain(plain) | {"copies": texts.copies}
    model: dict[str, Any] = {}
    if data is not None:  # whitening needs all rows, of which ``texts`` are a sample
        rows = read_rows(data, columns=columns)
        whitening = uncover_records(
            encoder, rows.texts, rows.views, prompts=prompts, groups=rows.grouped
        )
        model = {**model_geometry(views), "uncovered": asdict(whitening)}
    notes = (_texts_note(texts),)
    return RunEvidence(kind="text", objective=objective, probe=probe, model=model, notes=notes)


def _docstrings() -> Texts:
    """Return pairs from Python's standard library: first sentence and rest of a docstring."""
    pairs: dict[str, str] = {}
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        tree = ast.parse(path.read_bytes())
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                words = " ".join((ast.get_docstring(node) or "").split())
                first, _, rest = words.partition(". ")
                if min(first.count(" "), rest.count(" ")) > 3 and ">>>" not in words:
                    pairs.setdefault(first, rest)
    return texts_of(
        list(pairs.items()),
        views="pairs",
        name="docstrings of Python's library, the default of --data",
    )


def _texts_of_run(
    case: RunEvidence, folder: Path, data: str | None, columns: Sequence[str] | None, dataset: str
) -> RunEvidence:
    """Measure the saved encoder and, if the positives are other texts, the initial encoder."""
    settings, changed = case.settings, list[str]()
    prompts = (settings.get("query-prompt") or "", settings.get("passage-prompt") or "")
    if data is not None:
        with named_by(USER):
            texts = read_texts([data], columns=columns, prompts=prompts)
    else:
        files = dataset_files(settings["files"])[dataset]
        texts = read_texts(
            files,
            columns=settings.get("columns") or None,
            groups=settings.get("groups"),
            views=settings.get("views", "auto"),
            prompts=prompts,
            streaming="streaming" in settings,
        )
        before = case.details.get("data", {}).get("digests", {})
        now = digests(files) if before else {}
        changed = [file for file, digest in now.items() if digest != before.get(file, digest)]
    options: dict[str, Any] = {
        "dropout": settings.get("dropout"),
        "max_length": settings.get("max-length"),
    }
    case = _with_note(case, _texts_note(texts))
    if changed:
        case = _with_note(case, f"changed since the run: {', '.join(changed)}")
    case = replace(case, probe=probe_texts(SentenceEncoder.load(folder), texts, **options))
    began = settings.get("encoder", "scratch")
    if texts.views == "dropout" or began == "scratch":
        return case
    try:
        encoder = SentenceEncoder.load(began, pooling=settings.get("pooling"))
        return replace(case, start=probe_texts(encoder, texts, **options))
    except InputError as error:
        return _with_note(case, f"{MISSED}the initial encoder could not be measured: {error}")


def _crops(
    target: Path | str,
    data: str | None,
    settings: Mapping[str, Any],
    details: Mapping[str, Any],
    objective: Objective | None = None,
) -> Row:
    """Measure an encoder of images on crops like those of the training."""
    import numpy as np
    import torch

    from isotrope.data.images.augment import Augment, two_views
    from isotrope.data.images.sets import load_images
    from isotrope.encoders.image import ImageEncoder

    encoder = ImageEncoder.load(target)
    size = encoder.image_size
    with named_by(USER) if data else nullcontext():
        images = load_images(data or settings["data"], side=size, limit=settings.get("limit"))
    train = images.train.images
    rows = np.linspace(0, len(train) - 1, min(ROWS, len(train))).astype(np.int64)
    crops = [Augment(**_with_tuples(saved)) for saved in details.get("augments") or ()]
    augments = crops or two_views(settings.get("augment") or "simclr", size)
    pictures = torch.from_numpy(train.read(rows))
    return probe_images(encoder, pictures, augments, objective=objective)


def _with_tuples(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dict of result.json with tuples, which JSON stores as lists."""
    return {key: tuple(value) if type(value) is list else value for key, value in saved.items()}


def _texts_note(texts: Texts) -> str:
    what = "pairs" if len(texts.records[0]) > 1 else "texts"
    return f"{len(texts.records)} of {texts.read:,} {what} ({texts.name})"


def _with_note(case: RunEvidence, note: str) -> RunEvidence:
    return replace(case, notes=(*case.notes, note))
