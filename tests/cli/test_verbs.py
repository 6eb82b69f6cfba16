"""Each verb doing its work, on small real encoders."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from isotrope.cli.check import _print_checks
from isotrope.paradigm.objective import Objective
from isotrope.paradigm.objective_check import Check
from isotrope.training.checkpoints import step_of
from tests.patience import MINUTES, wait_until
from tests.training.conftest import sentences
from tests.training.interrupted import at, checkpoints

QUICK = ["--encoder", "scratch", "--batch-size", "16", "--no-progress", "--seed", "7"]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, made by the command itself."""
    from isotrope.cli.main import guarded

    folder = tmp_path_factory.mktemp("verbs")
    (folder / "corpus.txt").write_text("\n".join(sentences(400)) + "\n")
    run = ["train", str(folder / "corpus.txt"), "--output", str(folder / "run"), *QUICK]
    options = ["--max-steps", "3", "--dev", "auto", "--objective.temperature", "0.1"]
    assert guarded([*run, *options]) == 0
    return folder


def test_train_prints_what_came_of_it(run, trained: Path, tmp_path: Path) -> None:
    config = trained / "run" / "config.yaml"
    found = run("train", "--config", config, "--output", tmp_path / "again")
    assert found.code == 0
    assert "held-out MRR@10" in found.out
    assert f"model:  {tmp_path / 'again' / 'model'}" in found.out
    first, second = (
        json.loads((folder / "result.json").read_text())
        for folder in (trained / "run", tmp_path / "again")
    )
    assert second["details"]["objective"]["parameters"] == {"temperature": 0.1, "in_batch": True}
    for key in ("dev_start", "dev_best", "loss", "uniformity"):
        assert first["metrics"][key] == second["metrics"][key]


def test_train_refuses_an_unknown_backend(run, trained: Path, tmp_path: Path) -> None:
    found = run("train", trained / "corpus.txt", "--output", tmp_path / "x", "--backend", "fast")
    assert found.code == 2
    assert "--backend fast: input should be 'auto', 'eager', 'rowblock' or 'bfloat16'" in found.err
    assert not (tmp_path / "x").exists()


def test_print_config_is_the_config(run, trained: Path) -> None:
    config = trained / "run" / "config.yaml"
    found = run("train", "--config", config, "--print-config")
    settings, seal, _ = config.read_text().partition("# made here: ")
    assert found.out == settings
    assert seal
    changed = run("train", "--config", config, "--batch-size", "8", "--print-config")
    assert "batch-size: 8" in changed.out


def test_encode_and_search(run, trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.npy"
    found = run("encode", trained / "run", trained / "corpus.txt", "-o", out)
    assert found.code == 0
    matrix = np.load(out)
    assert matrix.shape == (400, 128)
    assert matrix.dtype == np.float32
    from sentence_transformers import SentenceTransformer

    texts = (trained / "corpus.txt").read_text().splitlines()
    model = SentenceTransformer(str(trained / "run" / "model"), device="cpu")
    np.testing.assert_allclose(matrix, model.encode(texts), atol=1e-6)
    found = run("search", trained / "run", trained / "corpus.txt", texts[17], "--top", "3")
    assert found.code == 0
    lines = found.out.splitlines()
    assert len(lines) == 4
    assert lines[1] == f"1.0000  18: {texts[17]}"
    assert "read corpus.txt: 400 single texts" in found.err


def test_search_with_several_queries_and_stored_embeddings(
    run, trained: Path, tmp_path: Path
) -> None:
    corpus = trained / "corpus.txt"
    texts = corpus.read_text().splitlines()
    (tmp_path / "queries.txt").write_text(f"{texts[3]}\n\n{texts[9]}\n")
    assert run("encode", trained / "run", corpus, "-o", tmp_path / "x.npy").code == 0
    flags = ("--queries", tmp_path / "queries.txt", "--top", "1", "--json")
    found = run("search", trained / "run", corpus, *flags, "--embeddings", tmp_path / "x.npy")
    answers = [json.loads(line) for line in found.out.splitlines()]
    assert [answer["query"] for answer in answers] == [texts[3], texts[9]]
    assert [answer["hits"][0]["place"] for answer in answers] == [4, 10]
    plain = run("search", trained / "run", corpus, texts[3], texts[9], "--top", "1").out
    assert plain.splitlines()[1] == texts[3]
    assert plain.splitlines()[2].endswith(f"4: {texts[3]}")


def test_search_names_all_rows_of_a_text(run, trained: Path, tmp_path: Path) -> None:
    table = tmp_path / "faq.csv"
    table.write_text("id,answer\n11,a boat\n12,a stone\n13,a boat\n")
    flags = ("search", trained / "run", table, "a boat", "--columns", "answer")
    found = [line.partition("  ")[2] for line in run(*flags).out.splitlines()]
    assert found == ["line or id: text", "11 (and 1 more): a boat", "12: a stone"]
    hits = json.loads(run(*flags, "--json").out)["hits"]
    assert [(hit["place"], hit["places"]) for hit in hits] == [("11", ["11", "13"]), ("12", ["12"])]


def test_a_long_search_names_the_commands_for_a_short_one(
    run, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my texts.csv").write_text("id,text\n7,a red bus\n8,a green tree\n")
    flags = "search", trained / "run", "my texts.csv", "a bus", "--columns", "text"
    assert "isotrope encode" not in run(*flags).err
    monkeypatch.setattr("isotrope.cli.search._LONG", -1)
    slow = run(*flags)
    encode, embeddings = re.findall("`(.*?)`", slow.err)
    run(*shlex.split(encode)[1:])
    again = run(*flags, *shlex.split(embeddings))
    assert again.out == slow.out
    assert "isotrope encode" not in again.err


def test_search_refuses_an_empty_query_and_pairs(run, trained: Path, tmp_path: Path) -> None:
    found = run("search", trained / "run", trained / "corpus.txt", " ")
    assert found.code == 2
    assert "the query is empty" in found.err
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("one text\tanother text\n")
    found = run("search", trained / "run", pairs, "text")
    assert found.code == 2
    assert "holds pairs" in found.err


def test_evaluate_retrieval_prints_json_alone(run, trained: Path, tmp_path: Path) -> None:
    texts = sentences(40, seed=5)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{texts[i]}\t{texts[i + 1]}\n" for i in range(0, 40, 2)))
    found = run("evaluate", trained / "run", "--retrieval", pairs, "--json")
    assert found.code == 0
    value = json.loads(found.out)["retrieval"]
    assert 0 <= value["mrr@10"] <= 1
    found = run("evaluate", trained / "run", "--retrieval", pairs)
    assert "mrr@10" in found.out


def test_objectives_lists_and_explains(run) -> None:
    from isotrope.paradigm import registry

    found = run("objectives")
    assert max(map(len, found.out.splitlines())) <= 100
    lines = {line.split()[0]: line for line in found.out.splitlines() if line}
    assert set(registry.names()) <= set(lines)
    assert re.match(r"  met +Minimum Euclidean distance Triplet loss", lines["met"])
    seen = {line.split()[0]: line for line in run("objectives", "--components").out.splitlines()}
    assert set(registry.names()) <= set(seen)
    assert re.match(r"infonce +1 to 0 +all +1$", seen["infonce"])
    assert re.match(r"barlowtwins +1 +signed +matrix$", seen["barlowtwins"])
    assert re.match(r"dino +- +- +-$", seen["dino"])
    for name in registry.names():  # the source stands on the card
        assert registry.find(name).paper.equation in run("objectives", name).out
    for part in ("dissipation margin:0.3:dot", "weight softmax:0.05", "ratio static:1"):
        assert f"--objective.{part}" in found.out
    assert re.search(
        r"margin:0.3:dot +\(margin:metric\)\n +Dissipation GD: 0 if the hardest", found.out
    )
    card = run("objectives", "ModifiedBarlowTwins").out
    assert "They were tuned at the learning rate and the" in card
    assert "--objective.margin" in card
    assert ">= 0" in card
    assert "components: dissipation 1 or 0, weight all, ratio 1.5" in card
    assert re.search(r"--objective.preset roberta-base +margin 0.37.* 1e-05 +512", card)
    card = run("objectives", "mhe").out
    assert re.search(r"roberta-base +weight 10, variant released +1e-06 +512", card)


def test_check_proves_an_objective(run, tmp_path: Path) -> None:
    found = run("check", "mpt")
    assert found.code == 0
    assert re.search(r"formula = components .* \d\.\de-\d+ +ok", found.out)
    wrong = tmp_path / "wrong.py"
    wrong.write_text(TWICE)
    try:
        found = run("check", wrong)
    finally:
        Objective.registered.pop("twice", None)
    assert found.code == 1
    assert re.search(r"formula = components .* WRONG", found.out)
    assert "the pull, scale x GD x pull, is 2 times that of the formula" in found.out
    assert re.search(
        r"invariance: scale .* not declared, but the loss stays the same +WRONG", found.out
    )
    assert run("check").code == 2
    assert run("check", "nonsense").code == 2
    assert run("check", tmp_path / "none.py").code == 2
    assert "--dimensions 1: " in run("check", "x.py", "--dimensions", "1").err


def test_check_of_anybodys_loss(run, tmp_path: Path) -> None:
    file = tmp_path / "C:" / "own.py"  # a path of Windows begins so
    file.parent.mkdir()
    file.write_text(
        "from torch.nn.functional import normalize\n"
        "def my_loss(anchors, positives):\n"
        "    first = anchors / anchors.norm(dim=1, keepdim=True)\n"
        "    return -(first * normalize(positives)).sum(1).mean()\n"
    )
    found = run("check", file)
    assert found.code == 1
    assert re.search(r"rows permuted +1 +\d\.\de-\d+ +ok", found.out)
    assert re.search(r"on two processes +1 +\d\.\de-\d+ +ok", found.out)  # pairs alone add up
    assert re.search(r"at the edge: zero rows +1 +value not finite +WRONG", found.out)
    assert "at the edge: zero rows: keep it finite, for example by a lower bound on" in found.out
    assert "the gradient of the anchors is not finite in rows [0]" in found.out
    assert run("check", f"{file}:none").code == 2


def test_check_explains_faults_before_remarks(capsys: pytest.CaptureFixture[str]) -> None:
    marks = [("first", None), ("second", False)]
    checks = [Check(name, 1, "", passed=mark, means="x") for name, mark in marks]
    assert _print_checks(("loss", check) for check in checks) == 1
    assert capsys.readouterr().out.endswith("second: x\nfirst: x\n\n")


TWICE = '''
"""A loss whose components claim twice its gradient."""
from isotrope.core.terms import Terms
from isotrope.core.hyper import Paper
from isotrope.paradigm.objective import Objective
import torch


class Twice(Objective, paper=Paper("none", "none", "none")):
    """Only the positive pulls."""

    invariances = frozenset({"rotation", "permutation", "view swap"})

    def formula(self, pairs):
        return -pairs.positive

    def components(self, pairs):
        one = torch.ones_like(pairs.positive)
        return Terms(one, torch.zeros_like(pairs.similarity()), 2 * one, scale=1 / len(one))
'''


def test_report_writes_one_file(run, trained: Path, tmp_path: Path) -> None:
    found = run("report", trained / "run", "-o", tmp_path / "r.html")
    assert found.code == 0
    assert found.out.strip() == str(tmp_path / "r.html")
    assert "and drawing the pictures" in found.err
    page = (tmp_path / "r.html").read_text()
    assert "infonce" in page
    assert "Not diagnosed yet: run." in page


@pytest.mark.slow
def test_report_leaves_out_a_run_without_a_log(run, trained: Path, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "config.yaml").write_text((trained / "run" / "config.yaml").read_text())
    found = run("report", trained / "run", begun, "-o", tmp_path / "both.html")
    assert (found.code, (tmp_path / "both.html").is_file()) == (0, True)
    assert "left out: " in found.err
    assert run("report", begun, "-o", tmp_path / "none.html").code != 0


@pytest.mark.slow
def test_report_diagnoses_what_was_not(run, trained: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(trained / "run", tmp_path / "run")
    command = ("report", folder, "--diagnose", "-o", tmp_path / "r.html")
    found = run(*command, "--pictures", tmp_path / "pictures")
    assert found.code == 0
    assert found.out.strip() == str(tmp_path / "r.html")
    assert f"{folder}:" in found.err
    assert "verdict: " in found.err
    assert "Not diagnosed yet" not in (tmp_path / "r.html").read_text()
    assert (tmp_path / "pictures" / "loss.png").exists()
    assert "verdict: " not in run(*command).err
    (folder / "metrics.csv").touch()
    assert "verdict: " in run(*command).err


LIMITED = "ulimit -f {blocks}; exec {python} -m isotrope {arguments}"


@pytest.mark.nightly
@pytest.mark.parametrize("blocks", [4, 200])
def test_a_full_disk_is_one_line_and_leaves_nothing(
    trained: Path, tmp_path: Path, blocks: int
) -> None:
    """A limit on file size stands for a full disk; in KiB: nothing fits, or all but the model."""
    arguments = f"train {trained / 'corpus.txt'} {' '.join(QUICK)} --max-steps 2 --output run"
    done = subprocess.run(
        ["bash", "-c", LIMITED.format(blocks=blocks, python=sys.executable, arguments=arguments)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("isotrope: error: cannot write ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "run" / "model").exists()


@pytest.mark.slow
def test_sigterm_while_reading_starts_anew(trained: Path, tmp_path: Path) -> None:
    text = tmp_path / "long.txt"
    with text.open("w") as handle:
        for i in range(400_000):
            handle.write(f"a long corpus takes a while to read, line {i}\n")
    command = [
        sys.executable,
        "-m",
        "isotrope",
        "train",
        str(text),
        "--output",
        str(tmp_path / "r"),
    ]
    command += ["--encoder", str(trained / "run"), "--no-progress", "--max-steps", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: process.poll() is not None or list(tmp_path.glob("r/.tokens.*")))
    assert process.poll() is None, process.stderr.read()
    process.terminate()
    _, err = process.communicate(timeout=MINUTES)
    assert process.returncode == 75, err
    assert not (tmp_path / "r").exists()


def test_a_second_interrupt_ends_at_once(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run
) -> None:
    before = signal.getsignal(signal.SIGINT)  # a shell's background jobs ignore it

    def impatient() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    at(monkeypatch, 1, impatient)
    found = run("train", trained / "corpus.txt", *QUICK, "--output", tmp_path / "run")
    assert found.code == 130
    assert "Traceback" not in found.err
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow  # a process that imports everything
@pytest.mark.parametrize(
    ("number", "code"),
    [pytest.param(signal.SIGINT, 130, marks=pytest.mark.nightly), (signal.SIGTERM, 75)],
)
def test_being_stopped_leaves_a_checkpoint_to_resume(
    trained: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """A real process, a real signal in the middle of training, and the same command again."""
    output = tmp_path / "run"
    command = [sys.executable, "-m", "isotrope", "train", str(trained / "corpus.txt"), *QUICK]
    command += ["--output", str(output), "--epochs", "400", "--log-every", "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    metrics = output / "metrics.csv"
    wait_until(
        lambda: (
            process.poll() is not None
            or (metrics.is_file() and len(metrics.read_text().splitlines()) > 3)
        )
    )
    assert process.poll() is None, process.stderr.read()
    process.send_signal(number)
    out, err = process.communicate(timeout=MINUTES)
    assert process.returncode == code, err
    assert "run the same command with --resume" in out
    assert "Traceback" not in err
    stopped = step_of(checkpoints(output)[0])
    assert stopped > 0
    assert f"stopped at step {stopped};" in out
