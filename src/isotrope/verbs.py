"""The functions ``audit``, ``audit_images``, ``compare``, ``diagnose``, ``report`` and ``sweep``.

They are thin: the work is done in the packages below, which are imported when a verb is called.
"""

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from isotrope.core.errors import InputError, needs_extra
from isotrope.core.files import write_all
from isotrope.core.result import Result

if TYPE_CHECKING:
    import numpy as np

    from isotrope.diagnostics.audit.pictures import PictureAudit
    from isotrope.diagnostics.audit.result import Audit
    from isotrope.diagnostics.audit.rows import Embedded, PairedRows
    from isotrope.diagnostics.audit.texts import TextAudit
    from isotrope.diagnostics.findings import Diagnosis
    from isotrope.encoders.image import ImageEncoder
    from isotrope.encoders.sentence import SentenceEncoder
    from isotrope.evaluation.dev_score import DevMetric
    from isotrope.evaluation.embed import Encoder
    from isotrope.paradigm.objective import Objective
    from isotrope.training.images.settings import ImageSettings
    from isotrope.training.settings import RunSettings

__all__ = ["EvaluationOptions", "audit", "audit_images", "compare", "diagnose", "report", "sweep"]

Folder = str | os.PathLike[str]
"""A run or model folder; an outcome of ``isotrope.fit`` is one."""


_STATISTICS = 4_000  # records that give mean and covariance, where others are scored


class EvaluationOptions(TypedDict, total=False):
    """The keywords of ``isotrope.evaluate``, where each is described."""

    sts: str | Path | None
    transfer: str | Path | None
    retrieval: str | Path | None
    labels: str | Path | None
    labels_test: str | Path | None
    knn: bool
    linear: bool
    corpus: str | Path | None
    mode: Literal["full", "prototyping"]
    pooling: str | None
    truncate_dim: int | None
    only: Sequence[str] | None
    device: str
    batch_size: int
    results: str | Path | None
    again: bool
    progress: bool


def report(
    runs: Folder | Sequence[Folder],
    output: str | Path = "report.html",
    *,
    title: str = "Training report",
    pictures: str | Path | None = None,
) -> Path:
    """Compare runs in one self-contained HTML file, with the diagnoses of ``isotrope.diagnose``.

    Args:
        runs: run folder or folders, or outcomes of ``isotrope.fit``, finished or in progress.
        output: the file to write; replaced as a whole.
        title: of the page.
        pictures: a folder; every picture is also written there, as SVG and as PNG.

    Returns:
        The path of the file.

    Raises:
        InputError: no run, a damaged one, or a file that cannot be written.
        MissingExtra: matplotlib or jinja2 is not installed.
    """
    with needs_extra("report", "matplotlib", "jinja2"):
        from isotrope.reports.html import write_report
    folders = [runs] if isinstance(runs, (str, os.PathLike)) else list(runs)
    return write_report(
        [Path(folder) for folder in folders],
        Path(output),
        title=title,
        pictures=None if pictures is None else Path(pictures),
    )


def compare(
    models: "Sequence[Folder | Encoder | Result]", **options: Unpack[EvaluationOptions]
) -> Result:
    """Score models on the same data, and say which differ from the first by more than noise.

    Every number is compared by a paired bootstrap over what was scored; the p-values are corrected
    for the number of comparisons. What another training seed would change they do not say.

    Args:
        models: two or more names, folders, outcomes or encoders; or what ``isotrope.evaluate``
            returned for each, without options.
        options: what to score on, as for ``isotrope.evaluate``: ``sts="DIR"``, ...

    Returns:
        A Result of kind ``comparison``; its ``details["columns"]`` hold, for each task, the models'
        scores with their intervals and each difference, ``higher``, ``lower`` or ``noise``.

    Raises:
        InputError: fewer than two models, nothing to score on, or anything that evaluation refuses.
    """
    from isotrope.evaluation.compare import compare as compared
    from isotrope.evaluation.dispatch import evaluate

    results = [model for model in models if isinstance(model, Result)]
    if results and (options or len(results) < len(models)):
        raise InputError("give models with what to score them on, or results without anything else")
    if not results:
        if len(models) < 2:
            raise InputError(f"a comparison needs two models or more; found {len(models)}")
        results = [evaluate(m, **options) for m in models if not isinstance(m, Result)]
    return compared(results)


def audit(
    data: object,
    *,
    encoder: "str | os.PathLike[str] | SentenceEncoder",
    objective: "str | Objective" = "infonce",
    objective_settings: Mapping[str, float | str] | None = None,
    columns: Sequence[str] | None = None,
    groups: str | None = None,
    views: Literal["auto", "dropout", "adjacent", "pairs"] = "auto",
    batch_size: int = 64,
    max_length: int = 32,
    query_prompt: str = "",
    passage_prompt: str = "",
    dev: str | Path | None = "auto",
    suspect: float = 0.1,
    mine: int = 0,
    hardness: float = 0.3,
    seed: int = 0,
    device: str = "auto",
    plugins: Sequence[str | Path] = (),
    output: str | Path | None = None,
    progress: bool = False,
) -> "TextAudit":
    """Say before a training what an objective will do to the data, in one pass of the encoder.

    Args:
        data: one file that ``isotrope train`` reads, of single texts or pairs; or a list of texts
            or of pairs, a DataFrame, a ``datasets.Dataset``, or one column of these.
        encoder: the encoder that training will begin with: a name, a folder, or a loaded one.
        objective: whose components are computed.
        objective_settings: of an objective that is given by its name.
        columns: of a table.
        groups: a column of a file; rows that are equal in it are not negatives of each other.
        views: how a positive is made, as for ``isotrope.fit``.
        batch_size: rows of a batch in training.
        max_length: tokens that a text is cut to in training.
        query_prompt: put before every anchor.
        passage_prompt: put before every positive and hard negative.
        dev: what to score whitening on: an STS file or a retrieval set; ``auto`` is a part of the
            data, whose positives have to be found; None leaves it out.
        suspect: reciprocal push from which two rows are likely false negatives, of all the push
            that an anchor can have.
        mine: hard negatives for each anchor.
        hardness: the largest share of the push on an anchor that a hard negative may have.
        seed: of batches, dropout and what is drawn.
        device: where to embed.
        plugins: Python files with objectives of your own.
        output: a folder for the page (``audit.html``), ``audit.json`` and the files for a training;
            files of those names in it are replaced. One of fewer than two rows is not written, and
            stderr says so.
        progress: show bars on stderr.

    Returns:
        The audit: ``print`` shows its tables, ``recommended`` has the values to begin with,
        ``to_json()`` everything.

    Raises:
        InputError: anything wrong with the data, the encoder, the objective or the folder; an
            objective that has no components, or does not compare rows.
        MissingExtra: ``output`` is given, and jinja2 or matplotlib is not installed.
    """
    from isotrope.diagnostics.audit.rows import embed_rows, read_rows
    from isotrope.diagnostics.audit.run import (
        audit_rows,
        check_negatives,
        check_numbers,
        checked_objective,
    )
    from isotrope.encoders.sentence import SentenceEncoder
    from isotrope.evaluation.dev_score import dev_metric_of_file
    from isotrope.paradigm import registry

    check_numbers(batch_size, suspect, mine, hardness, seed)
    for plugin in plugins:
        registry.load_plugin(Path(plugin))
    chosen = checked_objective(objective, objective_settings)
    page = None if output is None else _audit_page()
    metric = None if dev in (None, "auto") else dev_metric_of_file(Path(str(dev)))
    rows = read_rows(data, columns=columns, groups=groups, views=views)
    check_negatives(chosen, len(rows.texts[0]), rows.name)
    if mine and rows.views == "dropout":
        raise InputError("hard negatives are of pairs; these are single texts: leave mine out")
    loaded = (
        encoder
        if isinstance(encoder, SentenceEncoder)
        else SentenceEncoder.load(os.fspath(encoder), device=device)
    )
    prompts = (query_prompt, passage_prompt)
    embedded = embed_rows(
        loaded, rows, max_length=max_length, prompts=prompts, seed=seed, progress=progress
    )
    audited = audit_rows(
        rows,
        embedded,
        chosen,
        encoder=loaded.name,
        uncovered=_uncovered(
            loaded, rows, embedded, metric or dev, prompts, seed, grouped=groups is not None
        ),
        batch_size=batch_size,
        suspect=suspect,
        mine=mine,
        hardness=hardness,
        seed=seed,
        progress=progress,
    )
    if output is not None and page is not None:
        write_all(Path(output), {**audited.files(), **page(audited)})
        for name, why in audited.unwritten.items():
            Path(output, name).unlink(missing_ok=True)  # an earlier audit may have written it
            print(why, file=sys.stderr)
    return audited


def audit_images(
    data: str | Path,
    *,
    encoder: "str | Path | ImageEncoder" = "resnet18",
    suspect: float = 0.1,
    output: str | Path | None = None,
    progress: bool = False,
    **settings: Any,
) -> "PictureAudit":
    """Say before a training on pictures what an objective will do to them.

    Args:
        data: folder, .npz file or name, as for ``isotrope.fit_images``.
        encoder: the encoder that training will begin with; one of your own stays as it is.
        suspect: reciprocal push from which two pictures are likely false negatives.
        output: a folder for the page (``audit.html``) and ``audit.json``.
        progress: show bars on stderr.
        settings: any other setting of ``isotrope.fit_images``, e.g. ``method="mocov3"``,
            ``batch_size=256``; what an optimiser does makes no difference.

    Returns:
        The audit: ``print`` shows its tables, ``to_json()`` has everything.

    Raises:
        InputError: anything wrong with the settings, the data or the encoder; an objective without
            a push between the pictures of a batch.
        MissingExtra: ``output`` is given, and jinja2 or matplotlib is not installed.
    """
    from isotrope.encoders.image import ImageEncoder
    from isotrope.training.fit_text import by_name, python_messages
    from isotrope.training.images.settings import ImageSettings

    own = encoder if isinstance(encoder, ImageEncoder) else None
    name = encoder if own is None else own.name
    with python_messages(ImageSettings):
        read = ImageSettings.read(
            {"data": data, "encoder": name, "output": "none", **by_name(settings)}, python=True
        )
        return audit_pictures(
            read, own_encoder=own, suspect=suspect, output=output, progress=progress
        )


def audit_pictures(
    settings: "ImageSettings",
    *,
    own_encoder: "ImageEncoder | None" = None,
    suspect: float = 0.1,
    output: str | Path | None = None,
    progress: bool = False,
) -> "PictureAudit":
    """Audit the pictures of a training with these settings; see :func:`audit_images`."""
    page = None if output is None else _audit_page()
    from isotrope.training.images.audit import audit as audited_with

    audited = audited_with(settings, own_encoder=own_encoder, suspect=suspect, progress=progress)
    if output is not None and page is not None:
        write_all(Path(output), page(audited))
    return audited


def diagnose(
    target: Folder,
    *,
    data: str | Path | None = None,
    columns: Sequence[str] | None = None,
    objective: "str | Objective | None" = None,
    objective_settings: Mapping[str, float | str] | None = None,
    plugins: Sequence[str | Path] = (),
) -> "Diagnosis":
    """Return what is wrong with a run or a model, the root cause first, and what to change.

    Of a run its log, dev scores, settings and saved model are examined, and the diagnosis is also
    written to ``diagnosis.json`` in its folder, where ``isotrope.report`` finds it. Of a model
    there is what its embeddings of some data show, and of a model of text with ``data`` also what
    Li et al. (2024) measure and what whitening uncovers (``Diagnosis.model``).

    Args:
        target: run folder, outcome of ``isotrope.fit``, model folder, or name of a model.
        data: text, pairs or images to embed, instead of a run's own; of a model without data, pairs
            of docstrings of Python's own library.
        columns: of tables of text.
        objective: whose components are examined, for a model; a run has its own.
        objective_settings: of an objective that is given by its name.
        plugins: Python files with objectives of your own. Code that only a run names is not run.

    Raises:
        InputError: no run and no model there, or data that cannot be read.
    """
    from isotrope.diagnostics.target import diagnose as examined

    diagnosis = examined(
        target,
        data=data,
        columns=columns,
        objective=objective,
        objective_settings=objective_settings,
        plugins=plugins,
    )
    if not diagnosis.model or data is None:
        return diagnosis
    from isotrope.diagnostics.audit.rows import read_rows
    from isotrope.encoders.sentence import SentenceEncoder, saved_prompts
    from isotrope.evaluation.uncover import uncover_records

    rows = read_rows(Path(data), columns=columns, views="auto")
    encoder = SentenceEncoder.load(os.fspath(target))
    prompts = saved_prompts(encoder.model) if rows.views == "pairs" else ("", "")
    encoder.check_prompts(*prompts)
    found = uncover_records(encoder, rows.texts, rows.views, prompts=prompts)
    return replace(diagnosis, model={**diagnosis.model, "uncovered": asdict(found)})


def _audit_page() -> "Callable[[Audit], dict[str, bytes]]":
    """Return what writes the page of an audit, and its JSON.

    Raises:
        MissingExtra: matplotlib or jinja2 is not installed.
    """
    with needs_extra("report", "matplotlib", "jinja2"):
        from isotrope.reports.html import HtmlTable, tables_page

    def page(audited: "Audit") -> dict[str, bytes]:
        tables = [HtmlTable(t.title, t.columns, t.rows, t.note) for t in audited.tables()]
        html = tables_page("Before training", audited.title, tables)
        return {
            "audit.json": audited.to_json().encode(),
            "audit.html": html.encode("utf-8", "replace"),
        }

    return page


def _uncovered(
    encoder: "SentenceEncoder",
    rows: "PairedRows",
    embedded: "Embedded",
    dev: "DevMetric | str | Path | None",
    prompts: tuple[str, str],
    seed: int,
    *,
    grouped: bool,
) -> dict[str, Any]:
    """Return what whitening uncovers, as plain values."""
    from isotrope.evaluation.dev_score import DevMetric
    from isotrope.evaluation.embed import CachedEncoder
    from isotrope.evaluation.uncover import Uncovered, uncover, uncover_records

    if dev is None:
        found = Uncovered("unknown", "not measured: dev is left out")
    elif isinstance(dev, DevMetric):
        texts = [text for record in rows.texts[:_STATISTICS] for text in record[:2]]
        found = uncover(encoder, texts, name=dev.name, score=dev.score)
    else:
        known: dict[str, np.ndarray] = {}
        if rows.views != "dropout":  # those are not the encoder's plain embeddings
            for side, vectors in enumerate((embedded.anchors, embedded.positives)):
                own = [prompts[side] + record[side] for record in rows.texts]
                known |= dict(zip(own, vectors.numpy(), strict=True))
        cached = CachedEncoder(encoder, known=known)
        own_groups = rows.grouped if grouped else None
        found = uncover_records(
            cached, rows.texts, rows.views, prompts=prompts, groups=own_groups, seed=seed
        )
    return asdict(found)


def sweep(
    data: str | Path | Sequence[str | Path],
    *,
    vary: Mapping[str, Sequence[Any] | str] | Sequence[Mapping[str, Sequence[Any] | str]],
    output: str | Path,
    images: bool = False,
    sampler: Literal["grid", "random", "tpe"] | None = None,
    trials: int | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    metric: str | None = None,
    highest: bool | None = None,
    jobs: int | None = None,
    draws: int = 0,
    keep: Literal["all", "best"] = "all",
    report: Callable[[str], None] = lambda line: None,
    **settings: Any,
) -> Result:
    """Train with many settings, each with several seeds, and find the best.

    The same call continues where it was stopped, and trains nothing twice. Table, picture and
    result are written to ``output``, each run to a folder in ``output/runs``.

    Args:
        data: as for ``isotrope.fit``, or ``isotrope.fit_images``.
        vary: by setting the values to try, ``{"learning_rate": [1e-5, 3e-5],
            "objective.temperature": "0.03..0.1"}``, where a text is a range, as ``isotrope sweep``
            takes it; several of these are stages, each with the best of the one before.
        output: folder of the sweep.
        images: train on images.
        sampler: of values: ``grid``, ``random`` or ``tpe`` (Optuna's); None is a grid for listed
            values, ``random`` where there is a range.
        trials: settings that random and tpe try [20].
        seeds: every setting is trained with each.
        metric: of a run's result to compare by [``dev_best``; of images ``knn_final``].
        highest: whether higher is better; None: but for losses and seconds.
        jobs: runs at a time [one for each GPU, or 1].
        draws: seed of what is drawn.
        keep: models that stay on disk.
        report: takes a line when a stage begins, and for each run that ends.
        settings: of every run, as for ``isotrope.fit``.

    Returns:
        A Result of kind ``sweep``: ``details["best"]`` are the best values,
        ``details["best_command"]`` is the command that trains with them.

    Raises:
        InputError: any error, before anything is trained; or no trial has a score.
        MissingExtra: optuna or matplotlib is not installed.
    """
    with needs_extra("sweep", "optuna", "matplotlib"):
        from isotrope.sweeps.plan import plan
        from isotrope.sweeps.sweep import sweep as run
        from isotrope.sweeps.tables import as_result, best_command, write
    from isotrope.training.fit_text import by_name, python_messages

    positional, cls = ("data", _settings(images=True)) if images else ("files", _settings())
    varied = [_stage(values) for values in ([vary] if isinstance(vary, Mapping) else vary)]
    base = by_name({positional: _paths(data), **settings})
    with python_messages(cls):
        spec = plan(
            cls,
            base,
            stages=varied,
            output=Path(output),
            sampler=sampler,
            trials=trials,
            seeds=seeds,
            metric=metric,
            highest=highest,
            jobs=jobs,
            draws=draws,
            keep=keep,
        )
        stages = run(spec, report)
        best = best_command(spec, stages, positional)
        failures = [why for stage in stages for trial in stage.trials for why in trial.failures]
        if best is None:
            raise InputError(
                f"no trial of stage {len(stages)} has a score{'; ' * bool(failures)}"
                f"{''.join(failures[:1])}"
            )
    again = _command(images, base, positional, varied, spec.output)
    write(spec, stages, again, best)
    return as_result(spec, stages, again, best)


def _settings(*, images: bool = False) -> "type[RunSettings]":
    if images:
        from isotrope.training.images.settings import ImageSettings

        return ImageSettings
    from isotrope.training.settings import TrainSettings

    return TrainSettings


def _paths(data: str | Path | Sequence[str | Path]) -> str | list[str]:
    return str(data) if isinstance(data, (str, Path)) else [str(path) for path in data]


def _stage(vary: Mapping[str, Sequence[Any] | str]) -> list[str]:
    """Return what a stage varies, as ``--vary`` takes it."""
    words = []
    for name, values in vary.items():
        spelled = name if "." in name else name.replace("_", "-")
        listed = values if isinstance(values, str) else ",".join(map(_word, values))
        words.append(f"{spelled}={listed}")
    return words


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _command(
    images: bool, base: Mapping[str, Any], positional: str, stages: list[list[str]], output: Path
) -> str:
    """Return the command line that does the same, but for what a sweep has by default."""
    paths = base[positional]
    words = ["isotrope", "sweep", "train-images" if images else "train"]
    words += paths if isinstance(paths, list) else [paths]
    for name, value in base.items():
        if name == positional:
            continue
        if isinstance(value, Mapping):
            prefix = name.removesuffix("_settings")
            words += [w for k, v in value.items() for w in (f"--{prefix}.{k}", _word(v))]
        else:
            flag = f"--{name.replace('_', '-')}"
            many = value if isinstance(value, (list, tuple)) else [value]
            words += [word for item in many for word in (flag, _word(item))]
    for place, stage in enumerate(stages):
        words += ["--then"] * (place > 0)
        words += [word for item in stage for word in ("--vary", item)]
    return shlex.join([*words, "--output", str(output)])
