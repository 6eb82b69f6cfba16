"""Places: what names in jobs mean here, and what is missing for them."""

import gzip
from pathlib import Path

import pytest

from isotrope.core import InputError
from isotrope.data.text.sts_sets import TASKS
from isotrope.data.text.transfer_sets import TASKS as TRANSFER
from papers.draganov2024 import flowers_tail
from papers.machinery import data_registry as module
from papers.machinery.data_registry import DataRegistry


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of data with seven lines of Wikipedia, and a corpus that a paper names."""
    folder = tmp_path / "data"
    (folder / "corpus").mkdir(parents=True)
    lines = [f"{number} " + "word " * (5 * number) for number in range(7)]
    with gzip.open(folder / "corpus" / "wiki_en_1m.txt.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    (folder / "theirs.txt").write_text("a\u2028b\nb\x85\nc\n", encoding="utf-8")
    (folder / "bert").mkdir()
    return folder


@pytest.mark.slow
def test_corpora_are_the_first_sentences(data: Path, tmp_path: Path) -> None:
    places = DataRegistry(data, tmp_path / "made")
    assert places.texts("wiki:3").read_text().splitlines() == [
        "0",
        "1" + " word" * 5,
        "2" + " word" * 10,
    ]
    short = places.texts("wiki-short:3").read_text().splitlines()
    assert [line[0] for line in short] == ["0", "1", "2"]
    assert places.texts("theirs.txt") == data / "theirs.txt"
    assert places.texts("theirs.txt:2").read_text() == "a\u2028b\nb\x85\n"
    assert len(places.texts("docs:40").read_text().splitlines()) == 40
    made = places.texts("wiki:3").stat().st_mtime_ns
    assert places.texts("wiki:3").stat().st_mtime_ns == made  # made once


@pytest.mark.parametrize(
    "name",
    [
        "wiki-short:4",
        "wiki:8",
        pytest.param("docs:1000000", marks=pytest.mark.slow),
        "theirs.txt:4",
    ],
)
def test_fewer_sentences_than_were_asked_for_are_no_corpus(
    data: Path, tmp_path: Path, name: str
) -> None:
    places = DataRegistry(data, tmp_path / "made")
    with pytest.raises(InputError, match=f"{name}: there are only [0-9,]+ such sentences here"):
        places.texts(name)
    assert not list((tmp_path / "made").glob("*"))


@pytest.mark.parametrize("name", ["wiki", "wiki:", "wiki:many", "docs:0", "wiki-short:-1"])
def test_a_corpus_has_a_number_of_sentences(data: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="with a number of sentences"):
        DataRegistry(data, tmp_path).texts(name)


def test_what_is_missing_says_what_it_is(data: Path, tmp_path: Path) -> None:
    without, here = DataRegistry(None, tmp_path), DataRegistry(data, tmp_path)
    assert without.missing("wiki:3") == "wiki:3: no folder of data was given (--data DIR)"
    assert here.missing("wiki:3") is None
    assert here.missing("sts") == f"sts: there is no {data / 'sts'}"
    for name in ("docs", "docs:40", "digits", "scratch", "all-MiniLM-L6-v2"):
        assert without.missing(name) is None
    with pytest.raises(InputError, match=r"cifar10: there is no .*; see docs/reproduce\.md"):
        here.images("cifar10")
    assert without.images("digits") == "digits"


def test_the_long_tail_of_flowers_is_made_of_flowers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = DataRegistry(tmp_path, tmp_path / "made")
    assert "flowers102" in str(places.missing("flowers102-long-tailed"))
    (tmp_path / "flowers102").mkdir()
    assert places.missing("flowers102-long-tailed") is None
    made = []
    monkeypatch.setattr(
        flowers_tail, "write_long_tail", lambda source, folder: made.append((source, folder))
    )
    folder = places.images("flowers102-long-tailed")
    assert made == [(tmp_path / "flowers102", tmp_path / "made" / "flowers102-long-tailed")]
    assert folder == str(made[0][1])


def test_encoders_are_folders_installed_or_of_the_hub(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = DataRegistry(data, tmp_path)
    assert places.missing_encoder("scratch") == []
    assert places.missing_encoder("bert") == []
    assert places.encoder("bert") == str(data / "bert")
    assert places.encoder("bert-base-uncased") == "bert-base-uncased"
    (lacking,) = places.missing_encoder("standin-mlm")
    assert "there is no" in lacking
    (lacking,) = places.missing_encoder("bert-base-uncased")
    assert "of the Hugging Face hub, or a folder of that name" in lacking
    asked = []

    def resolve(name: str) -> Path:
        asked.append(name)
        if name == "bert-large":
            raise InputError("the hub cannot be reached")
        return tmp_path

    monkeypatch.setattr(module, "resolve", resolve)
    module._fetched.cache_clear()
    fetching = DataRegistry(data, tmp_path, hub=True)
    assert fetching.missing_encoder("bert-base-uncased") == []
    assert fetching.missing_encoder("bert-large") == ["the hub cannot be reached"]
    assert fetching.missing_encoder("bert") == []
    assert fetching.missing_encoder("bert-large") == ["the hub cannot be reached"]
    assert asked == ["bert-base-uncased", "bert-large"]  # once each
    module._fetched.cache_clear()


@pytest.mark.slow  # reads the whole standard library
def test_scored_pairs_can_be_made_of_documentation(tmp_path: Path) -> None:
    places = DataRegistry(None, tmp_path)
    tasks = places.sts("docs")
    assert list(tasks) == list(TASKS)
    for (subset,) in tasks.values():
        assert len(subset.first) == len(subset.second) == len(subset.scores)
        assert set(subset.scores.tolist()) == {0.0, 2.0, 5.0}
    assert places.sts_dev("docs").first == tasks[TASKS[5]][0].first
    transfer = places.transfer("docs", TRANSFER[:2])
    assert list(transfer) == list(TRANSFER[:2])
    labels = [label for part in transfer["CR"].splits.values() for label in part.labels.tolist()]
    assert labels.count(0) == labels.count(1) > 100
