"""Lines of text from plain or gzipped files, in constant memory; errors name the line."""

import gzip
import io
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from isotrope.core.errors import InputError

__all__ = ["MAX_CHARACTERS", "check_file", "is_folder", "lines", "open_bytes", "place", "shown"]

MAX_CHARACTERS = 100_000
"""Longest text that is read, in characters; a longer one is a file without line ends."""


def place(path: Path, line: int | None = None) -> str:
    """Return ``"file, line 3"``, on one line whatever the file is called."""
    name = str(path) if str(path).isprintable() else repr(str(path))
    return name if line is None else f"{name}, line {line}"


def shown(value: object, width: int = 40) -> str:
    """Return ``value`` as a short one-line quotation for an error message."""
    text = repr(value[: width + 1] if isinstance(value, str) else value)
    return text if len(text) <= width + 2 else f"{text[:width]}..."


def is_folder(path: Path) -> bool:
    """Return whether ``path`` is a folder; a path that cannot be looked at is none."""
    try:
        return path.is_dir()
    except OSError:  # a name that is too long, for example: check_file says so
        return False


def check_file(path: Path) -> None:
    """Refuse what is not a readable regular file, without opening it (a pipe would block).

    Raises:
        InputError: nothing is there, or it is a folder, pipe, socket or device.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        raise InputError(f"{place(path)}: no such file; check the path") from error
    except OSError as error:
        raise InputError(f"{place(path)}: cannot be read ({error.strerror})") from error
    if stat.S_ISDIR(mode):
        raise InputError(f"{place(path)}: is a folder where a file is needed")
    if not stat.S_ISREG(mode):
        kind = "pipe" if stat.S_ISFIFO(mode) else "socket" if stat.S_ISSOCK(mode) else "device"
        raise InputError(
            f"{place(path)}: is not a regular file (a {kind}); save the text to a file first"
        )


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading bytes; a name that ends in ``.gz`` is decompressed.

    Raises:
        InputError: no such file, not a regular file, not readable, or broken gzip; also for
            errors that come up while the caller reads.
    """
    check_file(path)
    try:
        with path.open("rb") as raw:
            if path.suffix.lower() != ".gz":
                yield raw
            else:
                # a BufferedReader in C over GzipFile: its own readline is Python and slow
                with gzip.GzipFile(fileobj=raw) as plain:
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

    A byte-order mark and the line ends (``\n`` or ``\r\n``) are removed, nothing else. At most
    ``limit`` characters are ever held: a longer line is an error, found without reading all of it.

    Args:
        path: a plain or gzipped text file.
        limit: characters that a line may have.

    Raises:
        InputError: the file cannot be read; is empty or blank; holds NUL bytes, invalid UTF-8
            or a line over ``limit`` characters.
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
            remedy = "convert it (iconv -f LATIN1 -t UTF-8) or remove the line"
        raise InputError(
            f"{place(path, number)}: invalid UTF-8 at byte {error.start + 1} "
            f"(0x{raw[error.start]:02x}); {remedy}"
        ) from error
