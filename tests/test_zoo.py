"""The benchmark of broken trainings: a few real trainings, and its table; `make zoo` runs all."""

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from benchmarks.zoo import __main__ as zoo
from benchmarks.zoo import data
from benchmarks.zoo.__main__ import DiagnosedTraining, main, train_and_diagnose, write_table
from benchmarks.zoo.trainings import BROKEN, PARTS, TRAININGS, Part
from examples.docstrings import Documented, collect
from isotrope.diagnostics.findings import HEALTHY, Diagnosis, Finding
from isotrope.diagnostics.verdicts import VERDICTS

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results" / "zoo.csv"
SMALL = Part(
    "tuning",
    (7,),
    {
        "text": "--batch-size 32 --max-length 16 --max-steps 16 --learning-rate 3e-4 --log-every 2",
        "scratch": "--batch-size 32 --max-length 16 --max-steps 40 --log-every 4",
        "dev": "{data}/dev.tsv",
        "images": "digits --encoder resnet9 --width 4 --batch-size 64 --augment p3 "
        "--max-steps 40 --log-every 4 --no-linear --knn-every 0 --limit 512",
        "longer": "",
        "small": "{runs}/scratch",
        "unfinished": "{runs}/scratch",
        "learning": "",
    },
)
TRIED = ("scratch", "temperature-3", "dropout-0", "simclr", "no-weight-decay")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small corpus: one package's documentation."""
    torch.set_num_threads(1)

    def some() -> Sequence[Documented]:
        return collect(["numpy"])[:800]

    monkeypatch.setattr(data, "collect", some)


@pytest.mark.nightly
@pytest.mark.usefixtures("few")
def test_a_reduced_zoo(tmp_path: Path) -> None:
    trainings = [training for training in TRAININGS if training.name in TRIED]
    seen = list(train_and_diagnose(tmp_path, [SMALL], trainings))
    verdicts = {one.training.name: one.diagnosis.verdict for one in seen if one.diagnosis}
    # a healthy one may be spreading, too: that depends on the documentation installed here
    assert {name: verdict[0] for name, verdict in verdicts.items()} == {
        "scratch": HEALTHY,
        "simclr": HEALTHY,
        "temperature-3": "negatives-not-hard",
        "dropout-0": "dead-views",
        "no-weight-decay": "norms-too-large",
    }
    assert all(one.right for one in seen)
    before = (tmp_path / "tuning-7" / "simclr" / "result.json").stat().st_mtime_ns
    (again,) = train_and_diagnose(tmp_path, [SMALL], [a for a in trainings if a.name == "simclr"])
    assert again.right
    assert (tmp_path / "tuning-7" / "simclr" / "result.json").stat().st_mtime_ns == before


def test_without_the_shared_data_the_judged_half_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(zoo, "SHARED", tmp_path / "nothing")
    asked = ["--output", str(tmp_path), "--part", "judged", "--training", "scratch"]
    assert main(asked) == 0
    assert "judged: not run: the data is not beside the checkout" in capsys.readouterr().out
    with (tmp_path / "zoo.csv").open(newline="") as handle:
        (row,) = csv.DictReader(handle)
    assert (row["animal"], row["verdict"]) == ("scratch", "not run")


def test_the_table_grows_and_stays_in_order(tmp_path: Path) -> None:
    sound, broken = TRAININGS[0], BROKEN[2]
    finding = Finding(broken.cause, (), "", f"{broken.change} 0.05 (or so)", "")
    first = DiagnosedTraining("tuning", broken, 0, Diagnosis(()))
    write_table([first], tmp_path / "zoo.csv")
    other = DiagnosedTraining("tuning", sound, 0, Diagnosis(()), 50.0, 60.0)
    rows = write_table(
        [DiagnosedTraining("tuning", broken, 0, Diagnosis((finding,))), other], tmp_path / "zoo.csv"
    )
    assert [(row["animal"], row["right"]) for row in rows] == [
        (sound.name, "right"),
        (broken.name, "right"),
    ]
    assert rows[0]["dev"] == "50.0 to 60.0"
    assert rows[1]["change"] == f"{broken.change} 0.05"


def test_right_is_the_cause_first_with_its_change() -> None:
    training = BROKEN[2]
    finding = Finding(training.cause, (), "", f"{training.change} 0.05", "")
    other = Finding("overfitting", (), "", "--max-steps 10", "")
    assert DiagnosedTraining("tuning", training, 0, Diagnosis((finding, other))).right
    assert not DiagnosedTraining("tuning", training, 0, Diagnosis((other, finding))).right
    assert not DiagnosedTraining("tuning", training, 0, Diagnosis(())).right
    assert not DiagnosedTraining("tuning", training, 0, None).right
    wrong = Finding(training.cause, (), "", "--learning-rate 1e-5", "")
    assert not DiagnosedTraining("tuning", training, 0, Diagnosis((wrong,))).right
    assert DiagnosedTraining("tuning", TRAININGS[0], 0, Diagnosis(())).mark == "right"
    assert DiagnosedTraining("tuning", TRAININGS[0], 0, Diagnosis(()), 50.0, 40.0).mark == "fell"
    assert DiagnosedTraining("tuning", training, 0, Diagnosis(()), 50.0, 40.0).mark == "wrong"


def test_twelve_are_broken_and_all_causes_are_verdicts() -> None:
    assert len(BROKEN) == 12
    assert {training.cause for training in TRAININGS} <= set(VERDICTS)
    assert len({training.name for training in TRAININGS}) == len(TRAININGS)


def test_the_committed_table_has_them_all() -> None:
    with RESULTS.open(newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    for part in PARTS:
        for seed in part.seeds:
            kept = [r for r in rows if (r["half"], r["seed"]) == (part.name, str(seed))]
            assert [(r["animal"], r["command"]) for r in kept] == [
                (training.name, training.command) for training in TRAININGS
            ]
