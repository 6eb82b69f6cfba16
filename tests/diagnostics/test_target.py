"""Measuring runs and models: what is probed with what, and what is said where it cannot be."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import isotrope
from isotrope.core import progress
from isotrope.core.errors import InputError
from isotrope.core.run_folder import RunFolder
from isotrope.core.views import unit
from isotrope.diagnostics import target as subject
from isotrope.diagnostics.doctor import diagnose
from isotrope.diagnostics.probe import ROWS, embed_views, probe_texts, read_texts, texts_of
from isotrope.diagnostics.target import examine
from isotrope.encoders.image import ImageEncoder
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.objectives.infonce import InfoNCE
from tests.image_run import write_image_run, write_pictures
from tests.training.conftest import sentences

TEXTS = sentences(300)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small untrained encoder of text."""
    folder = tmp_path_factory.mktemp("encoder") / "model"
    torch.set_num_threads(1)
    SentenceEncoder.scratch(TEXTS, width=32, layers=1, vocabulary=500).save(folder)
    return folder


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(TEXTS) + "\n")
    return file


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{text}\t{text.upper()} and more\n" for text in TEXTS))
    return file


def run_of(folder: Path, model: Path, files: list[str], **settings: Any) -> Path:
    """Write a finished run whose model is ``model``."""
    shutil.copytree(model, folder / "model")
    told = {"files": files, "encoder": str(model), "batch-size": 64, "objective": "infonce"}
    RunFolder(folder).write_settings(yaml.safe_dump({**told, **settings}))
    (folder / "metrics.csv").write_text("step,loss\n0,3.0\n10,2.0\n")
    result = {"kind": "train", "name": folder.name, "metrics": {}, "details": {}}
    (folder / "result.json").write_text(json.dumps(result))
    return folder


def test_a_run_of_single_texts_is_probed_with_dropout(
    encoder: Path, lines: Path, tmp_path: Path
) -> None:
    case = examine(run_of(tmp_path / "run", encoder, [str(lines)]))
    assert case.probe is not None
    assert 0 < case.probe["positive_mean"] < case.probe["negative_mean"]  # type: ignore[operator]
    assert (case.probe["dimension"], case.start) == (32, None)
    assert case.notes[-1] == f"{case.probe['count']:.0f} of 300 texts (texts.txt)"


def test_without_dropout_the_views_are_one(encoder: Path, lines: Path, tmp_path: Path) -> None:
    case = examine(run_of(tmp_path / "run", encoder, [str(lines)], dropout=0.0))
    assert case.probe is not None
    assert case.probe["positive_mean"] == pytest.approx(0, abs=1e-6)
    assert diagnose(case).verdict[0] == "dead-views"


def test_pairs_are_probed_before_and_after(encoder: Path, pairs: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", encoder, [str(pairs)])
    case = examine(run)
    assert case.start is not None
    assert case.start == case.probe
    gone = examine(run_of(tmp_path / "gone", encoder, [str(pairs)], encoder="no/such/model"))
    assert gone.start is None
    assert "the initial encoder could not be measured" in gone.notes[-1]


def test_each_bar_names_what_is_embedded_with_which_encoder(
    encoder: Path,
    pairs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = run_of(tmp_path / "run", encoder, [str(pairs)])
    monkeypatch.setattr(progress, "LINES", 0.0)
    subject.diagnose(run)
    titles = [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()[1:]]
    assert list(dict.fromkeys(titles)) == [
        f"embed {what} with {name}"
        for name in ("run", "model")
        for what in ("anchors", "positives")
    ]


def test_data_of_ones_own_takes_the_place_of_the_runs(
    encoder: Path, lines: Path, pairs: Path, tmp_path: Path
) -> None:
    case = examine(run_of(tmp_path / "run", encoder, [str(lines)]), data=str(pairs))
    assert case.notes[-1].endswith("pairs (pairs.tsv)")
    with pytest.raises(InputError, match=r"no\.txt: check the path; there is no such file"):
        examine(tmp_path / "run", data="no.txt")


def test_vanished_data_leave_the_log(encoder: Path, tmp_path: Path) -> None:
    case = examine(run_of(tmp_path / "run", encoder, [str(tmp_path / "gone.txt")]))
    assert case.probe is None
    assert "the saved model could not be measured" in case.notes[-1]
    assert case.end("loss") == 2.0


def test_a_run_without_a_model(encoder: Path, lines: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", encoder, [str(lines)])
    shutil.rmtree(run / "model")
    assert examine(run).notes[-1] == "no data were embedded, because the run has no saved model"


def test_an_objective_of_ones_own(encoder: Path, pairs: Path, tmp_path: Path) -> None:
    mine = InfoNCE(temperature=0.5)
    run = run_of(tmp_path / "run", encoder, [str(pairs)])
    assert examine(run, objective=mine).objective == mine
    model = examine(encoder, data=str(pairs), objective=mine)
    assert model.end("hardest_share") is not None
    assert examine(encoder, data=str(pairs)).end("hardest_share") is None


def test_a_model_is_diagnosed_with_the_prompts_that_it_was_saved_with(
    encoder: Path, pairs: Path, tmp_path: Path
) -> None:
    query, document = "river stone: ", "cloud "
    lines = [f"{query}{text}\t{document}{text.upper()} and more\n" for text in TEXTS]
    (tmp_path / "prompted.tsv").write_text("".join(lines))
    model = SentenceEncoder.load(encoder)
    model.model.prompts = {"query": query, "document": document}
    model.save(tmp_path / "model")
    found = isotrope.diagnose(tmp_path / "model", data=pairs).model
    assert found == isotrope.diagnose(encoder, data=tmp_path / "prompted.tsv").model
    assert found != isotrope.diagnose(encoder, data=pairs).model


def test_a_model_is_loaded_once(
    encoder: Path, pairs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, loaded = SentenceEncoder.load, list[str]()
    monkeypatch.setattr(SentenceEncoder, "load", lambda name: loaded.append(name) or load(name))
    found = isotrope.diagnose(encoder, data=pairs).model
    assert found["uncovered"]["kind"]
    assert loaded == [str(encoder)]


def test_a_prompt_before_every_text_is_probed(
    encoder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = SentenceEncoder.load(encoder)
    model.model.prompts, model.model.default_prompt_name = {"query": "river stone: "}, "query"
    model.save(tmp_path / "model")
    model = SentenceEncoder.load(tmp_path / "model")
    texts = texts_of([(text,) for text in TEXTS[:9]], views="dropout", name="texts")
    monkeypatch.setattr(progress, "LINES", 0.0)
    monkeypatch.setattr("isotrope.encoders.sentence._PIECE", 4)
    with progress.showing(show=True):
        _, plain = embed_views(model, texts)
    assert "embed first view with " in (printed := capsys.readouterr().err)
    assert ": 4 of 9 texts" in printed
    torch.testing.assert_close(unit(plain), unit(torch.from_numpy(model.encode(TEXTS[:9]))))


def test_a_model_without_data_reads_docstrings(
    encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = texts_of([(t, t.upper()) for t in TEXTS], views="pairs", name="docstrings")
    monkeypatch.setattr(subject, "_docstrings", lambda: short)
    case = examine(encoder)
    assert case.kind == "text"
    assert case.notes[0].endswith("of 300 pairs (docstrings)")


@pytest.mark.slow  # it reads the documentation of the whole environment
def test_the_docstrings_are_pairs() -> None:
    texts = subject._docstrings()
    assert texts.views == "pairs"
    assert texts.read > ROWS


def test_what_is_neither_run_nor_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no model"):
        examine(tmp_path)
    with pytest.raises(InputError, match="there is no folder"):
        examine(tmp_path / "nothing")


def test_a_run_on_images(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    write_image_run(run, write_pictures(tmp_path / "pictures.npz"))
    (run / "metrics.csv").write_text("step,loss,knn\n0,3.0,20\n9,2.0,30\n")
    case = examine(run)
    assert case.kind == "images"
    assert case.probe is not None
    assert case.probe["count"] == 80
    assert case.notes[-1] == "80 images, two crops of each"


def test_a_model_of_images_needs_some(tmp_path: Path) -> None:
    ImageEncoder.build("resnet9", width=4, image_size=8, seed=0).save(tmp_path / "model")
    with pytest.raises(InputError, match=r"give images with .*data"):
        examine(tmp_path / "model")
    data = write_pictures(tmp_path / "pictures.npz")
    case = examine(tmp_path / "model", data=str(data))
    assert case.kind == "images"
    assert case.end("uniformity") is not None


def test_too_few_texts(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("a single line\n")
    with pytest.raises(InputError, match=r"give at least 2 texts: one.txt has 1"):
        read_texts([tmp_path / "one.txt"])


def test_a_sample_is_drawn_from_first_to_last(tmp_path: Path) -> None:
    file = tmp_path / "many.txt"
    file.write_text("".join(f"text number {i} of many\n" for i in range(1000)))
    texts = read_texts([file], prompts=("query: ", ""))
    assert len(texts.records) == 250 <= ROWS
    assert texts.records[0] == ("query: text number 0 of many",)
    assert texts.records[-1] == ("query: text number 996 of many",)
    assert (texts.read, texts.copies) == (1000, 1.0)


def test_a_probe_leaves_the_encoder_as_it_was(encoder: Path, lines: Path) -> None:
    model = SentenceEncoder.load(encoder)
    model.train()
    before, state = model.fingerprint(), torch.random.get_rng_state()
    first = probe_texts(model, read_texts([lines]))
    assert first == probe_texts(model, read_texts([lines]))
    assert model.fingerprint() == before
    assert model.training
    assert torch.equal(torch.random.get_rng_state(), state)


def test_near_identical_texts_are_no_negatives_where_training_sees_to_them(
    encoder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "twice.txt"
    twice = [end for text in TEXTS[:40] for end in (text, f"{text}!")]
    file.write_text("".join(f"{text}\n" for text in twice))
    model = SentenceEncoder.load(encoder)
    drawn = [(text, text) for text in twice]
    open_loop = probe_texts(model, texts_of(drawn, views="dropout", name="twice"))
    ours = probe_texts(model, read_texts([file]))
    assert open_loop["copies"] == 1
    assert ours["copies"] == 0
    assert open_loop["false_negatives"] > ours["false_negatives"]  # type: ignore[operator]


def test_texts_of_a_group_are_no_negatives_of_each_other(encoder: Path, tmp_path: Path) -> None:
    file = tmp_path / "products.jsonl"
    rows = [
        {"text": f"{text} {word}", "product": i}
        for i, text in enumerate(TEXTS[:40])
        for word in ("alpha", "beta")
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = SentenceEncoder.load(encoder)
    without = probe_texts(model, read_texts([file], columns=["text"]))
    groups = read_texts([file], columns=["text"], groups="product")
    grouped = probe_texts(model, groups)
    assert without["copies"] > grouped["copies"] == 0
    assert (without["negatives"], grouped["negatives"]) == (79, 78)
