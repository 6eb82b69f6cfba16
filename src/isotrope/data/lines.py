"""Reads lines of text from plain or compressed files in constant memory."""

import bz2
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from isotrope.core.documents import LARGEST, check_file
from isotrope.core.errors import InputError, needs_extra, place, unreadable

COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
"""File endings of compressed text."""
RATIO = 200
"""Largest allowed ratio of unpacked to packed size: 3 to 50 for text, 1,000 for a file of zeros."""
_SMALL = 1 << 25  # bytes to which any file may unpack
_BEGINNINGS = {
    **dict(zip((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd"), COMPRESSED, strict=True)),
    b"PAR1": ".parquet",
    b"ARROW1": ".arrow",
    b"PK\3\4": "",
}
"""Endings of files that are not plain text, by the first bytes of such files."""

MAX_CHARACTERS = 100_000
"""Largest length of a text, in characters. A longer text is probably a file without line ends."""


def visible(text: str) -> str:
    """Return the text, or ``""`` if it has only invisible characters, such as spaces."""
    return text if text.isascii() or any(map(str.isprintable, text.strip())) else ""


def quoted(value: object, width: int = 40) -> str:
    """Return ``value`` as a short one-line quotation for an error message."""
    text = repr(value[: width + 1] if isinstance(value, str) else value)
    return text if len(text) <= width + 2 else f"{text[:width]}..."


def is_folder(path: "Path | os.DirEntry[str]") -> bool:
    """Return whether a path is a folder; False if the path cannot be read."""
    try:
        return path.is_dir()
    except OSError:  # for example a name that is too long, which check_file reports
        return False


def most_unpacked(packed: int) -> int:
    """Return the largest number of bytes that may be unpacked from a file of ``packed`` bytes."""
    return max(RATIO * packed, _SMALL)


def refuse_bomb(path: Path, size: int, packed: int, *, cells: int = 0) -> None:
    """Raise an error if a file unpacks to far more bytes than text does.

    Each of ``cells`` may hold a text of usual length: a table may store one text for many rows.
    """
    if size > most_unpacked(packed) + cells * MAX_CHARACTERS:
        raise InputError(
            f"{place(path)}: if you trust this file, unpack it or write it without compression; it "
            f"is not read, because it unpacks to more than {RATIO} times its size (text: 3 to 50 "
            "times)"
        )


class _Unpacked(io.RawIOBase):
    """A stream of unpacked bytes that raises an error when there are too many for text."""

    def __init__(self, path: Path, raw: BinaryIO) -> None:
        self._path, self._raw, self._count = path, raw, 0
        kind = path.suffix.lower()
        self._plain: Any = None
        if kind == ".zst":
            with needs_extra("parquet"):
                import pyarrow
            self._plain = pyarrow.CompressedInputStream(pyarrow.PythonFile(raw), "zstd")
        else:
            opened: Any = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}[kind]
            self._plain = opened(raw)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any buffer
        """Read into a buffer; return the number of bytes."""
        data = self._plain.read(len(buffer))
        buffer[: len(data)] = data
        self._count += len(data)
        refuse_bomb(self._path, self._count, self._raw.tell())
        return len(data)


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading bytes. A file with an ending in :data:`COMPRESSED` is unpacked."""
    check_file(path)
    packed = path.suffix.lower() in COMPRESSED
    try:
        with path.open("rb") as raw:
            # BufferedReader is written in C; readline of gzip, bz2 and lzma is slow Python
            plain = io.BufferedReader(_Unpacked(path, raw), 1 << 16) if packed else raw
            yield cast(BinaryIO, plain)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        if packed:
            raise InputError(
                f"{place(path)}: copy or download this file again; it is not a complete "
                f"{path.suffix} file ({error}). If the file is not compressed, remove "
                f"{path.suffix} from its name"
            ) from error
        raise unreadable(path, error) from error


def lines(path: Path, limit: int = MAX_CHARACTERS) -> Iterator[tuple[int, str]]:
    r"""Yield the lines of a UTF-8 file with their numbers, starting at 1.

    The byte-order mark and the line ends (``\n`` or ``\r\n``) are removed. Other characters, such
    as U+2028, U+0085, a form feed or a single carriage return, do not end a line. A file in which
    only carriage returns end the lines, as on old Macs, raises an error. A line of more than
    ``limit`` characters raises an error before the whole line is read.
    """
    most = min(4 * limit, LARGEST) + 8  # bytes: four for a character, byte-order mark and line end
    number, blank = 0, True
    with open_bytes(path) as handle:
        while raw := handle.readline(most):
            number += 1
            if b"\0" in raw:
                raise _no_utf8(raw, path, number, "holds NUL bytes")
            if number == 1 and b"\r" in raw.rstrip(b"\r\n") and not raw.endswith(b"\n"):
                raise InputError(
                    f"{place(path)}: convert the line ends with tr '\\r' '\\n'; the lines of this "
                    "file end in CR alone, as on old Macs"
                )
            # an incomplete character at the cut of an over-long line must not hide its length
            too_long = len(raw) == most and not raw.endswith(b"\n")
            text = "" if too_long else _decoded(raw, path, number).rstrip("\r\n")
            if too_long or len(text) > limit:
                raise InputError(
                    f"{place(path, number)}: break this line into lines of one sentence, "
                    f"passage or object; it has more than {limit:,} characters"
                )
            if blank and text.strip():
                blank = False
            yield number, text
    if blank:
        what = "holds only blank lines" if number else "is empty"
        raise InputError(f"{place(path)}: give a file with a line of text; this file {what}")


def fields(path: Path, needed: str, *, blank: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Yield a tuple for each line: its line number, and the list of its tab-separated cells.

    Args:
        path: The file.
        needed: Names of the cells of every line, such as ``label<TAB>text``.
        blank: Whether to skip blank lines. If False, a blank line raises an error.
    """
    count = needed.count("<TAB>") + 1
    for number, text in lines(path):
        if blank and not text.strip():
            continue
        cells = text.split("\t")
        if len(cells) != count:
            raise InputError(
                f"{place(path, number)}: give {count} tab-separated fields, {needed}; this line "
                f"has {len(cells)}"
            )
        yield number, cells


def _decoded(raw: bytes, path: Path, number: int) -> str:
    try:
        return raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        what = f"invalid UTF-8 at byte {error.start + 1} (0x{raw[error.start]:02x})"
        raise _no_utf8(raw, path, number, what) from error


def _no_utf8(raw: bytes, path: Path, number: int, what: str) -> InputError:
    """Return the error for a line that is not UTF-8."""
    for beginning, ending in _BEGINNINGS.items():
        if number == 1 and raw.startswith(beginning):
            name = f"end the name of this file in {ending}"
            remedy = name if ending else "save or unpack this file as text"
            return InputError(f"{place(path)}: {what}, so it is not text; {remedy}")
    wide = raw.startswith((b"\xff\xfe", b"\xfe\xff")) or 3 * raw.count(0) > len(raw)
    if b"\0" in raw and not wide:
        return InputError(f"{place(path, number)}: {what}, so it is not text; give UTF-8 text")
    likely = "UTF-16" if wide else "WINDOWS-1252"
    return InputError(
        f"{place(path, number)}: {what}; convert the file to UTF-8 from the encoding in which it "
        f"was written, for example with iconv -f {likely} -t UTF-8"
    )
