"""What a run has written and then reads again: damage is seen, told, and changes no number."""

import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from isotrope.core.errors import CannotResume
from isotrope.training.checkpoints import (
    Checkpoints,
    ChecksumMismatch,
    finish,
    newest,
    read_checkpoint,
    verify,
)
from isotrope.training.fit_text import fit
from tests.training.conftest import QUICK, sentences
from tests.training.interrupted import checkpoints, power_cut
from tests.training.test_text import rows, weights


@pytest.fixture(scope="module")
def runs(encoder_folder: str, tmp_path_factory: pytest.TempPathFactory) -> dict:
    """Settings of a run that came to its end, and, beside it, of one that died in its sixth step.

    It left checkpoints of steps 2 and 4.
    """
    folder = tmp_path_factory.mktemp("runs")
    (folder / "corpus.txt").write_text("\n".join(sentences(300)) + "\n", encoding="utf-8")
    own = {"encoder": encoder_folder, "files": [str(folder / "corpus.txt")]}
    settings = {**QUICK, **own, "output": str(folder / "whole")}
    fit(**settings)
    with power_cut(5):
        fit(**{**settings, "output": str(folder / "stopped")})
    return settings


@pytest.fixture
def stopped(runs: dict, tmp_path: Path) -> dict:
    """Settings of a copy of the run that died."""
    shutil.copytree(Path(runs["output"]).parent / "stopped", tmp_path / "run")
    return {**runs, "output": str(tmp_path / "run")}


def without_speed(folder: Path) -> list[dict[str, str]]:
    return [{k: v for k, v in row.items() if k != "samples_per_second"} for row in rows(folder)]


def assert_same_run(found: Path, expected: Path) -> None:
    first, second = weights(found), weights(expected)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert without_speed(found) == without_speed(expected)


@pytest.mark.parametrize(
    "name", ["model.pt", "optimizer.pt", "run.pt", "trainer_state.json", "complete.json"]
)
def test_a_damaged_byte_of_the_last_checkpoint(
    runs: dict, stopped: dict, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever it is, the checkpoint before is resumed from."""
    last, before = checkpoints(stopped["output"])
    raw = (last / name).read_bytes()
    for place in random.Random(0).sample(range(len(raw)), 8):
        (last / name).write_bytes(raw[:place] + bytes([raw[place] ^ 0x10]) + raw[place + 1 :])
        with suppress(ChecksumMismatch):
            verify(last)
            # a byte of the marker that says nothing: the name of its own step
            assert name == "complete.json"
            continue
        assert newest(last.parent, print) == before
        assert "is damaged; trying an earlier one" in capsys.readouterr().out
    resumed = fit(**stopped, resume=True).output
    assert_same_run(resumed, Path(runs["output"]))


def test_without_a_whole_checkpoint_nothing_is_gone_on_from(stopped: dict) -> None:
    for folder in checkpoints(stopped["output"]):
        whole = (folder / "model.pt").read_bytes()
        (folder / "model.pt").write_bytes(whole[:-200])
    with pytest.raises(CannotResume, match=r"checkpoint-4 \(model.pt does not match its digest\)"):
        fit(**stopped, resume=True)
    with pytest.raises(ChecksumMismatch, match=r"complete\.json: check the path"):
        read_checkpoint(folder / "nothing")


class Evil:
    """What a pickle makes of it touches a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.mark), "w")


@pytest.mark.parametrize("name", ["model.pt", "run.pt", "optimizer.pt", "scheduler.pt"])
def test_no_state_of_a_stranger_is_executed(stopped: dict, tmp_path: Path, name: str) -> None:
    for folder in checkpoints(stopped["output"]):
        torch.save({"state": Evil(tmp_path / "mark")}, folder / name)
        finish(folder)
    with pytest.raises(CannotResume, match="no checkpoint can be read"):
        fit(**stopped, resume=True)
    assert not (tmp_path / "mark").exists()


def _piped(folder: Path) -> None:
    os.mkfifo(folder / "optimizer.pt")


def _linked(folder: Path) -> None:
    (folder / "run.pt").unlink()
    (folder / "run.pt").symlink_to(folder.parent.parent / "outside")


def _marked(content: object) -> Callable[[Path], None]:
    return lambda folder: [(folder / "complete.json").write_text(str(content)), None][1]


def _state(content: str) -> Callable[[Path], None]:
    return lambda folder: [(folder / "trainer_state.json").write_text(content), finish(folder)][1]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_piped, "optimizer.pt: save the content to a regular file first; this is a pipe"),
        (_linked, "run.pt: replace this link by a file; it leads out of"),
        (_marked("[" * 100_000), "complete.json: restore this file; it is not valid JSON"),
        (_marked('{"blake2b": {}}'), "model.pt does not match its digest"),
        (_marked('{"blake2b": {"../../outside": "00"}}'), "model.pt does not match"),
        (_state("[" * 100_000), "trainer_state.json: restore this file; it is not valid JSON"),
        (_state('{"nothing": 1}'), "unexpected keyword argument"),
        (_state('{"global_step": 7}'), "trainer_state.json has step 7"),
    ],
)
def test_a_checkpoint_of_a_stranger_is_named_and_passed_over(
    tmp_path: Path, change: Callable[[Path], None], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "outside").write_text("of somebody else")
    for step in (3, 4):
        folder = tmp_path / "checkpoints" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "trainer_state.json").write_text(f'{{"global_step": {step}}}')
        for name in ("model.pt", "run.pt"):
            (folder / name).write_bytes(name.encode())
        finish(folder)
    (tmp_path / "checkpoints" / "checkpoint-9").mkdir()  # as another program leaves it
    change(folder)
    assert newest(folder.parent, print) == folder.with_name("checkpoint-3")
    half, damaged = capsys.readouterr().out.splitlines()
    assert "checkpoint-9, which is incomplete: complete.json" in half
    assert "checkpoint-4" in damaged
    assert told in damaged


def test_a_checkpoint_that_was_being_written_is_not_resumed_from(runs: dict, stopped: dict) -> None:
    last, _ = checkpoints(stopped["output"])
    (last / "complete.json").unlink()
    (last / "model.pt").write_bytes(b"half")
    half = last.with_name("checkpoint-5")
    half.mkdir()
    assert_same_run(fit(**stopped, resume=True).output, Path(runs["output"]))
    assert not half.exists()


@pytest.mark.parametrize(
    ("left", "told"),
    [
        (lambda lines: [*lines[:2], ""], 0),  # step 2 is in the checkpoint
        (lambda lines: [*lines[:3], lines[3][:40]], 1),
        (lambda lines: [*lines[:3], "6,1,2", "\0" * 80, "4"], 3),
        (lambda lines: [*lines[:4], lines[3].replace("4", "40", 1), ""], 0),  # of later steps
    ],
)
def test_metrics_that_were_not_written_whole(
    runs: dict,
    stopped: dict,
    left: Callable[[list[str]], list[str]],
    told: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = Path(stopped["output"]) / "metrics.csv"
    lines = file.read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["step", "0", "2", "4"]
    file.write_text("\n".join(left(lines)))
    resumed = fit(**{**stopped, "progress": True}, resume=True).output
    assert_same_run(resumed, Path(runs["output"]))
    said = f"warning: skipped rows of {file} that cannot be read: {told}"
    assert (said in capsys.readouterr().err) == (told > 0)


@pytest.mark.parametrize("left", [b"", b"nothing", b"\xff\xfe\0", b"a,b\n1,2\n"])
def test_metrics_that_are_lost(runs: dict, stopped: dict, left: bytes) -> None:
    """Rows before the checkpoint are gone, but for one that is in it; the run is not."""
    (Path(stopped["output"]) / "metrics.csv").write_bytes(left)
    found = fit(**stopped, resume=True).output
    assert [row["step"] for row in rows(found)] == ["2", "4", "5"]


def test_metrics_are_on_the_disk_when_the_checkpoint_is(
    quick: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl
    import os

    synced, sync = [], os.fsync

    def note(number: int) -> None:
        synced.append(Path(f"/proc/self/fd/{number}").readlink().name)
        # Windows flushes no file that is opened only for reading
        assert fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
        sync(number)

    monkeypatch.setattr(os, "fsync", note)
    fit(**{**quick, "max_steps": 3})
    assert synced.index("complete.json") > synced.index("config.yaml")
    before = synced[: synced.index("complete.json")]
    # once as it begins, once with its rows
    assert before.count("metrics.csv") == 2


@pytest.mark.parametrize("name", ["tokens.bin", "rows.bin", "groups.bin", "offsets.bin"])
def test_damaged_tokens_are_made_anew(
    runs: dict, stopped: dict, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(stopped["output"]) / "tokens" / name
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)
    resumed = fit(**{**stopped, "progress": True}, resume=True).output
    printed = capsys.readouterr().err
    assert f"is not usable ({name} does not match its digest)" in printed
    assert_same_run(resumed, Path(runs["output"]))


def test_a_run_does_not_go_on_with_other_text(runs: dict, stopped: dict) -> None:
    """Its tokens are of the text that it began with; without them, what is read is compared."""
    manifest = Path(stopped["output"]) / "tokens" / "manifest.json"
    manifest.unlink()
    corpus = Path(runs["files"][0])
    whole = corpus.read_text()
    corpus.write_text("\n".join(sentences(300, seed=9)) + "\n")
    with pytest.raises(
        CannotResume, match=r"restore the data, or .*: the data have changed since the checkpoint"
    ):
        fit(**stopped, resume=True)
    corpus.write_text(whole)
    manifest.unlink()
    assert_same_run(fit(**stopped, resume=True).output, Path(runs["output"]))


def test_a_run_does_not_go_on_with_another_dev_file(quick: dict, tmp_path: Path) -> None:
    dev, texts = tmp_path / "dev.tsv", sentences(10)
    scored = [f"{i % 5}\t{texts[i]}\t{texts[i - 1]}\n" for i in range(10)]
    settings = {**quick, "dev": str(dev), "checkpoint_every": 2}
    dev.write_text("".join(scored))
    with power_cut(5):
        fit(**settings)
    dev.write_text("".join(scored[:8]))
    with pytest.raises(
        CannotResume,
        match=r"the data of the dev STS Spearman \(dev.tsv\), .* have changed",
    ):
        fit(**settings, resume=True)
    dev.write_text("".join(scored))
    assert fit(**settings, resume=True).result.metrics["steps"] == quick["max_steps"]


def test_files_that_could_not_be_removed_are_removed_later(runs: dict, tmp_path: Path) -> None:
    """The disk failed while a finished run removed them, or the process was killed."""
    shutil.copytree(runs["output"], run := tmp_path / "run")
    last = checkpoints(str(run))[0]
    left = [run / "tokens", run / "model/.README.md.abcdef12", last / ".complete.json.abcdef12"]
    for folder in left:
        folder.mkdir()
    assert fit(**{**runs, "output": str(run)}, resume=True).exit_code == 0
    assert not any(folder.exists() for folder in left)


def test_checkpoints_that_could_not_be_removed_are_removed_later(
    runs: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**runs, "output": str(tmp_path / "run"), "checkpoint_every": 1}
    monkeypatch.setattr(Checkpoints, "rotate", lambda self: None)
    with power_cut(5):
        fit(**settings)
    assert len(checkpoints(settings["output"])) > 2
    monkeypatch.undo()
    fit(**settings, resume=True)
    assert [path.name for path in checkpoints(settings["output"])] == [
        "checkpoint-5",
        "checkpoint-4",
    ]


def test_a_result_that_is_lost_after_the_last_step_is_the_same_again(
    runs: dict, tmp_path: Path
) -> None:
    settings = {**runs, "output": str(tmp_path / "run"), "keep_every": 6}
    before = fit(**settings).result.metrics
    (tmp_path / "run" / "result.json").unlink()
    after = fit(**settings, resume=True).result.metrics
    measured = before.keys() - {"seconds", "wall_seconds", "samples_per_second"}
    assert {k: after[k] for k in measured} == {k: before[k] for k in measured}
