"""Writes and reads the folder in which the doctor records a training outside isotrope.

``metrics.csv`` has the rows. ``diagnosis.json`` has the output of ``isotrope diagnose --json`` and
the settings read from the trainer, so that the diagnosis can be repeated.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from isotrope.core.documents import read_json
from isotrope.core.errors import InputError
from isotrope.core.files import atomic_replace
from isotrope.core.run_folder import RunFolder
from isotrope.diagnostics.anatomy import Anatomy
from isotrope.diagnostics.evidence import RunEvidence, Words
from isotrope.diagnostics.findings import Diagnosis

_PLAIN = asdict(Words())


def save(folder: Path, anatomy: Anatomy, diagnosis: Diagnosis) -> None:
    """Write both files."""
    anatomy.save(RunFolder(folder).metrics)
    record = json.loads(diagnosis.to_json())
    record["settings"] = {k: v for k, v in anatomy.settings.items() if v is not None}
    record["words"] = {k: v for k, v in asdict(anatomy.words).items() if v != _PLAIN[k]}
    with atomic_replace(RunFolder(folder).diagnosis) as temporary:
        temporary.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", "utf-8")


def of_recording(folder: Path) -> RunEvidence:
    """Return the case of a recording."""
    anatomy, file = Anatomy.load(folder), RunFolder(folder).diagnosis
    record: Mapping[str, Any] = {}
    if file.is_file():
        read = read_json(file)
        if not isinstance(read, Mapping):
            raise InputError(f"{file} holds no diagnosis; remove it, or restore it")
        record = read
    settings, losses = record.get("settings"), record.get("loss")
    anatomy.settings = dict(settings) if isinstance(settings, Mapping) else {}
    words = record.get("words")
    if isinstance(words, Mapping) and words.keys() <= _PLAIN.keys():
        anatomy.words = Words(**words)
    records = losses if isinstance(losses, list) else [losses]
    return anatomy.case([loss for loss in records if isinstance(loss, Mapping)])
