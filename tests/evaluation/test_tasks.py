"""The transfer tasks within ``isotrope.evaluate``; what stops before encoding."""

import numpy as np
import pytest

import isotrope
from isotrope.core.errors import InputError
from isotrope.data.text import transfer_sets
from isotrope.evaluation.compare import compare_results

from ..refused import refused_setting
from .conftest import Table
from .test_transfer import encoder_of, task


class Failing(Table):
    """An encoder that stops at its n-th call."""

    def __init__(self, vectors, calls=10**9):
        super().__init__(vectors)
        self._left = calls

    def fingerprint(self):
        return "failing"

    def encode(self, texts, batch_size=32, progress=False):
        self._left -= 1
        if self._left < 0:
            raise KeyboardInterrupt
        return super().encode(texts, batch_size, progress)


@pytest.fixture
def tasks(monkeypatch):
    """Seven small tasks in place of the folder's."""
    found = {name: task(name, seed=i) for i, name in enumerate(transfer_sets.TASKS)}
    monkeypatch.setattr(
        transfer_sets,
        "load_transfer",
        lambda path, only: {name: found[name] for name in only or found},
    )
    return found


def test_transfer_goes_on_where_it_stopped(tasks, cache):
    vectors = encoder_of(*tasks.values()).vectors
    options = {"mode": "prototyping", "results": None}
    whole = isotrope.evaluate(Table(vectors), transfer="a", **options)
    with pytest.raises(KeyboardInterrupt):
        isotrope.evaluate(Failing(vectors, calls=3), transfer="a", mode="prototyping")
    kept = sorted(path.name.partition("-")[0] for path in cache.rglob("*.json"))
    assert kept == ["CR", "MR", "SUBJ"]

    encoder = Failing(vectors)
    result = isotrope.evaluate(encoder, transfer="a", mode="prototyping")
    assert len(encoder.calls) == 4
    assert result.provenance["reused"] == ["MR", "CR", "SUBJ"]
    assert result.details["tasks"] == whole.details["tasks"]
    assert result.metrics == whole.metrics
    assert result.details["transfer_average"] == whole.metrics["transfer_average"]
    assert "average" not in result.details  # that is the name of the other seven's
    assert result.details["mode"] == "prototyping"
    for name, right in whole.items.items():
        assert np.array_equal(result.items[name], right)
    columns = compare_results([result, result], resamples=20).details["columns"]
    assert list(columns) == [*tasks, "transfer_average"]
    assert all(column["percent"] for column in columns.values())


def test_some_of_the_transfer_tasks_have_no_average(tasks, cache):
    vectors = encoder_of(*tasks.values()).vectors
    result = isotrope.evaluate(
        Failing(vectors), transfer="a", mode="prototyping", only=["TREC", "MR"]
    )
    assert list(result.metrics) == ["TREC", "MR"]
    assert "transfer_average" not in result.details


def test_the_mode_is_part_of_what_was_done(tasks, cache):
    vectors = encoder_of(*tasks.values()).vectors
    isotrope.evaluate(Failing(vectors), transfer="a", mode="prototyping")
    encoder = Failing(vectors, calls=0)
    with pytest.raises(KeyboardInterrupt):
        isotrope.evaluate(encoder, transfer="a", mode="full")


def test_both_averages_stand_side_by_side(tasks, sts_folder):
    class Any:
        def encode(self, texts):
            return [[len(text), text.count("i"), ord(text[-1]), 1.0] for text in texts]

    found = isotrope.evaluate(Any(), sts=sts_folder, transfer="a", mode="prototyping")
    assert found.kind == "sts+transfer"
    assert len(found.details["tasks"]) == 14
    assert found.details["tasks"]["STS-B"]["spearman"] == found.metrics["STS-B"]
    assert found.details["tasks"]["MR"]["accuracy"] == found.metrics["MR"]
    assert {"average", "transfer_average"} <= set(found.details)
    assert found.details["data"].keys() == found.details["tasks"].keys()
    assert found.details["model"] == {"name": "Any", "fingerprint": None}


def test_bad_data_and_modes_stop_before_encoding(tasks, tmp_path):
    own = tmp_path / "own.tsv"
    own.write_text("1\ta\tb\n2\tc\td\n")
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("a\tb\nc\t\n")
    encoder = Failing({}, calls=0)
    with pytest.raises(
        InputError, match=r"pairs.tsv: remove or complete 1 row with an empty text .line 2."
    ):
        isotrope.evaluate(encoder, sts=own, retrieval=pairs)
    single = tmp_path / "single.txt"
    single.write_text("one text\n")
    with pytest.raises(InputError, match=r"single.txt: give pairs of a query and a document"):
        isotrope.evaluate(encoder, sts=own, retrieval=single)
    with refused_setting("mode", value="quick"):
        isotrope.evaluate(encoder, sts=own, transfer="a", mode="quick")
    with pytest.raises(
        InputError, match=r"pairs.tsv: remove or complete 1 row with an empty text .line 2."
    ):
        isotrope.evaluate(encoder, sts=own, labels=pairs)
    with refused_setting("labels_test", value=pairs):
        isotrope.evaluate(encoder, sts=own, labels_test=pairs)
