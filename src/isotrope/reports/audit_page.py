"""Writes the folder of an audit: its page, its JSON and the files for a training."""

import sys
from pathlib import Path

from isotrope.core.files import write_all
from isotrope.diagnostics.audit.result import Audit
from isotrope.diagnostics.audit.texts import TextAudit
from isotrope.reports.html import HtmlTable, tables_page

__all__ = ["write_audit"]


def write_audit(audited: Audit, folder: Path) -> None:
    """Write ``audit.html``, ``audit.json`` and, for text, the files for a training.

    A file of fewer than two rows is not written; an earlier one of its name is removed, and stderr
    says why.

    Raises:
        InputError: they cannot be written.
    """
    tables = [HtmlTable(t.title, t.columns, t.rows, t.note) for t in audited.tables()]
    files = {
        "audit.json": audited.to_json().encode(),
        "audit.html": tables_page("Before training", audited.title, tables).encode(
            "utf-8", "replace"
        ),
    }
    if isinstance(audited, TextAudit):
        files |= audited.files()
    write_all(folder, files)
    if isinstance(audited, TextAudit):
        for name, why in audited.unwritten.items():
            Path(folder, name).unlink(missing_ok=True)  # an earlier audit may have written it
            print(why, file=sys.stderr)
