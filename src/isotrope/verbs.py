"""The functions ``audit``, ``audit_images`` and ``report``.

Each calls one package for the work and ``isotrope.reports`` for the pages, and imports both when it
is called.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from isotrope.core.errors import needs_extra

if TYPE_CHECKING:
    from isotrope.diagnostics.audit.pictures import PictureAudit
    from isotrope.diagnostics.audit.texts import TextAudit
    from isotrope.encoders.image import ImageEncoder
    from isotrope.encoders.sentence import SentenceEncoder
    from isotrope.paradigm.objective import Objective
    from isotrope.training.images.settings import ImageSettings

Folder = str | os.PathLike[str]
"""A run or model folder, or an outcome of ``isotrope.fit``."""


def report(
    runs: Folder | Sequence[Folder],
    output: str | Path = "report.html",
    *,
    title: str = "Training report",
    pictures: str | Path | None = None,
) -> Path:
    """Compare runs in one self-contained HTML file, with the diagnoses of ``isotrope.diagnose``.

    Args:
        runs: Run folder or folders, or outcomes of ``isotrope.fit``, finished or in progress.
        output: The file to write; replaced as a whole.
        title: Title of the page.
        pictures: a folder; every picture is also written there, as SVG and as PNG.

    Returns:
        The path of the file.

    Raises:
        InputError: No run is given, a run is damaged, or the file cannot be written.
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
    """Show before training what an objective will do to the data, in one pass of the encoder.

    Args:
        data: One file that ``isotrope train`` reads, of single texts or pairs; or a list of texts
            or of pairs, a DataFrame, a ``datasets.Dataset``, or one column of these.
        encoder: The encoder to be trained: a name, a folder, or a loaded one.
        objective: Objective whose components to compute.
        objective_settings: Settings of an objective that is given by name.
        columns: Columns of a table.
        groups: Column of a file; rows with equal values are not negatives of each other.
        views: How a positive is made, as for ``isotrope.fit``.
        batch_size: Rows in a batch of the training.
        max_length: Tokens to which a text is cut in training.
        query_prompt: Prompt before every anchor.
        passage_prompt: Prompt before every positive and hard negative.
        dev: Data to score whitening on: an STS file or a retrieval set; ``auto`` holds out a part
            of the data and searches for its positives; None skips this.
        suspect: Reciprocal push above which two rows are likely false negatives, of all the push
            that an anchor can have.
        mine: Hard negatives for each anchor.
        hardness: The largest share of the push on an anchor that a hard negative may have.
        seed: Seed of batches, dropout and all other draws.
        device: Device on which to embed.
        plugins: Python files with objectives of your own.
        output: a folder for the page (``audit.html``), ``audit.json`` and the files for a training;
            existing files of these names are replaced. A file with fewer than two rows is not
            written, and a message on stderr says so.
        progress: Show bars on stderr.

    Returns:
        The audit: ``print`` shows its tables, ``recommended`` has the values to begin with,
        ``to_json()`` everything.

    Raises:
        InputError: The data, the encoder, the objective or the folder cannot be used, or the
            objective has no components or does not compare rows.
        MissingExtra: ``output`` is given, and jinja2 or matplotlib is not installed.
    """
    if output is not None:
        with needs_extra("report", "matplotlib", "jinja2"):
            from isotrope.reports.audit_page import check_folder, write_audit
        check_folder(Path(output), data, dev)
    from isotrope.diagnostics.audit.audit import audit_texts

    audited = audit_texts(
        data,
        encoder=encoder,
        objective=objective,
        objective_settings=objective_settings,
        columns=columns,
        groups=groups,
        views=views,
        batch_size=batch_size,
        max_length=max_length,
        query_prompt=query_prompt,
        passage_prompt=passage_prompt,
        dev=dev,
        suspect=suspect,
        mine=mine,
        hardness=hardness,
        seed=seed,
        device=device,
        plugins=plugins,
        progress=progress,
    )
    if output is not None:
        write_audit(audited, Path(output))
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
    """Show before training on pictures what an objective will do to them.

    Args:
        data: Folder, .npz file or name, as for ``isotrope.fit_images``.
        encoder: The encoder to be trained; an encoder object is not changed.
        suspect: Reciprocal push above which two pictures are likely false negatives.
        output: a folder for the page (``audit.html``) and ``audit.json``.
        progress: Show bars on stderr.
        settings: Any other setting of ``isotrope.fit_images``, e.g. ``method="mocov3"``,
            ``batch_size=256``; settings of the optimiser have no effect.

    Returns:
        The audit: ``print`` shows its tables, ``to_json()`` has everything.

    Raises:
        InputError: The settings, the data or the encoder cannot be used, or the objective does
            not push pictures of a batch apart.
        MissingExtra: ``output`` is given, and jinja2 or matplotlib is not installed.
    """
    from isotrope.encoders.image import ImageEncoder
    from isotrope.training.fit_text import by_name
    from isotrope.training.images.settings import ImageSettings

    own = encoder if isinstance(encoder, ImageEncoder) else None
    name = encoder if own is None else own.name
    read = ImageSettings.read(
        {"data": data, "encoder": name, "output": "none", **by_name(settings)}
    )
    return audit_pictures(read, own_encoder=own, suspect=suspect, output=output, progress=progress)


def audit_pictures(
    settings: "ImageSettings",
    *,
    own_encoder: "ImageEncoder | None" = None,
    suspect: float = 0.1,
    output: str | Path | None = None,
    progress: bool = False,
) -> "PictureAudit":
    """Audit the pictures of a training with these settings; see :func:`audit_images`."""
    if output is not None:
        with needs_extra("report", "matplotlib", "jinja2"):
            from isotrope.reports.audit_page import check_folder, write_audit
        check_folder(Path(output))
    from isotrope.training.images.audit import audit as audited_with

    audited = audited_with(settings, own_encoder=own_encoder, suspect=suspect, progress=progress)
    if output is not None:
        write_audit(audited, Path(output))
    return audited
