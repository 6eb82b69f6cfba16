"""``isotrope audit``: show, before training, how an objective will push and pull the data."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, create_model

from isotrope.cli.arguments import check_readable
from isotrope.cli.command import Command, as_json, in_ascii
from isotrope.core.errors import InputError, place
from isotrope.core.settings import Used, setting
from isotrope.data.sources import dataset_files
from isotrope.data.table import SUFFIXES, check_known, has_pictures, is_hub_name, plain_suffix
from isotrope.diagnostics.audit.options import AuditSettings
from isotrope.training.images.settings import ImageSettings

if TYPE_CHECKING:
    from isotrope.diagnostics.audit.result import Audit

EPILOG = """\
examples:
  isotrope audit pairs.tsv
  isotrope audit pairs.tsv --encoder path/to/model --batch-size 128 --output audits/pairs
  isotrope audit sentences.txt --encoder path/to/model --objective mpt --objective.margin 0.3
  isotrope audit pairs.tsv --encoder all-MiniLM-L6-v2 --mine 2 --output audits/pairs
  isotrope train audits/pairs/cleaned.jsonl --groups label --output runs/cleaned
  isotrope train audits/pairs/grouped.jsonl --groups label --output runs/grouped
  isotrope train audits/pairs/mined.jsonl --groups label --output runs/mined
  isotrope audit photos/ --encoder runs/photos --output audits/photos
  isotrope audit digits --encoder resnet9 --method mocov3 --objective.temperature 0.1

Nothing is trained. The encoder embeds the first --max-length tokens of every text, or two crops of
every picture. The output has five parts: advice on the data; likely false negatives; rows with a
distant positive, a cut text or a repeated text; how much whitening raises the dev score; and
recommended settings, with a table of the gradient at the first step under several settings.

The number of a row is its line in the file, counted from 1. In a parquet or Arrow file, and in a
.json file that is one list, rows are counted. --output DIR writes audit.html, audit.json,
cleaned.jsonl, grouped.jsonl and, with --mine, mined.jsonl. In the .jsonl files, likely false
negatives, and rows with equal values in the column --groups, have the same label. Train on these
files with `train --groups label`; in sentence-transformers, use ObjectiveLoss(groups=True).

Pictures are named by their paths in the folder, or by their numbers in the data, counted from 0.
For pictures, no settings are recommended, and --output DIR writes audit.html and audit.json only.
"""

_IMAGES = "for pictures only, as in training"
_of_images = Used(lambda pictures: pictures, "the data are texts")
_OF_IMAGES = (
    *("method", "width", "stem", "image_size", "augment", "pixels", "classes", "limit"),
    "holdout",
)


class AuditCommandSettings(AuditSettings):
    """Settings of ``isotrope audit``, for texts and for pictures."""

    dotted = ("objective", "method")

    data: list[str] = setting(
        ...,
        "For texts: one file of texts or pairs that `train` can read. For pictures: a folder, a "
        ".npz file, or the word digits (the digits of scikit-learn).",
        "DATA",
        positional=True,
    )
    method_settings: dict[str, float | str] = setting({}, "Options of the method.", used=_of_images)
    output: Path | None = setting(
        None, "Folder for the HTML page and, if the data are texts, for files to train on.", "DIR"
    )
    as_json: bool = as_json()

    @classmethod
    def dotted_names(cls) -> list[str]:
        """Return the settings of all objectives and methods."""
        return ImageSettings.dotted_names()


def audit(settings: AuditCommandSettings) -> int:
    """Check the settings, run the audit, and print it."""
    data, *others = settings.data
    if others:
        raise InputError(
            "give one data set, and audit each other data set by a command of its own, because a "
            f"training batch comes from a single data set; found {', '.join(settings.data)}"
        )
    images = _is_images(data)
    settings.check_used(pictures=images)
    check_readable(*settings.plugin)
    output = settings.output
    if output is not None and output.is_file():
        raise InputError(f"{place(output)} is a file; give a folder as `--output`")
    options = settings.model_dump(
        include=settings.model_fields_set - {"data", "output", "as_json", "plugin"}
    )
    audited = _images(data, options, settings) if images else _texts(data, options, settings)
    print(in_ascii(audited.to_json()) if settings.as_json else audited)
    if output is not None:
        groups = settings.groups
        column = f"; train on its .jsonl files with --groups label, which includes {groups}"
        print(f"written to {output}{column if groups else ''}", file=sys.stderr)
    return 0


def _is_images(data: str) -> bool:
    """Return whether the data are pictures: .npz, digits, or a folder without files of text."""
    path = Path(data)
    if path.is_dir():
        from isotrope.data.images.folder import below

        if any(below(path)):  # a look at all files takes long
            return True
        texts = any(plain_suffix(file) in SUFFIXES for file in path.rglob("*"))
        return not texts or has_pictures(path)
    return path.suffix == ".npz" or (data == "digits" and not path.is_file())


def _texts(data: str, options: dict[str, Any], settings: AuditCommandSettings) -> "Audit":
    ((file,),) = dataset_files([data]).values()  # FILE may be NAME=FILE, as for train
    (check_known if is_hub_name(Path(file)) else check_readable)(Path(file))
    if settings.dev not in ("auto", "none"):
        check_readable(Path(settings.dev))
    if not settings.plugin:
        from isotrope.paradigm.declared import check_declared

        check_declared(settings.objective, settings.objective_settings)
    options.pop("method_settings", None)
    from isotrope.verbs import audit as audited

    return audited(file, **options, plugins=settings.plugin, output=settings.output, progress=True)


def _images(data: str, options: dict[str, Any], settings: AuditCommandSettings) -> "Audit":
    plugins = [str(path) for path in settings.plugin]
    check_readable(None if data == "digits" else Path(data))
    from isotrope.verbs import audit_images

    options |= {"plugin": plugins, "output": settings.output}
    return audit_images(data, progress=True, **options)


def _with_images() -> type[AuditCommandSettings]:
    """Return the settings, extended by the settings of ``train-images`` that change an audit."""
    fields: dict[str, Any] = {}
    for name in _OF_IMAGES:
        field = ImageSettings.model_fields[name].asdict()
        extra = {"group": _IMAGES, "used": [_of_images]}
        attributes = {**field["attributes"], "json_schema_extra": extra}
        fields[name] = (field["annotation"], Field(**attributes))
    return create_model("AuditCommandSettings", __base__=AuditCommandSettings, **fields)


run = Command(
    "audit",
    _with_images(),
    audit,
    "Check data and settings before training, with the encoder that you plan to train.",
    EPILOG,
)
