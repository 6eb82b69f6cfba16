"""Checks and reads files that other people may have written: text, JSON, YAML and numpy's archives.

Pipes, devices, very large files, deep nesting, repeated keys in YAML and YAML aliases that expand
to many values raise an :class:`InputError` that names the file. No content is executed.
"""

import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isotrope.core.errors import InputError, place, unreadable
from isotrope.core.spelling import brief

if TYPE_CHECKING:
    import yaml
    from numpy.lib.npyio import NpzFile

LARGEST = 1 << 28
"""Largest file that is read at once, in bytes; tokenizers' files are at most a tenth of it."""
LARGEST_SETTINGS = 1 << 20
"""Largest file of settings, in bytes."""
_DEEPEST = 100  # levels of lists and objects in JSON; recursive functions may follow them
_MOST_VALUES = 100_000  # in a file of settings, after its aliases are expanded


def check_file(path: Path, within: Path | None = None) -> None:
    """Raise an error unless ``path`` is a file, not a folder, pipe or device; do not open it.

    Args:
        path: The file.
        within: Folder that other people may have made. A link that leads out of it is refused.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, ValueError) as error:  # the latter: a NUL in the name
        raise InputError(f"{place(path)}: check the path; there is no such file") from error
    except OSError as error:
        raise unreadable(path, error) from error
    if within is not None and not path.resolve().is_relative_to(within.resolve()):
        raise InputError(
            f"{place(path)}: replace this link by a file; it leads out of folder {place(within)}"
        )
    if stat.S_ISDIR(mode):
        raise InputError(f"{place(path)}: give a file; this is a folder")
    if not stat.S_ISREG(mode):
        kind = {stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}.get(stat.S_IFMT(mode), "device")
        raise InputError(
            f"{place(path)}: save the content to a regular file first; this is a {kind}"
        )


def read_text(path: Path | str, limit: int = LARGEST) -> str:
    """Return a file of UTF-8 text."""
    path = Path(path)
    check_file(path)
    try:
        with path.open("rb") as handle:
            data = handle.read(limit + 1)
    except OSError as error:
        raise unreadable(path, error) from error
    if len(data) > limit:
        raise InputError(f"{place(path)}: give a smaller file; it has more than {limit:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{place(path)}: save this file as UTF-8; it is not UTF-8 text (byte {error.start})"
        ) from error


@contextmanager
def open_arrays(path: Path) -> "Iterator[NpzFile]":
    """Open an archive that ``numpy.savez_compressed`` wrote.

    Damage raises the errors of zipfile, zlib and numpy, perhaps only when an array is read.
    """
    import numpy as np

    check_file(path)
    # not opened by numpy, which would leave a broken archive open
    with path.open("rb") as handle, np.load(handle, allow_pickle=False) as arrays:
        if sum(member.file_size for member in arrays.zip.infolist()) > LARGEST:
            raise InputError(
                f"{place(path)}: restore this file; it unpacks to more than {LARGEST:,} bytes"
            )
        yield arrays


class _Decoder(json.JSONDecoder):
    """A decoder that raises a ValueError for a value that is nested too deeply."""

    def raw_decode(self, s: str, idx: int = 0) -> tuple[object, int]:
        """Return a value and where it ends; a flat value is not searched."""
        try:
            value, end = super().raw_decode(s, idx)
            if s.count("[") + s.count("{") <= _DEEPEST or not _is_deeper(value, _DEEPEST):
                return value, end
        except RecursionError:
            pass
        raise ValueError("it is nested too deeply")


def _is_deeper(value: object, levels: int) -> bool:
    """Return whether a value has more than ``levels`` levels of lists and dicts."""
    if not isinstance(value, (list, dict)):
        return False
    items = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(item, levels - 1) for item in items)


parse_json = _Decoder().decode
"""Returns the value of a JSON text; raises ValueError if it is malformed or nested too deeply."""


def read_json(path: Path | str) -> Any:  # noqa: ANN401 - any JSON
    """Read a JSON file."""
    text = read_text(path)
    try:
        return parse_json(text)
    except ValueError as error:
        why = f"restore this file; it is not valid JSON ({error})"
        raise InputError(f"{place(path)}: {why}") from error


def read_yaml(path: Path | str) -> dict[str, Any]:
    """Return the settings in a YAML file as a dict; nothing in the file is executed."""
    import yaml

    values: object = None
    remedy = "write `key: value` on each line"
    try:
        loader = yaml.SafeLoader(read_text(path, LARGEST_SETTINGS))
        root = loader.get_single_node()
        if root is not None:
            _check_nodes(root, path)
            values = loader.construct_document(root)
    except InputError:
        raise
    except RecursionError:
        raise InputError(f"{place(path)}: {remedy}; this file is nested too deeply") from None
    # the safe loader passes on the errors of int(), float() and datetime for impossible values
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None)
        where = place(path, None if mark is None else mark.line + 1)
        why = " ".join(str(getattr(error, "problem", None) or error).split())
        raise InputError(f"{where}: correct this file; it is not YAML ({why[:200]})") from error
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise InputError(f"{place(path)}: {remedy}; this file must hold settings")
    return values


def _check_nodes(root: "yaml.Node", path: Path | str) -> None:
    """Refuse repeated keys, and aliases that expand to many values or contain themselves."""
    import yaml

    waiting, count = [root], 0
    while waiting:
        node = waiting.pop()
        count += 1
        if isinstance(node, yaml.MappingNode):
            waiting += [part for pair in node.value for part in pair]
            names = set()
            for key in [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]:
                if key.value in names:  # yaml would silently take the last value
                    where = place(path, key.start_mark.line + 1)
                    raise InputError(f"{where}: write {brief(key.value)} once; it is given twice")
                names.add(key.value)
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value
        if count + len(waiting) > _MOST_VALUES:
            raise InputError(
                f"{place(path)}: shorten this file; it holds more than {_MOST_VALUES:,} values"
            )
