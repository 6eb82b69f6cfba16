"""The keywords of ``isotrope.fit`` as a type, written from the settings of a training on text."""

import re
import typing
from pathlib import Path

from pydantic.fields import FieldInfo

from isotrope.core.files import write_text
from isotrope.training.settings import TrainSettings

_HEAD = '''"""The keywords of ``isotrope.fit`` for type checkers; `make docs` writes this file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Required, TypedDict

from isotrope.paradigm.objective import Objective


class TextOptions(TypedDict, total=False):
    """The keywords of ``isotrope.fit``: the fields of ``TrainSettings`` but ``files``."""

'''


def write_text_options(file: Path) -> Path:
    """Write the module that declares ``TextOptions``."""
    write_text(file, text_options())
    return file


def text_options() -> str:
    """Return the module that declares ``TextOptions``."""
    fields = {name: f for name, f in TrainSettings.ordered().items() if name != "files"}
    return _HEAD + "".join(f"    {name}: {_type(field)}\n" for name, field in fields.items())


def _type(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    wider = str(extra.get("python", "")) if isinstance(extra, dict) else ""
    shown = wider or re.sub("'", '"', re.sub(r"typing\.", "", _spelled(field.annotation)))
    return f"Required[{shown}]" if field.is_required() else shown


def _spelled(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)
