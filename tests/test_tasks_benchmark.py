"""`benchmarks/tasks.py` makes each cell once, and scores as `isotrope.evaluate` does."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import isotrope
from benchmarks import tasks


def cell(by: str, rate: float, epochs: int, seed: int, *, dev: float = 0.0) -> tasks.Cell:
    key = dict(zip(tasks.KEY, (by, rate, epochs, seed), strict=True))
    return {**key, "dev": dev, "test": 50.0, "queries": "500 500"}


def test_the_seeds_of_the_best_setting_follow_when_the_grid_is_full() -> None:
    cells: list[tasks.Cell] = []
    while wanted := tasks.missing("wikiqa", ["A", "B", "C"], cells):
        cells.append(wanted | {"dev": wanted["rate"] * wanted["epochs"], "queries": ""})
    assert tasks.chosen("wikiqa", cells) == (3e-4, 8)
    assert len(cells) == 1 + 2 + len(tasks.GRID) + 2  # A; B's two other seeds; the grid; C's two
    assert len({tuple(made[key] for key in tasks.KEY) for made in cells}) == len(cells)


def test_a_compared_cell_without_scores_by_query_is_made_again(tmp_path: Path) -> None:
    cells = [cell(tasks.THEIRS, *setting, 0) for setting in tasks.GRID]
    cells[3]["dev"] = 90.0
    tasks.write(tmp_path / "wikiqa.jsonl", "wikiqa", cells)
    stored = tasks.stored(tmp_path / "wikiqa.jsonl")
    with_scores = [(made["rate"], made["epochs"]) for made in stored if "queries" in made]
    assert with_scores == [tasks.DOCUMENTED, tasks.GRID[3]]
    del stored[3]["queries"]
    assert tasks.missing("wikiqa", ["C"], stored) == dict(
        zip(tasks.KEY, (tasks.THEIRS, *tasks.GRID[3], 0), strict=True)
    )


def test_a_setting_is_the_mean_of_its_seeds_query_by_query() -> None:
    cells = [cell(tasks.OURS, 0, 0, seed) for seed in tasks.SEEDS]
    cells[0]["queries"] = "1000 200"
    keys = tasks.compared("wikiqa", cells)
    np.testing.assert_allclose(tasks.by_query(cells, keys["D"]), [200 / 3, 40])
    assert tasks.by_query(cells, keys["B"]) is None
    assert tasks.by_query(cells, keys["C"]) is None


def test_a_cell_without_scores_by_query_gives_a_difference_without_interval() -> None:
    cells = [cell(tasks.THEIRS, *setting, 0) for setting in tasks.GRID]
    cells += [cell(tasks.OURS, 0, 0, 0)]
    cells = [{**made, "stsb": 80.0, "train_cpu_s": 10} for made in cells]
    cells[-1]["test"] = 51.5
    assert tasks.row("wikiqa", cells)[4] == "+0.0 (+0.0 to +0.0)"  # by query both are 50
    for made in cells:
        made.pop("queries")
    assert tasks.row("wikiqa", cells) == [
        *("", "50.0 (1)", "50.0 (1)", "51.5 (1)", "+1.5"),
        *("-, 80.0, 80.0, 80.0", "120 / 10"),
    ]


def test_the_interval_of_a_difference_holds_it() -> None:
    gap, low, high = tasks.difference(np.array([1.0, 0.0, 1.0, 0.5]), np.zeros(4))
    assert gap == pytest.approx(0.625)
    assert 0 <= low < gap < high <= 1


def test_scores_are_those_of_evaluate(tmp_path: Path) -> None:
    words = ["red apple", "green pear", "loud drum", "quiet flute", "fast car", "slow cart"]
    grades = [("q0", "d0", 1), ("q0", "d1", 2), ("q1", "d3", 1), ("q2", "d0", 1)]
    queries, corpus = ["a fruit", "an instrument", "a vehicle"], words
    folder = tmp_path / "tasks" / "small"
    for part in ("", "dev_"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, texts in ((f"{part}queries", queries), (f"{part}corpus", corpus)):
            lines = "".join(
                f"{name.removeprefix('dev_')[0].replace('c', 'd')}{i}\t{text}\n"
                for i, text in enumerate(texts)
            )
            (folder / f"{name}.tsv.gz").write_bytes(gzip.compress(lines.encode()))
        (folder / f"{part}qrels.tsv").write_text("".join(f"{q}\t{d}\t{g}\n" for q, d, g in grades))
    stsb = tmp_path / "sts" / "stsb"
    stsb.mkdir(parents=True)
    scored = zip(range(3), words[:3], words[3:], strict=True)
    (stsb / "test.tsv").write_text("".join(f"{s}\t{a}\t{b}\n" for s, a, b in scored))

    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(tasks.weights("all-MiniLM-L6-v2"), device="cpu")
    scores = tasks.Judge(tmp_path, "small")(model)

    beir = tmp_path / "beir"
    (beir / "qrels").mkdir(parents=True)
    for name, mark, texts in (("queries", "q", queries), ("corpus", "d", corpus)):
        lines = (json.dumps({"_id": f"{mark}{i}", "text": text}) for i, text in enumerate(texts))
        (beir / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    table = "".join(f"{q}\t{d}\t{g}\n" for q, d, g in grades)
    (beir / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + table)
    result = isotrope.evaluate("all-MiniLM-L6-v2", retrieval=beir)
    name = next(name for name in result.metrics if "ndcg" in name.lower() and "10" in name)
    assert scores["test"] == pytest.approx(100 * result.metrics[name], abs=0.05)
    assert len(scores["queries"].split()) == len(queries)


def line(by: str, seed: int, test: float, **more: object) -> tasks.Cell:
    rate, epochs = (0, 0) if by == tasks.OURS else tasks.GRID[0]
    scores = {"test": test, "queries": f"{10 * test:g} {10 * test:g}"}
    return {**cell(by, rate, epochs, seed), "stsb": 80.0, "train_cpu_s": 10, **scores, **more}


def grid(count: int) -> list[tasks.Cell]:
    """So much of C's grid, of which the first setting is the best."""
    cells = [cell(tasks.THEIRS, *setting, 0) for setting in tasks.GRID[1:count]]
    return [line(tasks.THEIRS, 0, 60.0, dev=9.0)] + [
        {**made, "stsb": 80.0, "train_cpu_s": 10} for made in cells
    ]


@pytest.mark.parametrize("by_query", [True, False])
def test_a_difference_is_of_the_seeds_that_both_have(*, by_query: bool) -> None:
    cells = [*grid(12), *(line(tasks.OURS, seed, 61.0 + 5 * seed) for seed in (0, 1))]
    if not by_query:
        cells = [{k: v for k, v in made.items() if k != "queries"} for made in cells]
    texts = tasks.row("wikiqa", cells)
    assert texts[2:4] == ["60.0 (1)", "63.5 (2)"]
    assert texts[4].split()[0] == "+1.0"
    cells = [*grid(12), line(tasks.OURS, 1, 66.0)]
    assert tasks.row("wikiqa", cells)[4] == "", "no seed in common"


def test_c_is_shown_where_most_of_its_grid_is_there_and_says_so() -> None:
    ours = line(tasks.OURS, 0, 61.0)
    assert tasks.row("wikiqa", [*grid(8), ours])[2] == "60.0 (1), best of 8 of 12"
    assert tasks.row("wikiqa", [*grid(7), ours])[2] == ""
    assert tasks.chosen("wikiqa", grid(11)) is None, "a run fills the grid first"


def test_d_by_earlier_rules_gives_way_to_d_of_a_cpu_marked(tmp_path: Path, capsys) -> None:
    earlier = line(tasks.OURS, 0, 40.0, origin=tasks.EARLIER)
    tasks.write(tmp_path / "on" / "wikiqa.jsonl", "wikiqa", [*grid(12), earlier])
    tasks.show("all", tmp_path / "on", tmp_path)
    assert "| 40.0 (1) † | -20.0 (" in capsys.readouterr().out
    tasks.write(tmp_path / "wikiqa.jsonl", "wikiqa", [line(tasks.OURS, 0, 61.0)])
    tasks.show("all", tmp_path / "on", tmp_path)
    assert "| 61.0 (1) ‡ | +1.0 (" in capsys.readouterr().out


def test_only_the_default_encoder_has_the_weights_of_the_wheel(tmp_path: Path) -> None:
    for other in ("multilingual-e5-small", str(tmp_path)):
        assert tasks.weights(other) == other
    assert (Path(tasks.weights(tasks.ENCODER)) / "modules.json").is_file()


def test_show_prints_some_tasks_and_makes_no_cell(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(tasks, "run", lambda *_: pytest.fail("a cell is made"))
    for task in ("conala", "wikiqa"):
        made = cell(tasks.UNTRAINED, 0, 0, 0) | {"stsb": 80.0, "train_cpu_s": 0}
        tasks.write(tmp_path / "e" / f"{task}.jsonl", task, [made])
    common = ["--encoder", "e", "--cells", str(tmp_path)]
    for named, shown in (([], {"conala", "wikiqa"}), (["wikiqa"], {"wikiqa"})):
        tasks.main(["show", *named, *common])
        out = capsys.readouterr().out
        assert {task for task in tasks.TASKS if f"| {task} |" in out} == shown
    with pytest.raises(SystemExit):
        tasks.main(["run", "conalla", *common])
    assert "no such task: conalla" in capsys.readouterr().err


def test_the_page_has_the_rows_that_show_prints() -> None:
    page = (tasks.ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    folder = tasks.CELLS / "all-MiniLM-L6-v2"
    for task in (*tasks.SHORT, *tasks.LONG):
        (cells,) = (made for made in rows if made[0].split()[0] == task and len(made) > 6)
        stored = on_cpu = tasks.stored(folder / f"{task}.jsonl")
        if task in (*tasks.LONG, "parakqc_ko"):
            stored = tasks.with_current(tasks.stored(folder / "cuda" / f"{task}.jsonl"), on_cpu)
        shown = [text.partition(", best")[0] for text in tasks.row(task, stored)[:6]]
        assert cells[1:6] == shown[:5], task
        assert tasks.row(task, stored)[5] in cells, task
