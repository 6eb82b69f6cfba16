"""The report is one closed file that says what the runs say, whatever users call things."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from isotrope.core.errors import InputError
from isotrope.core.result import Result
from isotrope.core.table import TitledTable
from isotrope.diagnostics.findings import MISSED, Diagnosis, Finding
from isotrope.evaluation.store import Store, store_folder
from isotrope.measures.bootstrap import intervals
from isotrope.measures.judgement import DevEvaluation, DevHistory
from isotrope.reports.comparison import summary
from isotrope.reports.html import tables_page, write_report
from tests.reports.folders import FAULTY, PLOTTED, write_diagnosis, write_run

NASTY = '</script><script>document.title="hacked"</script><img src=x onerror=alert(1)>&'


class Page(HTMLParser):
    """Elements, what they would load, and the text of the page."""

    VOID = frozenset({"meta", "link", "img", "br"})

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.scripts: list[tuple[str | None, str]] = []
        self.titles: list[str] = []
        self.text = ""
        self.feed(source)
        self.close()
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        assert not [name for name in given if name.startswith("on")], tag
        self.loads += [given[name] or "" for name in ("src", "href", "xlink:href") if name in given]
        self.titles += [given["title"] or ""] if "title" in given else []
        if tag == "script":
            self.scripts.append((given.get("type"), ""))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            kind, text = self.scripts[-1]
            self.scripts[-1] = (kind, text + data)
        elif self.open and self.open[-1] != "style":
            self.text += data + " "


def report(tmp_path: Path, *runs: Path, **extra: object) -> tuple[str, Page]:
    written = write_report(runs, tmp_path / "report.html", **extra)  # type: ignore[arg-type]
    source = written.read_text(encoding="utf-8")
    page = Page(source)
    assert page.open == []
    return source, page


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page without its pictures, which take most of the time to write it."""
    monkeypatch.setattr("isotrope.reports.html.sections", lambda runs: [])


def test_report_is_one_closed_file_with_everything_in_it(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name) for name in ("one", "two")]
    source, page = report(tmp_path, *runs, title="My runs")
    assert all(load.startswith(("#", "data:")) for load in page.loads)
    assert "@import" not in source
    assert "url(" not in re.sub(r"url\(#\w+\)", "", source)
    assert [kind for kind, _ in page.scripts] == ["application/json", None]
    # the policy lets our one script run, and nothing else
    digest = base64.b64encode(hashlib.sha256(page.scripts[1][1].encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{digest}'; style-src" in source
    assert "prefers-color-scheme: dark" in source
    for key in PLOTTED:
        assert f'id="series-{key}-1"' in source
    for words in ("My runs", "Comparison", "Gradient dissipation", "temperature 0.05", "abc123"):
        assert words in page.text
    assert "isotrope train 'my notes.txt'" in page.text
    assert "commit 0123456789ab with changes" in page.text
    data = json.loads(page.scripts[0][1])["runs"]
    assert [run["name"] for run in data] == ["one", "two"]
    assert data[0]["series"]["dev"][0] == 86.61
    assert data[0]["series"]["loss"][0] is None


@pytest.mark.usefixtures("words")
def test_what_a_run_has_done_is_written_instead_of_settings_without_effect(tmp_path: Path) -> None:
    settings = "epochs: 7.0\nmax-steps: 40\ndev: auto\nholdout: 0.0\n"
    run = write_run(tmp_path / "one", settings=settings)
    record = json.loads((run / "result.json").read_text())
    record["metrics"]["wall_seconds"] = 75.2
    record["details"]["data"] |= {"holdout": 102, "holdout_trained_on": 7}
    (run / "result.json").write_text(json.dumps(record))
    _, page = report(tmp_path, run)
    assert "Done 40 steps (epochs: 1) in 12 s; 1 min 15 s with evaluation and saving" in page.text
    assert "Held out 102 records; training records share a text with 7 of them" in page.text
    assert "max-steps: 40" in page.text
    assert not {"epochs: 7.0", "holdout: 0.0", "holdout trained on"} & set(
        re.findall("epochs: 7.0|holdout: 0.0|holdout trained on", page.text)
    )
    record["details"]["data"] |= {"holdout": 0, "holdout_trained_on": 7}  # of a file
    (run / "result.json").write_text(json.dumps(record))
    _, page = report(tmp_path, run)
    assert "Dev set the training data contain 7 of its texts" in page.text


@pytest.mark.usefixtures("words")
def test_a_second_training_is_shown_as_it_happened(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / name, settings="refit: true\nmax-steps: 40\nepochs: 1.0\n")
        for name in ("made", "late", "kept")
    ]
    for run, refit in zip(runs, ({"records": 200, "seconds": 9.0}, None), strict=False):
        record = json.loads((run / "result.json").read_text())
        record["details"]["refit"] = refit
        (run / "result.json").write_text(json.dumps(record))
    _, page = report(tmp_path, *runs)
    shown = re.findall(r"(\w+) infonce: temperature 0.05; (.*?) \d", page.text)
    assert shown == [("made", "refit True"), ("late", "refit no time"), ("kept", "refit False")]
    assert "refit: no time" in page.text


def test_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one")
    first = write_report([run], tmp_path / "a.html").read_bytes()
    assert write_report([run], tmp_path / "b.html").read_bytes() == first
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.html", "b.html", "one"]


@pytest.mark.usefixtures("words")
def test_headline_and_verdicts(tmp_path: Path) -> None:
    better = write_run(tmp_path / "better", judgement="improved")
    worse = write_run(tmp_path / "worse", dev=(86.61, 86.0, 85.0), judgement="worse")
    running = write_run(tmp_path / "running", dev=(86.61, 86.9), finished=False)
    _, page = report(tmp_path, worse, better, running)
    assert (
        "better has the highest score: dev STS Spearman (dev.tsv) 87.13 at step 20, +0.52 over"
        in page.text
    )
    assert "better Improved: as it was judged." in page.text
    assert "worse Worse: as it was judged." in page.text
    assert "85.00 not saved" in page.text
    assert "87.13 not saved" not in page.text
    assert (
        "In progress (or stopped) at step 40: best dev score 86.90 (+0.29) at step 40." in page.text
    )
    _, page = report(tmp_path, worse)
    assert "Training made it worse: the best model is the one before training" in page.text
    even = write_run(tmp_path / "even", dev=(86.61, 86.55), judgement="undecided")
    _, page = report(tmp_path, even)
    assert "No clear gain: the best model is the one before training" in page.text
    slight = write_run(tmp_path / "slight", judgement="undecided")
    record = json.loads((slight / "result.json").read_text())
    record["details"]["judgement"]["numbers"] = {"saved": {"low": -0.11, "high": 1.27}}
    (slight / "result.json").write_text(json.dumps(record))
    _, page = report(tmp_path, slight)
    assert "+0.52 over the model before training: undecided." in page.text
    assert "+0.52 95% interval -0.11 to +1.27: undecided" in page.text
    _, page = report(tmp_path, write_run(tmp_path / "same", dev=(86.61, 86.61)))
    assert "No gain: the best model is the one before training (step 0)." in page.text
    _, page = report(tmp_path, better)
    assert "better reached dev STS" in page.text
    assert "Only this run was scored" not in page.text
    _, page = report(tmp_path, better, write_run(tmp_path / "unscored", dev=()))
    assert "better reached dev STS" in page.text
    assert "Only this run was scored." in page.text


@pytest.mark.usefixtures("words")
def test_scores_on_different_data_are_not_compared(tmp_path: Path) -> None:
    one = write_run(tmp_path / "one")
    two = write_run(tmp_path / "two", dev_name="retrieval", dev_data="other")
    source, page = report(tmp_path, one, two)
    assert "their dev data differ or are not known" in page.text
    assert 'class="number best"' not in source


@pytest.mark.usefixtures("words")
def test_scores_on_different_data_are_marked_in_the_table(tmp_path: Path) -> None:
    data = {"one": "a", "two": "b", "three": "a", "running": ""}
    runs = [
        write_run(tmp_path / name, dev_data=own, finished=own != "", settings=f"seed: {own}\n")
        for name, own in data.items()
    ]
    _, page = report(tmp_path, *runs)
    rows = re.findall(r"(\w+) infonce: temperature 0.05(.*?dev data (?:\d|not known))", page.text)
    assert [(name, row.split()[-1]) for name, row in rows] == [
        *(("one", "1"), ("two", "2"), ("three", "1"), ("running", "known")),
    ]
    assert page.text.count("dev data 1") == 6  # before training, best and last score
    _, page = report(tmp_path, runs[0], runs[2])
    assert "dev data" not in page.text


@pytest.mark.usefixtures("words")
@pytest.mark.parametrize(("data", "alike"), [("one", True), ("other", False)])
def test_the_headline_names_scores_that_can_be_compared(tmp_path, data: str, *, alike: bool):
    runs = []
    for name, tested, score in (("one", "one", 0.4), ("two", data, 0.5)):
        dev = (80.0, 90.0 - score)  # the other order
        runs.append(write_run(tmp_path / name, dev=dev, dev_data="same", weights=name))
        key = {"model": name, "kind": "retrieval", "task": "retrieval", "data": tested}
        Store(runs[-1] / "evaluations").keep(key, Result("retrieval", name, {"mrr@10": score}))
    _, page = report(tmp_path, *runs)
    of_test = "two has the highest mrr@10 on the test data of all runs (retrieval): 50.00."
    assert (of_test in page.text) == alike
    assert ("one has the highest score: dev STS" in page.text) != alike
    _, page = report(tmp_path, *runs, write_run(tmp_path / "three", dev_data="same"))
    assert of_test not in page.text
    other = write_run(tmp_path / "four", dev_data="other")
    _, page = report(tmp_path, *runs, other)
    assert ("in the table “Scores by isotrope evaluate”" in page.text) == alike


@pytest.mark.usefixtures("words")
@pytest.mark.parametrize(
    ("first", "second", "headline"),
    [
        ((0.4, 0.5), (0.5, 0.4), "No run is best on all test data"),
        ((0.4, 0.5), (0.4, 0.4), "a has the highest mrr@10 on the test data of all runs"),
        ((0.4, 0.5), (0.4, None), "a and b have the highest mrr@10 on the test data of all runs"),
        ((None, -0.5), (0.4, -0.4), "b has the highest mrr@10 on the test data of all runs"),
    ],
    ids=["each on one", "tie on one", "tie", "missing"],
)
def test_the_headline_names_the_runs_that_are_best_on_all_test_data(
    tmp_path: Path, first: tuple, second: tuple, headline: str
) -> None:
    runs = [write_run(tmp_path / name, dev=(80.0, 85.0), weights=name) for name in ("a", "b")]
    for run, scores in zip(runs, (first, second), strict=True):
        for data, score in zip(("one", "other"), scores, strict=True):
            key = {"model": run.name, "kind": "retrieval", "task": "retrieval", "data": data}
            Store(run / "evaluations").keep(key, Result("retrieval", run.name, {"mrr@10": score}))
    for order in (runs, runs[::-1]):
        found = " ".join(report(tmp_path, *order)[1].text.split()).replace("b and a", "a and b")
        assert headline in found


@pytest.mark.usefixtures("words")
@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ({"dev_data": "a"}, {"dev_data": "b"}, False),
        ({"dev_data": "a"}, {"dev_data": None}, False),
        (
            {"dev_data": "a", "settings": "dev: x/dev.tsv\n"},
            {"dev_data": "a", "settings": "dev: y/dev.tsv\n", "dev": (90.0, 91.0)},
            True,
        ),
        ({}, {"dev": (90.0, 91.0)}, True),
    ],
)
def test_scores_of_one_name_are_compared_on_the_same_data_only(
    tmp_path: Path, first: dict, second: dict, *, same: bool
) -> None:
    runs = write_run(tmp_path / "one", **first), write_run(tmp_path / "two", **second)
    source, page = report(tmp_path, *runs)
    assert ("two has the highest score" in page.text) == same
    assert ("their dev data differ or are not known" in page.text) != same
    assert ('class="number best"' in source) == same


@pytest.mark.usefixtures("words")
def test_a_loop_of_ones_own_is_compared_with_nothing(tmp_path: Path) -> None:
    """It may score out of 1, and names no dev data."""
    for name in ("loop", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.csv").write_text("step,loss,dev\n0,2,0.8\n10,1,0.9\n")
    run = write_run(tmp_path / "run")
    for others in ([run], [tmp_path / "other"]):
        source, page = report(tmp_path, tmp_path / "loop", *others)
        assert "their dev data differ or are not known" in page.text
        assert 'class="number best"' not in source
    _, page = report(tmp_path, tmp_path / "loop")
    assert "loop reached dev score 0.9000 at step 10" in page.text


def write_recording(folder: Path, losses: list[dict], **settings: object) -> Path:
    """Write what the Doctor records in the output folder of another trainer."""
    recorded = folder / "isotrope"
    recorded.mkdir(parents=True)
    rows = "".join(f"{i},1.5,{i % max(len(losses), 1)}\n" for i in range(4))
    (recorded / "metrics.csv").write_text(f"step,loss,series\n{rows}")
    record = {"verdict": ["healthy"], "findings": [], "loss": losses, "settings": settings}
    write_diagnosis(recorded, record)
    return folder


@pytest.mark.usefixtures("words")
def test_runs_of_other_trainers_are_named_with_their_loss(tmp_path: Path) -> None:
    loss = {"name": "MultipleNegativesRankingLoss", "temperature": 0.0500000007}
    run = write_run(tmp_path / "run")
    others = [
        write_recording(tmp_path / name, [loss], trainer="sentence-transformers")
        for name in ("st", "again/st", "other")
    ]
    page = report(tmp_path, run, *others)[1]
    names = ["run", f"{tmp_path.name}/st", "again/st", "other"]
    assert [each["name"] for each in json.loads(page.scripts[0][1])["runs"]] == names
    assert page.text.count("MultipleNegativesRankingLoss: temperature 0.05 ") == 3
    assert page.text.count("The trainer of sentence-transformers, up to step 3: no dev") == 3
    assert "; files notes.txt" not in page.text  # no other run has settings to compare


@pytest.mark.usefixtures("words")
def test_data_sets_of_runs_with_one_name_are_told_apart(tmp_path: Path) -> None:
    losses = [{"name": x, "series": x, "temperature": None} for x in ("one", "two")]
    runs = [
        write_recording(tmp_path / name, losses, trainer="lightning", series=["one", "two"])
        for name in ("a/st", "b/st")
    ]
    page = report(tmp_path, *runs)[1]
    names = [f"{name}/st: {part}" for name in "ab" for part in ("one", "two")]
    assert [each["name"] for each in json.loads(page.scripts[0][1])["runs"]] == names
    assert "a/st: two two" in page.text  # its own loss
    assert "Healthy: a/st." in page.text


@pytest.mark.usefixtures("words")
@pytest.mark.parametrize(("settings", "same"), [("dev: other.tsv\n", False), ("", True)])
def test_a_run_in_progress_is_compared_by_its_settings(
    tmp_path: Path, settings: str, *, same: bool
) -> None:
    """It has not written yet on which data it is scored."""
    one = write_run(tmp_path / "one")
    two = write_run(tmp_path / "two", dev=(90.0, 91.0), finished=False, settings=settings)
    source, page = report(tmp_path, one, two)
    assert ("two has the highest score" in page.text) == same
    assert ("their dev data differ or are not known" in page.text) != same
    assert ('class="number best"' in source) == same


def test_missing_numbers_say_why(tmp_path: Path) -> None:
    barlow = write_run(tmp_path / "barlow", objective="barlowtwins", ratio=None, dev=())
    running = write_run(tmp_path / "running", finished=False, dev=())
    source, page = report(tmp_path, barlow, running)
    assert "No dev score was measured" in page.text
    assert "In progress (or stopped) at step 40: no dev score was measured." in page.text
    assert "the ratio differs between coordinates" in source
    assert "the run had no --dev data" in page.titles[0] or any("--dev" in t for t in page.titles)
    assert any("has not written its result" in title for title in page.titles)
    assert "still rising at the end? Not measured in these runs: Dev score." in page.text
    assert "divided by push of the negatives. Not measured: barlow." in page.text


@pytest.mark.usefixtures("words")
def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / parent / "run") for parent in ("a", "b")]
    _, page = report(tmp_path, *runs)
    assert "a/run" in page.text
    assert "b/run" in page.text


@pytest.mark.usefixtures("words")
def test_tables() -> None:
    rows = [["old", 0.5, 1204], ["new", None, 3]]
    table = TitledTable("Find it", "A note.", ["model", "MRR", "n"], rows)
    page = tables_page("Before training", "a lead", [table])
    for words in ("Find it", "A note.", "0.500", "1,204", "not measured"):
        assert words in page


def test_further_tables_follow_the_comparison(tmp_path: Path) -> None:
    table = TitledTable("Find it", "A note.", ["model", "MRR"], [["old", 0.5], ["new", None]])
    _, page = report(tmp_path, write_run(tmp_path / "one"), tables=[table])
    for words in ("Find it", "A note.", "0.500"):
        assert words in page.text


@pytest.mark.usefixtures("words")
def test_diagnoses_come_first(tmp_path: Path) -> None:
    faulty = write_diagnosis(write_run(tmp_path / "faulty"), FAULTY)
    well = write_diagnosis(write_run(tmp_path / "well"))
    unknown = write_run(tmp_path / "no one looked")
    source, page = report(tmp_path, faulty, well, unknown)
    health = "faulty: collapsed, losing pull. 1 of 3 runs is healthy, 1 not diagnosed."
    assert page.text.index(health) < page.text.index("has the highest score: ")
    for words in (
        "1. Collapsed All embeddings are one point. Change --objective ntxent",
        "final std 0.0012 below 0.01",
        "rank 1.5 directions \N{EN DASH}",
        "above not finite above 1,500",
        "Li et al. 2024, figure 9",
        "Healthy: well. Nothing was found.",
        "Not diagnosed yet: no one looked.",
    ):
        assert words in page.text
    assert f"isotrope diagnose &#39;{unknown}&#39;" in source

    _, page = report(tmp_path, well, write_diagnosis(write_run(tmp_path / "other")))
    assert page.text.index("well has the highest score") < page.text.index(
        "All 2 runs are healthy."
    )
    _, page = report(tmp_path, well, unknown)
    assert "1 of 2 runs is healthy, 1 not diagnosed." in page.text
    _, page = report(tmp_path, faulty)
    assert "Training report Collapsed, losing pull. faulty reached" in page.text
    own = tmp_path / "own"
    own.mkdir()
    (own / "metrics.csv").write_text("step,loss\n0,2\n5,1\n", encoding="utf-8")
    _, page = report(tmp_path, own)
    assert "From your own training loop: own. isotrope diagnose with the" in page.text
    assert "Not diagnosed yet" not in page.text
    _, page = report(tmp_path, unknown)
    assert "Not diagnosed yet: no one looked." in page.text


@pytest.mark.usefixtures("words")
@pytest.mark.parametrize(
    ("outcome", "pill", "colour", "sentence"),
    [
        ("worse", "healthy; worse", "faulty", "Healthy, but training made the model worse."),
        ("undecided", "healthy; undecided", "even", "Healthy."),
        ("improved", "healthy; improved", "healthy", "Healthy."),
    ],
)
def test_the_pill_is_green_only_where_verdict_and_outcome_are_good(
    tmp_path: Path, outcome: str, pill: str, colour: str, sentence: str
) -> None:
    run = write_diagnosis(write_run(tmp_path / "run", judgement=outcome))
    source, page = report(tmp_path, run)
    assert f'<strong class="{colour}">{pill}</strong>' in source
    assert source.count('<strong class="') == 1
    assert sentence in page.text


@pytest.mark.usefixtures("words")
def test_of_healthy_runs_those_that_got_worse_are_named(tmp_path: Path) -> None:
    runs = [
        write_diagnosis(write_run(tmp_path / name, judgement=outcome))
        for name, outcome in (("a", "worse"), ("b", "improved"))
    ]
    _, page = report(tmp_path, *runs)
    assert "All 2 runs are healthy, but training made these models worse: a." in page.text


@pytest.mark.usefixtures("words")
def test_a_run_in_progress_is_judged_by_what_it_has_kept(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", dev=(50.0, 20.0), finished=False)
    history = DevHistory("dev MRR@10")
    for step, share in ((0, 0.5), (40, 0.2)):
        history.add(step, DevEvaluation(100 * share, (np.arange(200) < 200 * share).astype(float)))
    history.save(run / "dev.npz")
    _, page = report(tmp_path, run)
    assert (
        "In progress (or stopped) at step 40: training made the model worse: dev MRR@10 was 50.00"
        in page.text
    )


@pytest.mark.usefixtures("words")
def test_equal_weights_are_told(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / name, weights=weights)
        for name, weights in (("a", "1f"), ("b", "1f"), ("c", "2f"), ("d", None), ("e", None))
    ]
    _, page = report(tmp_path, *runs)
    assert "The saved weights equal those of b." in page.text
    assert "The saved weights equal those of a." in page.text
    assert page.text.count("saved weights equal") == 2


@pytest.mark.usefixtures("words")
def test_a_healthy_run_shows_its_key_numbers(tmp_path: Path) -> None:
    number = {"name": "dead_early", "number": 0.25, "threshold": 0.9, "unit": "", "side": "above"}
    record = {"verdict": ["healthy"], "findings": [], "numbers": [number]}
    _, page = report(tmp_path, write_diagnosis(write_run(tmp_path / "well"), record))
    assert (
        "Healthy: well. Nothing was found. Measured: dead early: 0.25 (a fault if above 0.9)."
        in page.text
    )


@pytest.mark.usefixtures("words")
def test_what_was_not_examined_is_shown(tmp_path: Path) -> None:
    notes = ["9 steps", f"{MISSED}the objective", "no model"]
    record = {"verdict": ["healthy"], "findings": [], "notes": notes}
    _, page = report(tmp_path, write_diagnosis(write_run(tmp_path / "well"), record))
    assert "Examined for well: 9 steps; no model." in page.text
    assert f"well is {MISSED}the objective." in page.text


@pytest.mark.usefixtures("words")
def test_settings_that_differ_are_plain_and_set(tmp_path: Path) -> None:
    settings = {"one": "columns: [a]\n", "two": "columns: [b, c]\nplugin: own.py\n"}
    runs = (write_run(tmp_path / name, settings=text) for name, text in settings.items())
    _, page = report(tmp_path, *runs)
    assert re.search(r"temperature 0\.05; columns a \d", page.text)
    assert re.search(r"temperature 0\.05; columns b, c, plugin own\.py \d", page.text)


def test_many_sick_runs_do_not_fill_the_first_sentence() -> None:
    collapsed = Diagnosis((Finding("collapsed", (), "", "", ""),))
    faulty = [(f"run {i}", collapsed) for i in range(5)]
    first = "run 0: collapsed. run 1: collapsed. run 2: collapsed. 2 more runs are not healthy. "
    assert summary(faulty) == first + "0 of 5 runs are healthy."
    assert summary([("x", None)]) == ""


@pytest.mark.parametrize("record", [[], {"verdict": ["x"]}, {"verdict": 3, "findings": []}])
def test_a_damaged_diagnosis(tmp_path: Path, record: object) -> None:
    run = write_diagnosis(write_run(tmp_path / "one"), record)
    with pytest.raises(
        InputError, match=r"run .*diagnose .*one` again: .*diagnosis\.json is not a diagnosis"
    ):
        write_report([run], tmp_path / "x.html")


def test_words_of_users_stay_words(tmp_path: Path) -> None:
    name = NASTY.replace("/", "\N{DIVISION SLASH}")
    run = write_run(
        tmp_path / name, objective=NASTY, parameters={"x": NASTY}, verdict=NASTY, dev_name=NASTY
    )
    _, page = report(tmp_path, run, title=NASTY)
    assert page.tags.count("script") == 2
    assert "img" not in page.tags
    told = {"name": NASTY, "number": 1.0, "threshold": 2, "unit": NASTY, "side": NASTY}
    words = dict.fromkeys(("verdict", "source", "change", "detail"), NASTY)
    write_diagnosis(run, {"verdict": [NASTY], "findings": [words | {"evidence": [told]}]})
    _, diagnosed = report(tmp_path, run)
    assert diagnosed.tags.count("script") == 2
    assert f"Change {NASTY}" in diagnosed.text
    assert json.loads(page.scripts[0][1])["runs"][0]["name"] == name
    assert NASTY in page.text


def test_refusals(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one")
    with pytest.raises(InputError, match=": a report needs at least one run"):
        write_report([], tmp_path / "x.html")
    with pytest.raises(InputError, match="is a folder, not a file"):
        write_report([run], tmp_path)
    (run / "metrics.csv").write_text("step,loss\n1\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"metrics\.csv, line 2: expected 2 cells, found 1"):
        write_report([run], tmp_path / "x.html")
    assert not (tmp_path / "x.html").exists()


def test_a_diagnosis_nested_without_end(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "x")
    (folder / "diagnosis.json").write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(InputError, match="is not a diagnosis"):
        write_report([folder], tmp_path / "r.html")


def test_runs_show_the_settings_in_which_they_differ(tmp_path) -> None:
    one = write_run(tmp_path / "one", settings="between: 0.7\nseed: 1\nepochs: 0.15384615\n")
    two = write_run(tmp_path / "two", settings="between: 1.0\nseed: 1\n")
    _, page = report(tmp_path, one, two)
    assert "temperature 0.05; between 0.7, epochs 0.153846 " in page.text
    assert "temperature 0.05; between 1 " in page.text
    assert "; seed 1" not in page.text
    assert "isotrope evaluate --compare` tests" in page.text


def test_what_training_changed_is_shown(tmp_path) -> None:
    run = write_run(tmp_path / "one", dev_name="held-out MRR@10 of 9 queries among 9 texts")
    worst = {"query": "how to row?", "before": 0.5, "after": 0.0}
    file = run / "result.json"
    record = json.loads(file.read_text())
    record["details"] |= {
        "queries": {"all": 9, "better": 4, "worse": 1, "worst": [worst]},
        "kept": 86.7,
        "next": "next, score RUN on all your texts",
    }
    file.write_text(json.dumps(record))
    _, page = report(tmp_path, run)
    assert "What training changed" in page.text
    assert "4 have a higher rank than before and 1 a lower one; the largest falls:" in page.text
    assert "rank 2 to beyond rank 10: how to row?" in page.text
    assert "correlation 0.87" in page.text
    assert f"next, score {run} on all" in page.text
    record["details"]["dev"]["name"] = "held-out nDCG@10 of 9 queries among 9 texts"
    record["details"]["queries"]["worst"] = [{**worst, "before": 1.0, "after": 0.3333}]
    file.write_text(json.dumps(record))
    assert "100 to 33: how to row?" in report(tmp_path, run)[1].text
    file.write_text(json.dumps({**record, "details": {**record["details"], "queries": [1]}}))
    assert "What training changed" not in report(tmp_path, run)[1].text


def started_from(run: Path, weights: str) -> None:
    """Note in a run the fingerprint of its original model."""
    file = run / "result.json"
    record = json.loads(file.read_text())
    record["details"]["model"]["start"] = weights
    file.write_text(json.dumps(record))


def test_the_original_models_score_stands_beside_that_of_the_run(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = write_run(tmp_path / "one", weights="abc")
    started_from(run, "xyz")
    for place, weights, score in ((store_folder(None), "xyz", 0.42), (run, "abc", 0.91)):
        folder = place / "evaluations" if place == run else place
        key = {"model": weights, "kind": "retrieval", "task": "retrieval"}
        Store(folder).keep(key, Result("retrieval", "one", {"mrr@10": score}))
    _, page = report(tmp_path, run)
    assert (
        "original model saved model difference file one retrieval mrr@10 42.00 91.00" in page.text
    )


@pytest.mark.usefixtures("words")
def test_a_score_that_is_a_mean_has_its_interval(tmp_path) -> None:
    run = write_run(tmp_path / "one", weights="new")
    ranks = np.repeat([1.0, 0.5], 50)
    items = {"mrr@10": ranks, "STS12/cosine": ranks}
    metrics = {"mrr@10": float(ranks.mean()), "STS12": 60.0}
    store = Store(run / "evaluations")
    store.keep({"model": "new", "task": "retrieval"}, Result("x", "one", metrics, items=items))
    (low, high) = intervals(np.stack([ranks]))[0].values()
    _, page = report(tmp_path, run)
    assert f"75.00 ({100 * low:.2f} to {100 * high:.2f}) evaluations/" in page.text
    assert re.search(r"STS12 \S+ \d+\.\d\d evaluations/", page.text)
    (archive,) = store.folder.glob("*.npz")
    archive.write_bytes(b"PK")  # damaged
    assert "Scores by isotrope evaluate" not in report(tmp_path, run)[1].text


def test_the_headline_names_each_test(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = write_run(tmp_path / "one", weights="abc")
    started_from(run, "xyz")
    scores = np.linspace(0.3, 0.6, 200)
    for task, gain in (("first", -0.2), ("second", 0.2), ("third", 0.3)):
        for folder, weights, more in (
            (store_folder(None), "xyz", 0.0),
            (run / "evaluations", "abc", gain),
        ):
            items = {"mrr@10": scores + more}
            metrics = {"mrr@10": float(items["mrr@10"].mean())}
            Store(folder).keep(
                {"model": weights, "kind": "retrieval", "task": task},
                Result("retrieval", "one", metrics, items=items),
            )
    text = report(tmp_path, run)[1].text
    assert re.search(r"is better on second \(.*\), third \(.*\); worse on first \(", text)


@pytest.mark.parametrize("gain", [0.3, 0.0])
def test_the_gain_on_test_data_leads_the_report(gain: float, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = write_run(tmp_path / "one", weights="abc")
    started_from(run, "xyz")
    scores = np.linspace(0.1, 0.6, 200)
    for folder, weights, more in (
        (store_folder(None), "xyz", 0.0),
        (run / "evaluations", "abc", gain),
    ):
        items = {"mrr@10": np.roll(scores + more, 7 * bool(more))}
        metrics = {"mrr@10": float(items["mrr@10"].mean())}
        key = {"model": weights, "kind": "retrieval", "task": "retrieval"}
        Store(folder).keep(key, Result("retrieval", "one", metrics, items=items))
    _, page = report(tmp_path, run)
    lead = "On test data, compared with the original model, the saved model is"
    said = "better" if gain else "within noise"
    both = f"mrr@10 35.00 to {35 + 100 * gain:.2f}; +{100 * gain:.2f}, 95% interval"
    assert f"{lead} {said} on retrieval ({both}" in page.text
    assert f"{': higher' if gain else ': noise'} evaluations/" in page.text


def test_the_original_model_may_be_another_run(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    start = f"encoder: {tmp_path}/a\n"
    first, second = (write_run(tmp_path / n, weights=n, settings=start) for n in "ab")
    (first / "model").mkdir(exist_ok=True)
    started_from(second, "a")
    for run, score in ((first, 0.42), (second, 0.91)):
        key = {"model": run.name, "kind": "retrieval", "task": "retrieval"}
        Store(run / "evaluations").keep(key, Result("retrieval", "one", {"mrr@10": score}))
    _, page = report(tmp_path, second)
    assert "original model saved model difference file b retrieval mrr@10 42.00 91.00" in page.text


def test_stored_scores_of_the_saved_weights_are_shown(tmp_path) -> None:
    run = write_run(tmp_path / "one", weights="abc")
    (run / "evaluations").mkdir()
    for name, weights, score in (("now", "abc", 0.91), ("before", "xyz", 0.42)):
        key = {"model": weights, "kind": "retrieval", "task": "retrieval"}
        details = {"retrieval_set": {"queries": 120, "corpus": 77}}
        Result("retrieval", "one", {"mrr@10": score}, details, {"key": key}).save(
            run / "evaluations" / f"{name}.json"
        )
    (run / "evaluations" / "damaged.json").write_text("{")
    Result("retrieval", "one", {}, {}, {"key": None}).save(run / "evaluations" / "odd.json")
    _, page = report(tmp_path, run)
    assert "Scores by isotrope evaluate" in page.text
    assert "120 queries, 77 documents" in page.text
    assert "91.00 evaluations/now.json" in page.text
    assert "42.00" not in page.text
