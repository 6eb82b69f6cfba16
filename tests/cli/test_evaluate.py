"""``isotrope evaluate`` as a user types it: tables, JSON, CSV, comparisons, what is refused."""

import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

import isotrope
from isotrope.cli.evaluate import known_queries
from isotrope.core.result import Result
from isotrope.core.run_folder import RunFolder
from isotrope.data.text import labelled
from isotrope.encoders.sentence import SentenceEncoder

from ..image_run import write_image_run, write_pictures
from ..sts_folder import write_plain


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("models")
    for seed in range(2):
        texts = ["a small boat on a wide river", "the mill by the river"]
        SentenceEncoder.scratch(texts, seed=seed, layers=1).save(folder / f"m{seed}")
    return [folder / "m0", folder / "m1"]


@pytest.fixture(scope="module")
def sts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_plain(tmp_path_factory.mktemp("sts"))


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    rows = {
        "own.tsv": [f"{i % 5}\tboat {i}\tmill {i}" for i in range(12)],
        "pairs.tsv": [f"boat {i}\tmill {i}" for i in range(12)],
        "labels.tsv": [f"{'ab'[i % 2]}\tboat {i}" for i in range(20)],
        "test.tsv": [f"{'ab'[i % 2]}\tmill {i}" for i in range(10)],
    }
    for name, lines in rows.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    return {name.partition(".")[0]: tmp_path / name for name in rows}


def test_everything_together(run, models, sts, files, tmp_path) -> None:
    asked = ["--sts", sts, "--retrieval", files["pairs"]]
    asked += ["--labels", files["labels"], "--labels-test", files["test"], "--knn", "--linear"]
    found = run("evaluate", models[0], *asked, "--csv", tmp_path / "table.csv")
    assert found.code == 0, found.err
    header = "STS12 +STS13 +STS14 +STS15 +STS16 +STS-B test +SICK-R test +average"
    assert re.search(f"^{header}$", found.out, re.MULTILINE)
    assert re.search("dev split\nSTS-B +SICK-R\n", found.out)
    for word in ("mrr@10", "top1"):
        assert word in found.out
    with (tmp_path / "table.csv").open() as handle:
        table = {row["task"]: row for row in csv.DictReader(handle)}
    again = run("evaluate", models[0], *asked, "--json")
    details = json.loads(again.out)
    assert float(table["STS12"]["value"]) == details["tasks"]["STS12"]["spearman"]
    assert float(table["average"]["value"]) == details["average"]
    assert table["STS12"]["model"] == str(models[0])
    assert {"retrieval", "knn", "linear"} <= set(details)
    said = "STS12, STS13, STS14, STS15, STS16, STS-B, SICK-R, retrieval, knn, linear"
    assert f": {said} (to repeat: --again)" in again.err
    assert "already scored" not in run("evaluate", models[0], *asked, "--again").err


def test_some_of_it(run, models, files, tmp_path, cache) -> None:
    found = run("evaluate", models[0], "--sts", files["own"])
    assert re.search(r"^own.tsv\n-+\n-?\d+\.\d\d$", found.out, re.MULTILINE)
    assert "average" not in found.out
    both = json.loads(run("evaluate", models[0], "--labels", files["labels"], "--json").out)
    assert {"knn", "linear"} <= set(both)
    asked = ["--labels", files["labels"], "--knn", "--results", tmp_path / "kept"]
    one = json.loads(run("evaluate", models[0], *asked, "--json").out)
    assert "linear" not in one
    assert one["knn"] == both["knn"]
    assert [file.suffix for file in sorted((tmp_path / "kept").iterdir())] == [".npz", ".json"]
    assert cache.is_dir()


def test_models_side_by_side(run, models, files, tmp_path) -> None:
    asked = ["--sts", files["own"], "--retrieval", files["pairs"], "--csv", tmp_path / "table.csv"]
    ranks = tmp_path / "ranks.csv"
    found = run("evaluate", "--compare", *models[:2], models[0], *asked, "--queries", ranks)
    assert found.code == 0, found.err
    again = f"{models[0]} (2)"  # a model that is named twice has two names
    header = ranks.read_text().splitlines()[0].split(",")
    assert [f"rank: {name}" in header for name in (*models[:2], again)] == [True] * 3
    first, second = found.out.split("\n\ndifferences from ")
    second, ranked, same = second.split(f"\n\n{models[0].parent}/")
    assert re.match(r"m1 ranks .* of \d+ queries higher than .*m0, and of \d+ low", ranked)
    assert re.match(r"m0 \(2\) ranks .* of 0 queries higher than .*m0, and of 0 lower", same)
    lines = [line.split() for line in first.splitlines()]
    assert lines[0][:2] == ["model", "own.tsv"]
    assert lines[1] == ["Spearman"]  # of the file; the others' names are their metrics
    assert [line[0] for line in lines[3:6]] == [str(models[i]) for i in (0, 1, 0)]
    assert any(cell.endswith("*") for cell in lines[3] + lines[4])
    assert first.splitlines()[-1] == f"the same weights: {models[0]}, {again}"
    assert f"scores of {again}, compared with {models[0]}: 0 higher, 0 lower" in second
    assert "own.tsv Spearman" in second
    assert second.startswith(f"{models[0]}\nmodel ")
    verdicts = [line.split()[-1] for line in second.splitlines()[3:] if str(models[1]) in line]
    assert set(verdicts) <= {"higher", "lower", "noise"}
    same = [line.split()[-1] for line in second.splitlines()[3:] if line.startswith(str(models[0]))]
    assert set(same) == {"noise"}
    assert "5,000 resamples, seed 0" in second
    columns = 1 + 4  # the file, retrieval without recall@100 of fewer documents
    assert f"for the {columns} scores of a model" in second
    with (tmp_path / "table.csv").open() as handle:
        table = list(csv.DictReader(handle))
    assert len(table) == 3 * columns
    assert table[0]["difference"] == ""
    assert (table[0]["task"], table[0]["metric"]) == ("own.tsv", "Spearman")
    assert table[-1]["task"] == table[-1]["metric"]
    assert table[1]["verdict"] in {"higher", "lower", "noise"}
    chosen = ("--metric", "ndcg@10", "--json")
    details = json.loads(run("evaluate", "--compare", *models, *asked[:4], *chosen).out)
    assert details["metric"] == "ndcg@10"
    (queries,) = details["queries"]
    better = sum(
        1 / (old or 99) < 1 / (new or 99) for old, new in (m["rank"] for m in queries["most"])
    )
    assert better == min(queries["better"], 3)
    assert len(queries["most"]) - better == min(queries["worse"], 3)
    assert details["columns"]["own.tsv"]["models"][0]["value"] == float(table[0]["value"])
    assert details["same_weights"] == []


def test_runs_of_different_length_are_named(run, models, files, tmp_path) -> None:
    runs = [shutil.copytree(models[0], tmp_path / f"r{i}" / "model").parent for i in range(3)]
    for folder, steps in zip(runs, (15, 15, 10), strict=True):
        Result("train", "r", {"steps": steps}).save(folder / "result.json")
        (folder / "metrics.csv").write_text("step,loss\n")
        RunFolder(folder).write_settings("seed: 0\n")
    asked = "--sts", files["own"]
    found = run("evaluate", "--compare", *runs, models[0], *asked).err
    for folder, steps in zip(runs, (15, 15, 10), strict=True):
        assert f"{folder} took {steps} steps" in found
    assert f"{models[0]} took" not in found
    assert "steps" not in run("evaluate", "--compare", *runs[:2], *asked).err
    runs[0].joinpath("result.json").write_text("{")
    assert "steps" not in run("evaluate", "--compare", *runs[:2], *asked).err


def test_a_table_of_queries(run, models, files, tmp_path) -> None:
    more, table = tmp_path / "more.txt", tmp_path / "queries.csv"
    more.write_text("a text that answers nothing\n")
    asked = ["--retrieval", files["pairs"], "--corpus", more, "--queries", table, "--json"]
    details = json.loads(run("evaluate", "--compare", *models[:2], *asked).out)
    with table.open() as handle:
        found = list(csv.DictReader(handle))
    for i, model in enumerate(models[:2]):
        ranks = [int(row[f"rank: {model}"] or 0) for row in found]
        score = sum(1 / rank for rank in ranks if 0 < rank <= 10) / len(found)
        assert score == pytest.approx(details["columns"]["mrr@10"]["models"][i]["value"])
        for row, rank in zip(found, ranks, strict=True):
            assert (row[f"first: {model}"] in json.loads(row["answers"])) == (rank == 1)
    (most,) = [each["most"] for each in details["queries"]]
    assert {each["query"] for each in most} <= {row["query"] for row in found}
    assert run("evaluate", models[0], "--corpus", more, "--sts", files["own"]).code == 2
    assert run("evaluate", models[0], "--queries", table, "--sts", files["own"]).code == 2


def test_a_table_of_queries_with_labels(run, models, tmp_path) -> None:
    train, test, table = (tmp_path / name for name in ("train.csv", "test.csv", "queries.csv"))
    rows = [f"boat {i} {'mill' * (i % 3)},{i % 3}\n" for i in range(30)]
    train.write_text("".join(["text,label\n", *rows[:20]]))
    test.write_text("".join(["text,label\n", *rows[20:]]))
    asked = ["--compare", *models, "--retrieval", test, "--corpus", train, "--queries", table]
    refused = run("evaluate", *asked[:3], "--labels", train, "--queries", table)
    assert (refused.code, table.exists()) == (2, False)
    found = run("evaluate", *asked)
    assert found.code == 0, found.err
    assert "10 queries, 20 documents" in found.err
    with table.open() as handle:
        written = list(csv.DictReader(handle))
    for model in models:
        for i, row in enumerate(written, start=20):
            assert (row["label"], row.get("answers")) == (str(i % 3), None)
            assert (row[f"first_label: {model}"] == row["label"]) == (row[f"rank: {model}"] == "1")
    knn = run(
        "evaluate", models[0], "--labels", train, "--columns", "text,label", "--json", "--knn"
    )
    assert json.loads(knn.out)["knn"]["classes"] == 3
    refused = run("evaluate", models[0], "--columns", "text,label", "--sts", train)
    assert refused.code == 2


def test_the_highest_recall_of_queries_with_several_answers(run, models, tmp_path) -> None:
    """Of two queries, one has two answers: at k = 1, a perfect ranking has half of its recall."""
    data = tmp_path / "pairs.tsv"
    data.write_text("one\ta first answer\none\tits second answer\ntwo\tan answer\n")
    asked = ("--retrieval", data)
    for command in (("evaluate", models[0]), ("evaluate", "--compare", *models[:2])):
        details = json.loads(run(*command, *asked, "--json").out)
        assert details["at_most"]["recall@1"] == 0.75
        assert "recall@1 can be at most 75.00" in run(*command, *asked).out
    data.write_text("one\ta first answer\ntwo\tan answer\n")
    assert json.loads(run("evaluate", models[0], *asked, "--json").out)["at_most"] == {
        "recall@1": 1.0
    }
    assert "at most" not in run("evaluate", models[0], *asked).out


def test_near_copies_of_an_answer_are_reported_wherever_scores_are(run, models, tmp_path) -> None:
    data, more = tmp_path / "pairs.tsv", tmp_path / "more.txt"
    answer, other = "open the app and freeze the card", "send the form back by ordinary mail"
    data.write_text(f"a lost card\t{answer}\na new name\t{other}\n")
    more.write_text(f"please {answer}\n")
    asked = ("evaluate", models[0], "--retrieval", data)
    numbers = {"texts": 2, "copies": 1, "compared": 3, "left_out": 0}
    line = "near-copy, which a query may count as wrong: 1 of 2, among 3 documents"
    compared = ("evaluate", "--compare", *models[:2], *asked[2:], "--corpus", more)
    for command in ((*asked, "--corpus", more), (*asked, "--corpus", more), compared):
        assert line in run(*command).out  # of stored scores too
    details = json.loads(run(*asked, "--corpus", more, "--json").out)
    assert details["near_copies"] == numbers
    result = isotrope.evaluate(models[0], retrieval=data, corpus=more)
    assert result.details["near_copies"] == numbers
    assert line in str(result)
    assert "near-copy" not in run(*asked).out
    with more.open("a") as handle:  # two copies that no query has as an answer
        handle.write("some text that answers nothing at all\nsome text that answers nothing\n")
    assert line.replace("3 documents", "5 documents") in run(*asked, "--corpus", more).out
    with data.open("a") as handle:
        handle.write(f"a lost card\tplease {answer}\n")
    assert "near-copy" not in run(*asked, "--corpus", more).out


def test_scores_in_the_model_card(run, models, files, tmp_path) -> None:
    card = models[0] / "README.md"
    before = card.read_text()
    for _ in range(2):  # the second replaces the first
        found = run("evaluate", models[0], "--retrieval", files["pairs"], "--card")
        assert found.code == 0, found.err
    head, _, body = card.read_text().partition("\n---\n")
    assert body.startswith(before.partition("\n---\n")[2].rstrip())
    assert body.count("pairs.tsv") == body.count("mrr@10") == 1
    (index,) = yaml.safe_load(head.lstrip("-"))["model-index"]
    (task,) = index["results"]
    assert task["task"]["type"] == "information-retrieval"
    values = {metric["type"]: metric["value"] for metric in task["metrics"]}
    assert f"{100 * values['ndcg@10']:.2f}" in body
    other = tmp_path / "other.tsv"
    shutil.copy(files["pairs"], other)
    assert run("evaluate", models[0], "--retrieval", other, "--card").code == 0
    assert "pairs.tsv" in card.read_text().partition("\n---\n")[0]  # other results stay
    card.write_text(before)
    compared = ["evaluate", "--compare", *models, "--retrieval", files["pairs"], "--card"]
    assert run(*compared).code == 2  # none of them is a run
    folder = tmp_path / "trained"
    shutil.copytree(models[0], folder / "model")
    (folder / "config.yaml").write_text("seed: 0\n")
    (folder / "result.json").write_text("{}")
    compared[2] = str(models[1])
    found = run(*compared[:3], str(folder), *compared[4:])
    assert found.code == 0, found.err
    text = (folder / "model" / "README.md").read_text()
    assert f"differences from {models[1]}" in text
    assert "queries higher" not in text


def test_a_training_that_has_not_ended(run, models, files, tmp_path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(models[0], folder / "model")
    RunFolder(folder).write_settings("seed: 0\n")
    asked = ("evaluate", folder, "--retrieval", files["pairs"])
    assert "--resume" in run(*asked).err
    (folder / "result.json").write_text("{}")
    assert "--resume" not in run(*asked).err


def test_a_file_of_pairs_can_have_columns_of_any_name(run, models, files, tmp_path) -> None:
    pairs, folder = tmp_path / "faq.csv", tmp_path / "folder"
    rows = "".join(f"where is boat{i},boat{i} lies here\n" for i in range(12))
    pairs.write_text(f"frage,antwort\n{rows}")
    refused = run("evaluate", models[0], "--retrieval", pairs)
    assert (refused.code, "--columns frage,antwort" in refused.err) == (2, True)
    asked = ("--retrieval", pairs, "--columns", "frage,antwort")
    found = run("evaluate", "--compare", *models[:2], *asked, "--json")
    assert len(json.loads(found.out)["columns"]["mrr@10"]["models"]) == 2
    folder.mkdir()
    refused = run("evaluate", models[0], "--retrieval", folder, *asked[2:])
    assert (refused.code, "leave --columns out" in refused.err) == (2, True)


def test_words_beside_an_encoder(run, models, tmp_path) -> None:
    pytest.importorskip("bm25s")
    pairs = tmp_path / "words.tsv"
    pairs.write_text("".join(f"where is boat{i}\tboat{i} lies here\n" for i in range(12)))
    found = run("evaluate", "--compare", models[0], "bm25", "--retrieval", pairs, "--json")
    assert found.code == 0, found.err
    scores = json.loads(found.out)["columns"]["mrr@10"]["models"]
    assert scores[1]["value"] == 1
    assert scores[1]["best"]
    assert run("evaluate", "bm25", "--sts", pairs).code == 2


def test_bm25_has_no_score_on_labels(run, models, files, monkeypatch) -> None:
    """It is never looked for on the hub, and no model is scored before the error."""
    monkeypatch.setattr("isotrope.evaluation.dispatch.score_model", lambda *_, **__: 1 / 0)
    for asked in (["bm25"], ["--compare", models[0], "BM25", "--retrieval", files["pairs"]]):
        refused = run("evaluate", *asked, "--labels", files["labels"], "--knn")
        assert (refused.code, refused.out) == (2, "")
        assert "score bm25 only with --retrieval" in refused.err


def test_retrieval_data_are_loaded_once_for_all_tables(run, models, files, monkeypatch) -> None:
    from isotrope.data.text import retrieval_sets

    loaded, load = [], retrieval_sets.load_retrieval

    def counted(*arguments, **options):
        loaded.append(arguments)
        return load(*arguments, **options)

    monkeypatch.setattr(retrieval_sets, "load_retrieval", counted)
    asked = ["--retrieval", files["pairs"], "--queries", files["pairs"].with_name("queries.csv")]
    found = run("evaluate", "--compare", *models, *asked)
    assert found.code == 0, found.err
    assert len(loaded) == 1


def test_labelled_data_are_read_once_and_each_model_has_its_own_scores(
    run, models, files, monkeypatch
) -> None:
    loaded, load = [], labelled.load_labelled

    def counted(*arguments):
        loaded.append(arguments)
        return load(*arguments)

    monkeypatch.setattr(labelled, "load_labelled", counted)
    asked = ["--labels", files["labels"], "--json", "--again"]
    compared = json.loads(run("evaluate", "--compare", *models[:2], *asked).out)["columns"]
    assert len(loaded) == 1
    for i, model in enumerate(models[:2]):
        alone = json.loads(run("evaluate", model, *asked).out)
        for kind in ("knn", "linear"):
            assert compared[f"{kind}_top1"]["models"][i]["value"] == alone[kind]["top1"]


def test_what_smaller_vectors_cost(run, models, files, monkeypatch) -> None:
    sizes_of_batches, of_tokens = [], SentenceEncoder.of_tokens

    def note(self, rows):
        sizes_of_batches.append(len(rows))
        return of_tokens(self, rows)

    monkeypatch.setattr(SentenceEncoder, "of_tokens", note)
    asked = ["--retrieval", files["pairs"], "--dimensions", "128", "4", "--precision", "float32"]
    found = run("evaluate", models[0], *asked, "int8", "binary", "--batch-size", "3")
    assert found.code == 0, found.err
    assert max(sizes_of_batches) == 3
    rows = [line for line in found.out.split("\n\ndifferences")[0].splitlines() if "bytes" in line]
    sizes = [re.search(r"(\d+ x \w+) \((\d+) bytes\)", row).groups() for row in rows]
    assert sizes[0] == ("128 x float32", "512")  # the full vectors come first
    assert dict(sizes) == {
        "128 x float32": "512",
        "4 x float32": "16",
        "128 x int8": "128",
        "4 x int8": "4",
        "128 x binary": "16",
        "4 x binary": "1",
    }
    for words, flag in (
        (["--compare", *models, "--dimensions", "4"], "--dimensions"),
        ([models[0], "--precision", "int8", "--truncate-dim", "2"], "--precision"),
    ):
        refused = run("evaluate", *words, "--retrieval", files["pairs"])
        assert (refused.code, refused.out) == (2, "")
        assert f"{flag} takes one text encoder" in refused.err


@pytest.mark.parametrize("asked", [["--precision", "float32"], ["--dimensions", "128"]])
def test_vectors_that_are_not_smaller_are_scored(run, models, files, asked) -> None:
    found = run("evaluate", models[0], "--retrieval", files["pairs"], *asked)
    assert found.code == 0, found.err
    assert found.out == run("evaluate", models[0], "--retrieval", files["pairs"]).out


def test_what_is_refused(run, models, files, tmp_path, cache) -> None:
    own, labels = ("--sts", files["own"]), ("--labels", files["labels"])
    for arguments, message in (
        ((models[0],), "name the data to evaluate on: --sts DIR, --transfer DIR"),
        (own, "MODEL is missing"),
        (("--compare", models[0], *own), "--compare needs at least two models"),
        ((models[0], "--compare", *models, *own), "name all models after --compare"),
        ((models[0], "--knn", *own), "--knn (needs labelled texts: --labels FILE"),
        ((models[0], "--labels-test", files["test"], *own), "needs the training part, --labels"),
        ((models[0], "--sts", tmp_path / "none"), "no such file or folder"),
        ((models[0], "--transfer", tmp_path / "none"), "no such folder of transfer tasks"),
        ((models[0], "--transfer", tmp_path, "--tasks", "MRP"), "unknown transfer task 'MRP'"),
        ((models[0], "--sts", tmp_path, "--tasks", "MR"), "--tasks MR (needs --transfer DIR)"),
        ((models[0], "--retrieval", tmp_path / "none.txt"), "no such file"),
        ((models[0], *labels, "--mode", "quick"), "--mode quick: "),
        ((models[0], *own, "--results", files["own"]), "cannot write"),
        (("no/such/model", *own), "there is no folder 'no/such/model'"),
        (("--compare", models[0], "no/such/model", *own), "there is no folder 'no/such/model'"),
    ):
        found = run("evaluate", *arguments)
        assert (found.code, found.out) == (2, "")
        assert message in found.err
        assert len(found.err.strip().splitlines()) == 1
    assert list(cache.rglob("*.json")) == []  # nothing was scored on the way


def test_bad_data_stop_before_a_model_is_looked_for(run, files) -> None:
    files["own"].write_text(files["own"].read_text() + "1\ta\n")
    found = run("evaluate", "nosuch/model", "--sts", files["own"])
    assert found.code == 2
    assert "own.tsv, line 13: give 3 fields, separated by tabs" in found.err


def test_a_number_that_is_none_is_no_json(run, models, sts, monkeypatch) -> None:
    result = Result("sts", "m", {}, {"average": float("nan")})
    monkeypatch.setattr("isotrope.evaluation.dispatch.score_model", lambda *_, **__: result)
    with pytest.raises(ValueError, match="not JSON compliant"):
        run("evaluate", models[0], "--sts", sts, "--json")


def test_help_teaches(run) -> None:
    said = run("evaluate", "--help").out
    for word in ("--compare", "--labels", "Spearman", "SentEval", "bootstrap", "RUN/evaluations"):
        assert word in said


def test_runs_on_images(run, models, files, tmp_path) -> None:
    data = write_pictures(tmp_path / "blobs.npz")
    runs = [write_image_run(tmp_path / f"r{i}", data, weights=i) for i in range(2)]
    found = run("evaluate", runs[0], "--knn", "--linear", "--device", "cpu")
    assert found.code == 0, found.err
    for words in (
        r"^knn +x 100 +from +to$",
        r"^top1( +(\d+\.\d\d|-)){3}$",
        r"^linear +x 100 +from +to$",
    ):
        assert re.search(words, found.out, re.MULTILINE)
    assert "every training example votes (80), because there are fewer than 200" in found.out
    assert run("evaluate", runs[0]).out == found.out  # without --knn and --linear, both are done
    arrays = dict(np.load(data))
    np.savez(tmp_path / "few.npz", **{**arrays, "y": arrays["y"] % 2})
    unseen = run("evaluate", runs[0], "--knn", "--labels", tmp_path / "few.npz")
    assert "no example of the class of 20 of 40 test examples" in unseen.out
    again = run("evaluate", runs[0], "--knn", "--json")
    assert "already scored" in again.err
    assert json.loads(again.out)["knn"]["test"] == 40
    both = run("evaluate", "--compare", *runs, "--knn", "--csv", tmp_path / "table.csv")
    assert both.code == 0, both.err
    assert "for the 1 score of a model" in both.out
    moved = run("evaluate", runs[1], "--knn", "--labels", data)
    assert moved.code == 0, moved.err
    for arguments, message in (
        (("--compare", runs[0], models[0]), "name the data to evaluate on: --sts DIR"),
        ((*runs[:1], "--labels-test", data), "needs the training part, --labels"),
        ((runs[0], "--sts", files["own"]), "own.tsv (the encoder takes pictures)"),
        (("--compare", runs[0], models[0], "--knn"), "needs labelled texts"),
        ((runs[0] / "model", "--knn"), "is not the folder of a run on images"),
    ):
        refused = run("evaluate", *arguments)
        assert (refused.code, refused.out) == (2, "")
        assert message in refused.err
        assert len(refused.err.strip().splitlines()) == 1


def test_queries_that_a_run_was_trained_on_are_counted(tmp_path) -> None:
    data, run = tmp_path / "pairs.tsv", RunFolder(tmp_path / "run")
    data.write_text("One?\ta\ntwo\tb\n")
    run.path.mkdir()
    run.metrics.touch()
    assert known_queries(run, ["one"]) == 0  # no run
    run.write_settings(f"files: [{data}]\n")
    assert known_queries(run, ["one", "two", "three"]) == 2
    run.config.write_text(f"files: [{data}]\n")  # of somebody else
    assert known_queries(run, ["one"]) == 0
    run.write_settings(f"files: [{data}]\ncolumns: [gone, too]\n")  # another file by now
    assert known_queries(run, ["one"]) == 0
    labelled, scored = tmp_path / "labelled.csv", tmp_path / "scored.csv"
    labelled.write_text("text,label\none,a\ntwo,a\nthree,b\n")
    run.write_settings(f"files: [{labelled}]\n")
    assert known_queries(run, ["one", "two", "three", "four"]) == 3
    scored.write_text("sentence1,sentence2,score\none,uno,1\ntwo,tre,0.2\n")
    run.write_settings(f"files: [{scored}]\nloss: CoSENTLoss\n")
    assert known_queries(run, ["one", "two", "three"]) == 2
    run.write_settings("files: [not-here.tsv]\n")
    assert known_queries(run, ["one"]) == 0
