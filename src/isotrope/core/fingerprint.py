"""Fingerprint: a few digits that change with the content of data, wherever the data stand."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass

import numpy as np

__all__ = ["fingerprint"]


def fingerprint(*values: object) -> str:
    """Return 16 hexadecimal digits of the content of ``values``.

    Args:
        values: None, bool, int, float, str, bytes, numpy arrays; sequences, iterators, mappings
            (in any order of their keys) and dataclasses of these.

    Raises:
        TypeError: anything else.
    """
    found = hashlib.blake2b(digest_size=8)
    _feed(found, values)
    return found.hexdigest()


def _feed(found: "hashlib.blake2b", value: object) -> None:
    """Add a value, after its kind and length: no two values are spelled alike."""
    if value is None or isinstance(value, bool | int | float):
        found.update(f"{type(value).__name__} {value!r};".encode())
    elif isinstance(value, str | bytes):
        content = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        found.update(f"{type(value).__name__} {len(content)};".encode())
        found.update(content)
    elif isinstance(value, np.ndarray):
        found.update(f"array {value.dtype.str} {value.shape};".encode())
        found.update(np.ascontiguousarray(value).data)
    elif isinstance(value, Mapping):
        _feed(found, [(key, value[key]) for key in sorted(value, key=repr)])
    elif isinstance(value, Sequence):
        found.update(f"sequence {len(value)};".encode())
        for item in value:
            _feed(found, item)
    elif isinstance(value, Iterator):
        found.update(b"iterator;")
        for item in value:
            _feed(found, item)
        found.update(b"end;")
    elif is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value)]
        _feed(found, [type(value).__name__, *((name, getattr(value, name)) for name in names)])
    else:
        raise TypeError(f"a {type(value).__name__} has no fingerprint; give plain data")
