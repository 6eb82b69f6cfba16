"""The verbs of the command line from Python: a run is fitted, looked at, compared and swept."""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib.text import Text

import isotrope
from isotrope.core.errors import InputError, SettingError
from isotrope.core.result import Result
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.training.run import Outcome
from tests.refused import refused_setting
from tests.sweeps.pretended import pretend
from tests.training.conftest import sentences

TEXTS = sentences(120)
QUICK: dict[str, Any] = {
    "batch_size": 16,
    "max_steps": 4,
    "log_every": 1,
    "eval_every": 2,
    "progress": False,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A small run."""
    folder = tmp_path_factory.mktemp("verbs")
    SentenceEncoder.scratch(TEXTS, seed=7, width=32).save(folder / "small")
    own = {**QUICK, "encoder": folder / "small", "dev": "auto", "holdout": 0.3}
    return isotrope.fit(TEXTS, output=folder / "run", **own)


def test_the_history_is_a_table(outcome: Any) -> None:
    history = outcome.history
    assert list(history["step"]) == [0, 1, 2, 3, 4]
    assert history["loss"].iloc[0] > 0
    assert "knn" not in history.columns, "nothing of it was measured"
    assert list(history.columns[:3]) == ["step", "epoch", "loss"]
    assert list(history.columns[-2:]) == ["dissipation", "dev"], "a printed table shows the last"


@pytest.mark.parametrize("rest", ["10,0.9,7", "10,0.9,", "10", '10,"0.'])
def test_a_line_that_is_being_written_is_no_history(tmp_path: Path, rest: str) -> None:
    found = Outcome(Result("train", "x", {}), tmp_path)
    with pytest.raises(InputError, match="cannot find the file"):
        _ = found.history
    (tmp_path / "metrics.csv").write_text("step,loss\n0,high\n")
    with pytest.raises(InputError, match="every cell must be a number or empty"):
        _ = found.history
    (tmp_path / "metrics.csv").write_text(f"step,loss,dev\n0,1.5,60\n{rest}")
    assert found.history.to_dict("records") == [{"step": 0, "loss": 1.5, "dev": 60}]


def test_reprs_are_short(outcome: Any) -> None:
    assert repr(outcome).startswith(f"Outcome('{outcome.output}': 4 steps; ")
    advice = "add --dev: no dev score was measured"
    one = Outcome(Result("train", "x", {"steps": 1}, {"verdict": advice}), Path("x"))
    assert repr(one).endswith(": 1 step; add dev: no dev score was measured)")
    found = Outcome(Result("train", "x", {}, {"kept": 91.0, "next": "next, add pairs"}), Path("x"))
    assert str(found).splitlines()[1:] == [
        "similarities of general sentences before and after training: correlation 0.91 "
        "(1: no change; a lower --between raises it)",
        "next, add pairs",
    ]
    assert len(repr(outcome.result)) < 200
    assert "and " in repr(outcome.result)
    assert "verdict" in outcome.result.details


def test_an_outcome_is_its_folder(outcome: Any) -> None:
    assert Path(outcome) == outcome.output
    assert isotrope.load(outcome, device="cpu").dimension == 32


def test_diagnose(outcome: Any) -> None:
    diagnosis = outcome.diagnose()
    assert (outcome.output / "diagnosis.json").is_file()
    assert repr(diagnosis) == f"Diagnosis({', '.join(diagnosis.verdict)})"
    assert diagnosis._repr_html_().startswith("<pre>verdict: ")
    model = isotrope.diagnose(
        outcome.output / "model",
        data=outcome.output / "data-from-python.jsonl",
        objective="infonce",
        objective_settings={"temperature": 0.1},
    )
    assert "texts" in str(model)
    with pytest.raises(InputError, match="give the objective by its name"):
        isotrope.diagnose(outcome, objective_settings={"temperature": 0.1})


def test_plot(outcome: Any) -> None:
    figure = outcome.plot("loss", "dissipation")
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "Loss",
        "Gradient dissipation, GD",
    ]
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert len(outcome.plot().axes) == 4
    texts = [text for text in outcome.plot().findobj(Text) if text.get_text()]
    assert texts
    assert not any(text.get_parse_math() for text in texts)  # a dev file's name may have dollars
    with pytest.raises(
        InputError, match=r"nothing was measured under the name 'los' \(did you mean 'loss'\?\)"
    ):
        outcome.plot("los")


def test_report(outcome: Any, tmp_path: Path) -> None:
    page = isotrope.report(outcome, tmp_path / "one.html")
    assert page == tmp_path / "one.html"
    assert "Training report" in page.read_text(encoding="utf-8")
    isotrope.report([outcome.output, outcome], tmp_path / "two.html", title="Twice")
    assert "<title>Twice" in (tmp_path / "two.html").read_text(encoding="utf-8")


def test_compare(outcome: Any, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{a}\t{b}\n" for a, b in zip(TEXTS[:9], TEXTS[9:18], strict=True)))
    found = isotrope.compare([outcome, outcome.output], retrieval=pairs, results=None)
    column = next(iter(found.details["columns"].values()))
    assert column["differences"][0]["verdict"] == "noise"
    one = isotrope.evaluate(outcome, retrieval=pairs, results=None)
    assert isotrope.compare([one, one]).kind == "comparison"
    with pytest.raises(InputError, match="give at least two models to compare; found 1"):
        isotrope.compare([outcome], retrieval=pairs)
    with pytest.raises(
        InputError, match="give either models and data to score them on, or only results"
    ):
        isotrope.compare([one, outcome], retrieval=pairs)


def test_search(outcome: Any) -> None:
    hits = isotrope.search(outcome, TEXTS, [TEXTS[4], TEXTS[7]], top=1, device="cpu")
    assert [[hit.place for hit in one] for one in hits] == [[4], [7]]


@pytest.mark.parametrize(
    ("function", "keyword"),
    [
        (isotrope.evaluate, "truncate_dim"),
        (isotrope.audit, "hardness"),
        (isotrope.search, "passage_prompt"),
    ],
)
def test_keywords_are_shown_and_misspelled_ones_refused(
    function: Callable[..., Any], keyword: str
) -> None:
    assert keyword in inspect.signature(function).parameters
    needed = {"encoder": "x"} if function is isotrope.audit else {}
    places = ["x", "x", "x"] if function is isotrope.search else ["x"]
    with pytest.raises(SettingError, match=f"did you mean {keyword}"):
        function(*places, **{**needed, keyword[:-1]: 1})


def test_sweep(outcome: Any, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS))
    options: dict[str, Any] = {
        **QUICK,
        "encoder": str(outcome.output),
        "dev": "auto",
        "holdout": 0.3,
        "output": tmp_path / "sweep",
        "seeds": [0],
    }
    del options["progress"]
    found = isotrope.sweep(texts, vary={"learning_rate": [1e-5, 1e-4], "head": ["none"]}, **options)
    assert found.kind == "sweep"
    assert found.details["best"] is found.details["best_command"] is None
    assert "no difference beyond noise" in found.details["noise"]
    found = isotrope.sweep(
        texts,
        vary={"learning_rate": [1e-5, 1e-4], "head": ["none"]},
        metric="loss",
        **options,
    )
    assert set(found.details["best"]) == {"learning-rate", "head"}
    assert (tmp_path / "sweep" / "sweep.svg").is_file()
    command = found.details["best_command"]
    assert command.startswith(f"isotrope train --config {tmp_path}/sweep/runs/learning-rate=")
    with refused_setting("temprature"):
        isotrope.sweep(texts, vary={"temprature": [1]}, **options)
    with refused_setting("vary"):
        isotrope.sweep(texts, vary={}, **options)


def test_a_sweep_without_a_score_writes_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, lambda settings: -1.0)
    vary = {"learning_rate": [1e-5, 1e-4]}
    with pytest.raises(InputError, match="a run failed: no such luck"):
        isotrope.sweep("texts.txt", vary=vary, dev="d.tsv", output=tmp_path, seeds=[0])
    assert "no such luck" in (tmp_path / "sweep.csv").read_text(encoding="utf-8")
