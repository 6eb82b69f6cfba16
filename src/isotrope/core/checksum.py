"""Adds a checksum to a zip archive, such as a checkpoint, and verifies it.

The checksums that an archive has by itself are not enough. torch does not look at them, and a
CRC-32 covers the content of a record, not what the archive says of it: with one bit of the
attributes flipped, torch takes a record of weights for a folder, and gives what happened to be in
memory. So the whole file is digested. The digest is stored as the archive's comment, which other
readers of the archive ignore.
"""

import hashlib
import os
import re
import zipfile
from pathlib import Path
from typing import BinaryIO

_END = b"PK\x05\x06"  # of the last 22 bytes of an archive without comment, two of its length last
_NAME = b"isotrope blake2b "
_LENGTH = len(_NAME) + 32
_SEAL = re.compile(re.escape(_NAME) + rb"[0-9a-f]{32}")


class ChecksumMismatch(ValueError):
    """A file differs from what was written."""


def add_checksum(path: Path) -> None:
    """Add the digest to an archive that has no comment."""
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 22))
        end = file.read()
        if not end.startswith(_END) or not end.endswith(b"\0\0"):
            raise ChecksumMismatch("it is not a zip archive, or it has a comment already")
        file.seek(size - 2)
        file.write(_LENGTH.to_bytes(2, "little"))
        digest = _digest(file, size)
        file.seek(size)
        file.write(_NAME + digest)


def verify_checksum(path: Path) -> None:
    """Do nothing for an archive that is as it was when its checksum was added.

    An archive without a digest (older versions wrote none) is read through, and its records are
    compared with their own checksums.
    """
    with path.open("rb") as file:
        size = max(0, file.seek(0, os.SEEK_END) - _LENGTH)
        file.seek(size)
        trailer = file.read()
        if _SEAL.fullmatch(trailer):
            if _digest(file, size) != trailer[len(_NAME) :]:
                raise ChecksumMismatch("it does not match its digest")
            return
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
    # a damaged archive makes zipfile raise half a dozen kinds of errors
    except Exception as error:
        raise ChecksumMismatch(f"it is not a whole archive: {error}") from error
    if broken is not None:
        raise ChecksumMismatch(f"{broken} in it does not match its checksum")


def _digest(file: BinaryIO, size: int) -> bytes:
    """Return the digest of the first ``size`` bytes."""
    digest = hashlib.blake2b(digest_size=16)
    file.seek(0)
    while size > 0 and (piece := file.read(min(size, 1 << 20))):
        digest.update(piece)
        size -= len(piece)
    return digest.hexdigest().encode()
