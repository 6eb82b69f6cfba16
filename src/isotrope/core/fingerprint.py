"""Computes fingerprints: digits that depend on the content of data, not on where it is stored."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass

import numpy as np


def fingerprint(*values: object) -> str:
    """Return 16 hexadecimal digits that depend on the content of ``values``.

    Args:
        values: None, bool, int, float, str, bytes, arrays of numpy, and sequences, iterators,
            mappings and dataclasses of these. The order of keys of a mapping does not matter.
            Fields of a dataclass with ``compare=False`` do not change the fingerprint.
    """
    digest = hashlib.blake2b(digest_size=8)
    _feed(digest, values)
    return digest.hexdigest()


def _feed(digest: "hashlib.blake2b", value: object) -> None:
    """Add the type, the length and the content of a value; a mapping is added as its pairs."""
    if value is None or isinstance(value, bool | int | float):
        digest.update(f"{type(value).__name__} {value!r};".encode())
    elif isinstance(value, str | bytes):
        content = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        digest.update(f"{type(value).__name__} {len(content)};".encode())
        digest.update(content)
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:  # which holds addresses
        digest.update(f"array {value.dtype.str} {value.shape};".encode())
        digest.update(np.ascontiguousarray(value).data)
    elif isinstance(value, Mapping):
        _feed(digest, [(key, value[key]) for key in sorted(value, key=repr)])
    elif isinstance(value, Sequence):
        digest.update(f"sequence {len(value)};".encode())
        for item in value:
            _feed(digest, item)
    elif isinstance(value, Iterator):
        digest.update(b"iterator;")
        for item in value:
            _feed(digest, item)
        digest.update(b"end;")
    elif is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value) if field.compare]
        _feed(digest, [type(value).__name__, *((name, getattr(value, name)) for name in names)])
    else:
        raise TypeError(f"use numbers, texts or arrays; found the type {type(value).__name__}")
