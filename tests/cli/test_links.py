"""No command writes through a link, over its input, or leaves files of two commands together."""

import json
import os
from pathlib import Path

import pytest

from isotrope.core.run_folder import RunFolder
from isotrope.encoders.sentence import SentenceEncoder
from tests.training.conftest import sentences

QUICK = ("--device", "cpu", "--max-steps", "1", "--batch-size", "8")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder") / "m"
    SentenceEncoder.scratch(
        sentences(60), width=8, layers=1, heads=1, vocabulary=200, max_length=32
    ).save(folder)
    return folder


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{text}\t{text} and more\n" for text in sentences(40)))
    return file


@pytest.mark.parametrize(
    ("verb", "name"),
    [
        ("train", ".lock"),
        ("train", "checkpoints"),
        ("train", "metrics.csv"),
        ("sweep", ".lock"),
        ("sweep", "optuna.log"),
    ],
)
def test_no_run_writes_through_a_link(
    run, encoder: Path, pairs: Path, tmp_path: Path, verb: str, name: str
) -> None:
    target, output = tmp_path / "target", tmp_path / "run"
    if name == "checkpoints":
        target.mkdir()
    else:
        target.write_text("")  # an empty file would be taken for the journal
    output.mkdir()
    (output / name).symlink_to(target)
    common = (pairs, *QUICK, "--encoder", encoder, "--output", output)
    if verb == "train":
        found = run("train", *common, "--no-progress")
    else:
        varied = ("--vary", "learning-rate=1e-4,1e-3", "--seeds", "0", "--dev", "auto")
        found = run("sweep", "train", *common, *varied)
    assert (found.code, found.out) == (2, "")
    assert "link" in found.err.splitlines()[-1]
    assert "stopped at step" not in found.err
    assert target.is_dir() or target.read_text() == ""
    assert not target.is_dir() or not list(target.iterdir())


@pytest.mark.parametrize("name", ["model", "metrics.csv", "checkpoints", "result.json"])
def test_a_run_refuses_at_its_start_what_it_would_refuse_at_its_end(
    run, encoder: Path, pairs: Path, tmp_path: Path, name: str
) -> None:
    output = tmp_path / "run"
    (output / name).mkdir(parents=True) if "." in name else output.mkdir()
    if "." not in name:
        (output / name).write_text("")
    found = run("train", pairs, *QUICK, "--encoder", encoder, "--output", output)
    assert found.code == 2
    assert f"{name} is a " in found.err
    assert {path.name for path in output.iterdir()} == {name}


def test_an_audit_does_not_replace_what_it_reads(run, encoder: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    rows = [{"anchor": a, "positive": f"{a} too", "id": i} for i, a in enumerate(sentences(40))]
    for name in ("grouped.jsonl", "mined.jsonl"):
        file = own / name
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        before = file.read_text()
        found = run("audit", file, "--encoder", encoder, "--device", "cpu", "--output", own)
        assert found.code == 2
        assert f"{name} is an input and would be overwritten; choose another output" in found.err
        assert file.read_text() == before
        file.unlink()


def test_files_of_an_earlier_audit_do_not_stay(
    run, encoder: Path, pairs: Path, tmp_path: Path
) -> None:
    asked = ("--encoder", encoder, "--device", "cpu", "--dev", "none", "--output", tmp_path / "a")
    assert run("audit", pairs, *asked, "--mine", "1").code == 0
    assert (tmp_path / "a" / "mined.jsonl").exists()
    (tmp_path / "a" / "notes.txt").write_text("of the user")
    assert run("audit", pairs, *asked).code == 0
    assert json.loads((tmp_path / "a" / "audit.json").read_text())["mined"] is None
    assert not (tmp_path / "a" / "mined.jsonl").exists()
    assert (tmp_path / "a" / "notes.txt").exists()


def test_a_report_does_not_replace_the_log_of_a_run(run, tmp_path: Path) -> None:
    from tests.reports.folders import write_run

    folder = RunFolder(write_run(tmp_path / "run"))
    before = folder.metrics.read_text()
    found = run("report", folder.path, "-o", folder.metrics)
    assert found.code == 2
    assert "is an input and would be overwritten" in found.err
    assert folder.metrics.read_text() == before


@pytest.mark.parametrize("name", ["sweep.csv", "sweep.json"])
def test_a_sweep_does_not_replace_what_it_reads(
    run, encoder: Path, pairs: Path, tmp_path: Path, name: str
) -> None:
    own = tmp_path / "s" / name
    own.parent.mkdir()
    own.write_text("anchor,positive\na b,c d\ne f,g h\n")
    varied = ("--vary", "learning-rate=1e-4,1e-3", "--seeds", "0", "--encoder", encoder, *QUICK)
    for data in ([own], [pairs, "--dev", own]):
        found = run("sweep", "train", *data, *varied, "--output", own.parent)
        assert found.code == 2
        assert f"{name} is an input and would be overwritten" in found.err
    assert own.read_text().startswith("anchor,")


def test_a_table_of_scores_does_not_replace_their_data(run, encoder: Path, pairs: Path) -> None:
    before = pairs.read_bytes()
    found = run("evaluate", encoder, "--retrieval", pairs, "--csv", pairs, "--device", "cpu")
    assert found.code == 2
    assert "is an input and would be overwritten" in found.err
    assert pairs.read_bytes() == before


@pytest.mark.parametrize("verb", ["encode", "evaluate"])
def test_a_pipe_is_refused_before_anything_is_measured(
    run, encoder: Path, pairs: Path, tmp_path: Path, verb: str
) -> None:
    pipe = tmp_path / "out.npy"
    os.mkfifo(pipe)
    output = ("--retrieval", pairs, "--csv", pipe) if verb == "evaluate" else (pairs, "-o", pipe)
    columns = ("--columns", "1") if verb == "encode" else ()
    found = run(verb, encoder, *output, *columns, "--device", "cpu")
    assert (found.code, found.out, found.err.count("\n")) == (2, "", 1)
    assert pipe.is_fifo()


@pytest.mark.parametrize("verb", ["diagnose", "report"])
@pytest.mark.parametrize(
    "name", ["config.yaml", "metrics.csv", "result.json", "dev.npz", "model", "isotrope", "watched"]
)
def test_no_run_is_read_through_a_link(run, tmp_path: Path, verb: str, name: str) -> None:
    from tests.reports.folders import write_run

    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "metrics.csv").write_text("step,loss,of somebody else\n1,2,3\n")
    (secret / "model").mkdir()
    folder = tmp_path / "run"
    if name == "isotrope":  # the record that the Doctor leaves in the folder of another trainer
        folder.mkdir()
        (folder / name).symlink_to(secret)
    elif name == "watched":
        (folder / "isotrope").mkdir(parents=True)
        (folder / "isotrope" / "metrics.csv").symlink_to(secret / "metrics.csv")
    else:
        write_run(folder)
        (folder / name).unlink(missing_ok=True)
        target = "model" if name == "model" else "metrics.csv"
        (folder / name).symlink_to(secret / target)
    output = ("-o", tmp_path / "page.html") if verb == "report" else ()
    found = run(verb, folder, *output)
    assert (found.code, found.out) == (2, "")
    assert "is a link, and isotrope does not read or write runs through links" in found.err
    assert "somebody" not in found.err
    assert not (tmp_path / "page.html").exists()
