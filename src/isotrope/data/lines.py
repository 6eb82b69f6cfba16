"""Reads lines of text from plain or gzipped files in constant memory; errors name the line."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from isotrope.core.documents import check_file
from isotrope.core.errors import InputError, place

# white space, and what other characters are joined, ordered or filled with
_UNSEEN = (
    " \t\r\n\f\v\x1c\x1d\x1e\x1f\x85\xa0\xad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b\u180c"
    "\u180d\u180e\u2028\u2029\u202f\u205f\u2800\u3000\u3164\ufeff\uffa0"
    + "".join(map(chr, (*range(0x2000, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070))))
    + "".join(map(chr, range(0xFE00, 0xFE10)))
)

RATIO = 200
"""Times its size to which a gzipped file may unpack: text comes to 3 to 50, zeros to 1,000."""
_SMALL = 1 << 25  # bytes that any may unpack to

MAX_CHARACTERS = 100_000
"""Longest text that is read, in characters; a longer one is a file without line ends."""


def visible(text: str) -> str:
    """Return a text, or an empty one if it holds only spaces, joiners and other unseen marks."""
    return text if text.isascii() or text.strip(_UNSEEN) else ""


def quoted(value: object, width: int = 40) -> str:
    """Return ``value`` as a short one-line quotation for an error message."""
    text = repr(value[: width + 1] if isinstance(value, str) else value)
    return text if len(text) <= width + 2 else f"{text[:width]}..."


def is_folder(path: Path) -> bool:
    """Return whether ``path`` is a folder; a path that cannot be looked at is none."""
    try:
        return path.is_dir()
    except OSError:  # a name that is too long, for example: check_file says so
        return False


class _Unpacked(gzip.GzipFile):
    """A gzipped file that ends where it unpacks to more than any text does."""

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any buffer
        """Read into a buffer; return the number of bytes."""
        count = super().readinto(buffer)
        packed = cast(BinaryIO, self.fileobj).tell()
        if self.tell() > max(RATIO * packed, _SMALL):
            raise InputError(
                f"{place(str(self.name))}: unpacks to more than {RATIO} times its size, as no "
                "text does; unpack it yourself if that is right"
            )
        return count


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading bytes; a name that ends in ``.gz`` is decompressed."""
    check_file(path)
    try:
        with path.open("rb") as raw:
            if path.suffix.lower() != ".gz":
                yield raw
            else:
                # a BufferedReader in C over GzipFile: its own readline is Python and slow
                with _Unpacked(fileobj=raw) as plain:
                    yield cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, plain)))
    except gzip.BadGzipFile as error:
        raise InputError(
            f"{place(path)}: is not valid gzip ({error}); compress it again, or drop .gz from "
            "the name if it is not compressed"
        ) from error
    except (EOFError, zlib.error) as error:
        raise InputError(
            f"{place(path)}: broken gzip, it ends early or is damaged ({error}); "
            "copy or download it again"
        ) from error
    except OSError as error:
        raise InputError(f"{place(path)}: cannot be read ({error.strerror or error})") from error


def lines(path: Path, limit: int = MAX_CHARACTERS) -> Iterator[tuple[int, str]]:
    r"""Yield the lines of a UTF-8 file with their numbers, starting at 1.

    A byte-order mark and the line ends (``\n`` or ``\r\n``) are removed, nothing else: no other
    character ends a line, not U+2028, U+0085, a form feed or a carriage return alone (a file of one
    line with carriage returns inside is refused: it has the line ends of old Macs). At most
    ``limit`` characters are ever held: a longer line is an error, found without reading all of it.

    Args:
        path: a plain or gzipped text file.
        limit: characters that a line may have.
    """
    most = 4 * limit + 8  # bytes: four for a character, byte-order mark and line end
    number, blank = 0, True
    with open_bytes(path) as handle:
        while raw := handle.readline(most):
            number += 1
            if b"\0" in raw:
                raise InputError(
                    f"{place(path, number)}: holds NUL bytes, so it is binary or UTF-16; "
                    "give UTF-8 text"
                )
            if number == 1 and b"\r" in raw.rstrip(b"\r\n") and not raw.endswith(b"\n"):
                raise InputError(
                    f"{place(path)}: has the line ends of old Macs (CR alone), so it would be one "
                    "line; convert it (tr '\\r' '\\n')"
                )
            # an incomplete character at the cut of an over-long line must not hide its length
            too_long = len(raw) == most and not raw.endswith(b"\n")
            text = "" if too_long else _decoded(raw, path, number).rstrip("\r\n")
            if too_long or len(text) > limit:
                raise InputError(
                    f"{place(path, number)}: longer than {limit:,} characters; "
                    "break the text into lines, one sentence or passage each"
                )
            if blank and text.strip():
                blank = False
            yield number, text
    if blank:
        what = "holds only blank lines" if number else "is empty"
        raise InputError(f"{place(path)}: {what}; give a file with at least one line of text")


def _decoded(raw: bytes, path: Path, number: int) -> str:
    try:
        return raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        if raw.startswith(b"\x1f\x8b"):
            remedy = "it is gzip-compressed: end its name in .gz"
        else:
            remedy = "convert it (iconv -f WINDOWS-1252 -t UTF-8) or remove the line"
        raise InputError(
            f"{place(path, number)}: invalid UTF-8 at byte {error.start + 1} "
            f"(0x{raw[error.start]:02x}); {remedy}"
        ) from error
