"""Adds a paragraph on the training to the model card of sentence-transformers.

Whenever sentence-transformers saves a model, it renders the card from the template at
``model_card_data.template_path``. After the training, this path names a copy with one more section.
"""

import atexit
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from isotrope.adapters.doctor.messages import on_the_card
from isotrope.diagnostics.findings import Diagnosis

_SECTION = re.compile(r"<!-- isotrope -->.*?<!-- /isotrope -->\n\n", re.DOTALL)
_NEXT = "### Framework Versions"


def add_to_card(model: object, losses: Iterable[Mapping[str, Any]], diagnosis: Diagnosis) -> None:
    """Add a section on the training to a model's card; it replaces an earlier section."""
    data = getattr(model, "model_card_data", None)
    path = getattr(data, "template_path", None)
    if data is None or path is None:
        return
    template = _SECTION.sub("", Path(path).read_text(encoding="utf-8"))
    before, marker, after = template.partition(_NEXT)
    section = (
        "<!-- isotrope -->\n### Diagnosis of the Training\n\n{% raw %}"
        f"{on_the_card(losses, diagnosis)}"
        "{% endraw %}\n<!-- /isotrope -->\n\n"
    )
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", prefix="isotrope-card-", suffix=".md", delete=False
    ) as copy:
        copy.write(f"{before}{section}{marker}{after}" if marker else f"{before}\n\n{section}")
    atexit.register(Path(copy.name).unlink, missing_ok=True)  # models are saved until the end
    data.template_path = Path(copy.name)
