"""A sealed archive: whatever byte changes, wherever it is cut, it is seen, or does no harm."""

import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from isotrope.core.checksum import ChecksumMismatch, add_checksum, verify_checksum


def state() -> dict[str, Any]:
    """What is in a checkpoint: tensors of several types, nested numbers, text."""
    torch.manual_seed(0)
    return {
        "global_step": 4,
        "state_dict": {"a": torch.randn(20), "b": torch.arange(24).view(4, 6)},
        "half": torch.randn(3).bfloat16(),
        "loops": {"x": [1, 2.5, None, "abc", (True, b"c")]},
    }


def written(folder: Path, *, sealed: bool) -> Path:
    file = folder / "x.ckpt"
    torch.save(state(), file)
    if sealed:
        add_checksum(file)
    return file


def same(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def read(file: Path) -> object:
    verify_checksum(file)
    return torch.load(file, weights_only=True)


def put(file: Path, place: int, value: int) -> None:
    with file.open("r+b") as handle:
        handle.seek(place)
        handle.write(bytes([value]))


def test_everybody_reads_a_sealed_archive(tmp_path: Path) -> None:
    file = written(tmp_path, sealed=True)
    assert same(read(file), state())
    assert same(torch.load(file, weights_only=True, mmap=True), state())
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        assert archive.comment.startswith(b"isotrope blake2b ")


def test_no_byte_changes_unseen(tmp_path: Path) -> None:
    """All of them, one after the other; only in the digest's own name does a change do nothing."""
    file = written(tmp_path, sealed=True)
    whole = file.read_bytes()
    unharmed = []
    for place, value in enumerate(whole):
        put(file, place, value ^ (0x01, 0x10, 0xFF)[place % 3])
        try:
            found = read(file)
        except ChecksumMismatch:
            continue
        finally:
            put(file, place, value)
        assert same(found, state()), place
        unharmed.append(len(whole) - place)
    assert all(place <= 49 for place in unharmed)


def test_no_cut_goes_unseen(tmp_path: Path) -> None:
    file = written(tmp_path, sealed=True)
    whole = file.read_bytes()
    for length in [*range(0, len(whole) - 150, 9), *range(len(whole) - 150, len(whole))]:
        file.write_bytes(whole[:length])
        try:
            found = read(file)
        except ChecksumMismatch:
            continue
        assert same(found, state()), length
        assert length >= len(whole) - 49


def test_checksums_of_records_alone_would_not_do(tmp_path: Path) -> None:
    """Why there is a digest: one bit makes a folder of a record, whose numbers are then any."""
    file = written(tmp_path, sealed=False)
    whole = bytearray(file.read_bytes())
    entry = whole.find(b"PK\x01\x02")
    while not whole[entry + 46 :].startswith(b"x/data/0"):
        entry = whole.find(b"PK\x01\x02", entry + 1)
    whole[entry + 38] ^= 0x10
    file.write_bytes(whole)
    found = torch.load(file, weights_only=True)
    verify_checksum(file)
    assert not same(found, state())
    file = written(tmp_path, sealed=True)
    whole = bytearray(file.read_bytes())
    whole[entry + 38] ^= 0x10
    file.write_bytes(whole)
    with pytest.raises(ChecksumMismatch, match="does not match its digest"):
        verify_checksum(file)


def test_an_archive_without_a_digest_is_held_against_its_checksums(tmp_path: Path) -> None:
    file = written(tmp_path, sealed=False)
    assert same(read(file), state())
    whole = bytearray(file.read_bytes())
    numbers = whole.find(state()["state_dict"]["b"].numpy().tobytes())
    whole[numbers] ^= 1
    file.write_bytes(whole)
    with pytest.raises(ChecksumMismatch, match=r"x/data/\d in it does not match its checksum"):
        verify_checksum(file)
    file.write_bytes(b"")
    with pytest.raises(ChecksumMismatch, match="it is not a whole archive: File is not a zip file"):
        verify_checksum(file)
    with pytest.raises(FileNotFoundError):
        verify_checksum(tmp_path / "nowhere")


def test_what_is_no_archive_is_not_sealed(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"short")
    with pytest.raises(ChecksumMismatch, match="it is not a zip archive, or it has a comment"):
        add_checksum(file)
    assert file.read_bytes() == b"short"
    sealed = written(tmp_path, sealed=True)
    with pytest.raises(ChecksumMismatch, match="has a comment already"):
        add_checksum(sealed)
    assert same(read(sealed), state())
