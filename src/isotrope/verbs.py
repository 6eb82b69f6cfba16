"""The functions ``audit``, ``audit_images``, ``report`` and ``sweep``."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isotrope.core.errors import InputError, needs_extra
from isotrope.core.files import check_outputs
from isotrope.core.progress import showing
from isotrope.core.result import Result
from isotrope.diagnostics.audit.options import AuditSettings
from isotrope.training.settings import TrainSettings

if TYPE_CHECKING:
    from isotrope.diagnostics.audit.pictures import PictureAudit
    from isotrope.diagnostics.audit.texts import TextAudit
    from isotrope.encoders.image import ImageEncoder
    from isotrope.encoders.sentence import SentenceEncoder
    from isotrope.paradigm.objective import Objective

Folder = str | os.PathLike[str]
"""A run folder, or an outcome of ``isotrope.fit``."""


def report(
    runs: Folder | Sequence[Folder],
    output: str | Path = "report.html",
    *,
    title: str = "Training report",
    pictures: str | Path | None = None,
) -> Path:
    """Compare runs in one self-contained HTML file, with the diagnoses of ``isotrope.diagnose``.

    Args:
        runs: A run folder, an outcome of ``isotrope.fit``, or a list of these; finished or not.
        output: The file to write. An existing file is replaced.
        title: Title of the page.
        pictures: Folder to which every picture is also written, as SVG and as PNG.

    Returns:
        The path of the file.

    Raises:
        InputError: No run is given, a run is damaged, or the file cannot be written.
        MissingExtra: matplotlib or jinja2 is not installed.
    """
    with needs_extra("report"):
        from isotrope.reports.html import write_report
    folders = [runs] if isinstance(runs, (str, os.PathLike)) else list(runs)
    return write_report(
        [Path(folder) for folder in folders],
        Path(output),
        title=title,
        pictures=None if pictures is None else Path(pictures),
    )


def audit(
    data: object,
    *,
    encoder: "str | os.PathLike[str] | SentenceEncoder | None" = None,
    objective: "str | Objective" = "infonce",
    plugins: Sequence[str | Path] = (),
    output: str | Path | None = None,
    progress: bool = True,
    **settings: Any,
) -> "TextAudit":
    """Show, before training, what an objective will do to the data. Nothing is trained.

    ``help(isotrope.audit)`` lists all keywords; ``isotrope audit --help`` explains them.

    Args:
        data: One file of single texts or pairs that ``isotrope train`` can read; or a list of texts
            or of pairs, a DataFrame, a ``datasets.Dataset``, or a column of a DataFrame or Dataset.
        encoder: The encoder to be trained: a name, a folder, or a loaded encoder. None: the default
            of ``isotrope.fit``.
        objective: Objective whose gradient is measured.
        plugins: Python files with objectives of your own.
        output: Folder for the page (``audit.html``), ``audit.json`` and data files to train on.
            Existing files of these names are replaced. A data file with fewer than two rows is not
            written; a message on stderr reports this.
        progress: Whether to show bars on stderr.
        settings: Any other setting, e.g. ``batch_size=128``, ``columns="question,answer"``,
            ``dev=None`` (do not score whitening), ``mine=1`` (find a hard negative for each
            anchor), ``objective_settings={"temperature": 0.1}``.

    Returns:
        The audit. ``print`` shows its tables, ``recommended`` has the settings to begin with,
        and ``to_json()`` returns everything.

    Raises:
        InputError: The data, the encoder, the objective or the folder cannot be used. The objective
            must compare the rows of a batch, and have a dissipation, a weight and a ratio.
        MissingExtra: ``output`` is given, and jinja2 or matplotlib is not installed.
    """
    own_objective = None if isinstance(objective, str) else objective
    if own_objective is None:
        settings["objective"] = objective
    checked = AuditSettings.read({**settings, "plugin": list(plugins)})
    if output is not None:
        with needs_extra("report"):
            from isotrope.diagnostics.audit.result import AUDIT_FILES
            from isotrope.reports.html import audit_page
        check_outputs(Path(output), AUDIT_FILES, [data, checked.dev])
    from isotrope.diagnostics.audit.run import audit_texts

    if encoder is None:
        encoder = TrainSettings.model_fields["encoder"].default
    with showing(show=progress):
        audited = audit_texts(data, checked, encoder=encoder, objective=own_objective)
    if output is not None:
        audited.write(Path(output), audit_page(audited))
    return audited


vars(audit)["__signature__"] = AuditSettings.signature(audit, without=["plugin"])


def audit_images(
    data: str | Path,
    *,
    encoder: "str | Path | ImageEncoder" = "resnet18",
    output: str | Path | None = None,
    progress: bool = True,
    **settings: Any,
) -> "PictureAudit":
    """Show, before training on pictures, what an objective will do to them. Nothing is trained.

    The signature does not list the keywords, because many settings of ``isotrope.fit_images`` do
    not change an audit; ``isotrope audit --help`` explains those that do.

    Args:
        data: Folder, .npz file or ``"digits"``, as for ``isotrope.fit_images``.
        encoder: The encoder to be trained. An ``ImageEncoder`` that you pass is not changed.
        output: Folder for the page (``audit.html``) and ``audit.json``.
        progress: Whether to show bars on stderr.
        settings: Any other setting of ``isotrope.fit_images``, e.g. ``method="mocov3"``,
            ``batch_size=256``; settings of the optimiser have no effect. Two pictures are likely
            false negatives if their evidence, a difference of cosines, is at least ``suspect``.

    Returns:
        The audit. ``print`` shows its tables, ``to_json()`` returns everything.

    Raises:
        InputError: The settings, the data or the encoder cannot be used, or the objective does
            not push pictures of a batch apart.
        MissingExtra: ``output`` is given, and jinja2 or matplotlib is not installed.
    """
    from isotrope.encoders.image import ImageEncoder
    from isotrope.training.fit_text import by_name
    from isotrope.training.images.settings import ImageSettings

    own_encoder = encoder if isinstance(encoder, ImageEncoder) else None
    name = encoder if own_encoder is None else own_encoder.name
    own = settings.keys() & (AuditSettings.model_fields.keys() - ImageSettings.model_fields)
    of_audit = AuditSettings.read({key: settings.pop(key) for key in own})
    of_audit.check_used(pictures=True)
    of_training = ImageSettings.read(
        {"data": data, "encoder": name, "output": "none", **by_name(settings)}
    )
    if output is not None:
        with needs_extra("report"):
            from isotrope.diagnostics.audit.result import AUDIT_FILES
            from isotrope.reports.html import audit_page
        check_outputs(Path(output), AUDIT_FILES)
    from isotrope.training.images.audit import audit as audit_training

    with showing(show=progress):
        audited = audit_training(of_training, of_audit, own_encoder=own_encoder)
    if output is not None:
        audited.write(Path(output), audit_page(audited))
    return audited


def sweep(
    data: str | Path | Sequence[str | Path],
    *,
    vary: Mapping[str, Sequence[Any] | str],
    output: str | Path,
    images: bool = False,
    report: Callable[[str], None] = lambda line: None,
    **settings: Any,
) -> Result:
    """Train with many values of some settings, each with several seeds, and find the best.

    To continue a stopped sweep, repeat the call; finished runs are not trained again. The table,
    the picture and the result are written to ``output``, and each run to a folder in
    ``output/runs``.

    Args:
        data: Path or name of the data, as for ``isotrope.fit`` or ``isotrope.fit_images``.
        vary: A dict from setting to the values to try: ``{"learning_rate": [1e-5, 3e-5],
            "objective.temperature": "0.03..0.1"}``. A string has the form of VALUES in ``--vary``.
        output: Folder of the sweep.
        images: Whether to train on images instead of text.
        report: Function that receives a line of text for each finished run.
        settings: Settings of the sweep as for ``isotrope sweep`` (``seeds=[0, 1, 2]``,
            ``sampler="tpe"``, ``trials=20``, ``metric="dev_best"``, ``goal="max"``, ``jobs=1``,
            ``draws=0``, ``keep="best"``), and settings of all runs as for ``isotrope.fit``.

    Returns:
        A Result of kind ``sweep``: ``details["best"]`` is a dict of the best values, and
        ``details["best_command"]`` is the command that trains with these values. Both are None if
        noise hides the best trial; ``details["noise"]`` says why.

    Raises:
        InputError: A setting or the data are wrong, or no trial has a score after its training.
        MissingExtra: optuna or matplotlib is not installed.
    """
    with needs_extra("sweep"):
        from isotrope.sweeps.spec import RUNS, SweepSettings, plan
        from isotrope.sweeps.sweep import sweep as train
        from isotrope.sweeps.tables import as_result, write
    from isotrope.training.fit_text import by_name

    run_settings = RUNS["train-images" if images else "train"]
    of_sweep = {name: settings.pop(name) for name in SweepSettings.model_fields if name in settings}
    chosen = SweepSettings.read({**of_sweep, "vary": _words(vary), "output": output})
    paths = str(data) if isinstance(data, (str, Path)) else [str(path) for path in data]
    (positional,) = run_settings.positionals()
    spec = plan(run_settings, by_name({positional: paths, **settings}), chosen)
    trials = train(spec, report)
    write(spec, trials)
    if all(trial.score is None for trial in trials):
        failures = [why for trial in trials for why in trial.failures]
        why = f"; a run failed: {failures[0]}" if failures else ""
        raise InputError(f"choose other values or another metric: no trial has a score{why}")
    return as_result(spec, trials)


def _words(vary: Mapping[str, Sequence[Any] | str]) -> list[str]:
    """Return the settings to vary in the format of ``--vary``."""
    words = []
    for name, values in vary.items():
        texts = (str(v).lower() if isinstance(v, bool) else str(v) for v in values)
        text = values if isinstance(values, str) else ",".join(texts)
        words.append(f"{name}={text}")
    return words
