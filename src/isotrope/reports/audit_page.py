"""Writes the folder of an audit: a page, a JSON file, and data files for a training."""

import sys
from pathlib import Path

from isotrope.core.files import check_outputs, tidy, write_all
from isotrope.core.lock import exclusive_lock
from isotrope.diagnostics.audit.result import Audit
from isotrope.diagnostics.audit.texts import TextAudit
from isotrope.reports.html import tables_page

_FILES = ("audit.html", "audit.json", "cleaned.jsonl", "grouped.jsonl", "mined.jsonl")


def check_folder(folder: Path, *inputs: object) -> None:
    """Before an audit, refuse a folder in which it would replace a file that it reads."""
    check_outputs(folder, _FILES, inputs)


def write_audit(audited: Audit, folder: Path) -> None:
    """Write ``audit.html``, ``audit.json`` and, for text, data files for a training.

    Files of an earlier audit are removed. A data file with fewer than two rows is not written; a
    message on stderr says why.
    """
    files = {
        "audit.json": audited.to_json().encode(),
        "audit.html": tables_page("Before training", audited.title, audited.tables()).encode(
            "utf-8", "replace"
        ),
    }
    if isinstance(audited, TextAudit):
        files |= audited.files()
    with exclusive_lock(folder, f"writing an audit to {folder}"):
        tidy(folder)
        write_all(folder, files, _FILES if (folder / "audit.json").exists() else ())
    if isinstance(audited, TextAudit):
        for why in audited.unwritten.values():
            print(why, file=sys.stderr)
