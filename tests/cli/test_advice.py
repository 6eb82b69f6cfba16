"""Advice works when it is followed: each flag exists, and each command that is proposed runs."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from isotrope.cli.main import VERBS
from isotrope.encoders.sentence import SentenceEncoder
from tests.inputs.advice import COMMAND, FLAG, not_taken, takes, written
from tests.training.conftest import sentences

OF_OTHERS = {
    *("--no-optional-locks", "--porcelain", "--branch", "--untracked-files"),  # of git
    *("--version", "--print-completion", "--nnodes", "--nproc-per-node", "--no"),
}


def test_every_flag_in_a_text_of_the_source_exists() -> None:
    """On a verb at least; in a file of one verb, on that verb; in a command, on the command's."""
    found, wrong = 0, []
    for where, text in written():
        file = Path(where.partition(":")[0])
        if file.parts[:2] == ("adapters", "doctor"):  # flags of other trainers
            continue
        for flag in {*FLAG.findall(text)} - OF_OTHERS:
            found += 1
            wrong += [] if any(takes(verb, flag) for verb in VERBS) else [(where, flag)]
        for command in COMMAND.finditer(text):
            flags = {*FLAG.findall(command[2])} - OF_OTHERS
            wrong += [(where, flag) for flag in flags if not takes(command[1], flag)]
    assert found > 150
    assert wrong == []
    assert not_taken(["search"], "use `--columns a`, or `isotrope encode --views x`") == ["--views"]
    assert not_taken(["evaluate", "--x"], "no --holdout, --x or --sts") == ["--holdout"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder") / "m"
    SentenceEncoder.scratch(
        sentences(60), width=8, layers=1, heads=1, vocabulary=200, max_length=32
    ).save(folder)
    return folder


def pairs(first: str, second: str, mark: str = ",", end: str = "", rows: int = 24) -> str:
    """Return a table of two texts, and of a score where ``end`` is its name."""
    lines = [mark.join([first, second, *filter(None, [end])])]
    lines += [
        mark.join([text, f"{text} too", *([str(i % 5)] if end else [])])
        for i, text in enumerate(sentences(rows))
    ]
    return "".join(f"{line}\n" for line in lines)


ROWS = [
    {"anchor": t, "positive": f"{t} too", "one": 1, "n": i % 4} for i, t in enumerate("abcdefgh")
]
FILES = {
    "odd.csv": pairs("die Frage", "die Antwort", ";"),
    "pairs.csv": pairs("anchor", "positive"),
    "pairs.tsv": pairs("a question", "an answer", "\t"),
    "scored.csv": pairs("sentence1", "sentence2", end="score"),
    "texts.txt": "".join(f"{text}\n" for text in sentences(24)),
    "one.jsonl": "".join(f"{json.dumps(row)}\n" for row in ROWS),
}
TRAIN = "--encoder M --max-steps 1 --batch-size 4 --device cpu --no-progress --output OUT"
READ = "--device cpu --results R"
SCORE = f"evaluate M {READ}"
CASES = [  # what is typed, what is proposed, and what is typed then
    (f"train odd.csv {TRAIN}", "--columns 'die Frage,die Antwort'", "{} {advice}"),
    (f"train one.jsonl --groups one {TRAIN}", "name a column with several", "{} --groups n"),
    (f"train texts.txt --views pairs {TRAIN}", "--views dropout", "{} {advice}"),
    (f"train pairs.tsv --views adjacent {TRAIN}", "--views pairs", "{} {advice}"),
    (f"train texts.txt --patience 2 {TRAIN}", "add --dev", "{} --dev pairs.csv"),
    (f"train texts.txt --max-length 400 {TRAIN}", "--max-length 32", "{} {advice}"),
    (f"train texts.txt --matryoshka 4 {TRAIN}", "--head none", "{} {advice}"),
    (
        f"train texts.txt {TRAIN} --device cuda",
        "--device auto",
        "{} {advice}",
    ),
    ("audit odd.csv --encoder M --device cpu", "--columns 'die Frage,die Antwort'", "{} {advice}"),
    ("encode M odd.csv -o OUT.npy", "--columns 'die Antwort'", "{} {advice}"),
    ("search M pairs.csv query", "--columns positive", "{} {advice}"),
    ("search M texts.txt", "--queries FILE", "{} --queries texts.txt"),
    ("search M pairs.tsv query", "--columns 2", "{} {advice}"),
    ("encode M scored.csv -o OUT.npy", "--columns sentence2", "{} {advice}"),
    (
        f"evaluate M --retrieval odd.csv {READ}",
        "--columns 'die Frage,die Antwort'",
        "{} {advice}",
    ),
    (f"evaluate M {READ}", "--retrieval PATH", "{} --retrieval pairs.csv"),
    ("diagnose M --columns anchor,positive", "--data FILE", "{} --data pairs.csv"),
    ("report .", "the --output folder of `isotrope train`", ""),
]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("command", "advice", "then"), CASES)
def test_advice_is_followed(
    run: Any,
    encoder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    advice: str,
    then: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        Path(name).write_text(content)
    shutil.copytree(encoder, "M")
    found = run(*shlex.split(command))
    message = found.err.splitlines()[-1]
    assert (found.code, advice in message) == (2, True), message
    assert not_taken(shlex.split(command), message) == []
    if then:
        shutil.rmtree("OUT", ignore_errors=True)
        found = run(*shlex.split(then.format(command, advice=advice)))
        assert found.code == 0, found.err
