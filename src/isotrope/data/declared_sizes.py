"""Reads the unpacked sizes of the pages of a parquet file, or of the buffers of an Arrow file.

The size in the header of a page or a buffer is what a decoder allocates, and the most that it
unpacks. The size in the index of the file is not used, because it may be smaller.
"""

import struct
from collections.abc import Iterator
from mmap import mmap

DAMAGED = (IndexError, KeyError, RecursionError, SystemError, UnicodeDecodeError, struct.error)
"""Errors of headers that cannot be read."""

_FIXED = {1: 0, 2: 0, 3: 1, 7: 8}  # bytes that a type takes: true, false, a byte, a double


def page_sizes(data: mmap, at: int, end: int) -> Iterator[int]:
    """Yield the unpacked size of each parquet page between the bytes ``at`` and ``end``."""
    while at < end:
        header, at = _struct(data, at)
        yield max(header[2], 0)
        at += max(header[3], 0)


def _struct(data: mmap, at: int) -> tuple[dict[int, int], int]:
    """Read a struct of Thrift's compact protocol; return its integers by field, and its end."""
    numbers, field = {}, 0
    while head := data[at]:
        kind, at = head & 15, at + 1
        field += head >> 4
        if head < 16:
            field, at = _integer(data, at)
        if kind in (4, 5, 6):
            numbers[field], at = _integer(data, at)
        elif kind == 8:  # a string of bytes; its length is an unsigned integer
            length, at = _integer(data, at, signed=False)
            at += length
        elif kind == 12:
            at = _struct(data, at)[1]
        else:
            at += _FIXED[kind]
    return numbers, at + 1


def _integer(data: mmap, at: int, *, signed: bool = True) -> tuple[int, int]:
    """Return an integer of seven bits in each byte, and the position after its last byte."""
    value = shift = 0
    while True:
        byte, at = data[at], at + 1
        value |= (byte & 127) << shift
        shift += 7
        if shift > 70:
            raise IndexError("an integer of more than 64 bits")
        if byte < 128:
            return ((value >> 1) ^ -(value & 1) if signed else value), at


def buffer_sizes(metadata: memoryview, body: memoryview) -> Iterator[int]:
    """Yield the unpacked size of each buffer in a message of the Arrow format."""
    message = _offset(metadata, 0)
    kind, batch = (_field(metadata, message, number) for number in (1, 2))
    if kind is None or batch is None or metadata[kind] not in (2, 3):
        return
    batch = _offset(metadata, batch)
    if metadata[kind] == 2:  # a dictionary batch, which wraps a record batch
        inner = _field(metadata, batch, 1)
        if inner is None:
            return
        batch = _offset(metadata, inner)
    buffers, packed = _field(metadata, batch, 2), _field(metadata, batch, 3)
    if buffers is None:
        return
    start = _offset(metadata, buffers)
    for i in range(struct.unpack_from("<I", metadata, start)[0]):
        offset, length = struct.unpack_from("<qq", metadata, start + 4 + 16 * i)
        unpacked = -1 if packed is None or not length else struct.unpack_from("<q", body, offset)[0]
        yield length if unpacked < 0 else unpacked


def _field(data: memoryview, table: int, number: int) -> int | None:
    """Return the position of a field of a FlatBuffers table; None if the field is missing."""
    names = table - struct.unpack_from("<i", data, table)[0]
    if 4 + 2 * number >= struct.unpack_from("<H", data, names)[0]:
        return None
    offset: int = struct.unpack_from("<H", data, names + 4 + 2 * number)[0]
    return table + offset if offset else None


def _offset(data: memoryview, at: int) -> int:
    """Return the position to which the offset at ``at`` points."""
    return at + int(struct.unpack_from("<I", data, at)[0])
