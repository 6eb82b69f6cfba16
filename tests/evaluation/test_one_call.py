import numpy as np
import pytest

import isotrope
from isotrope.core.errors import InputError
from isotrope.data.sts_sets import _LAYOUT

from .conftest import Table


@pytest.fixture
def folder(tmp_path):
    """A small STS folder of invented pairs, all files of the layout."""
    for task, (room, names) in _LAYOUT.items():
        (tmp_path / room).mkdir()
        for name in names:
            rows = [f"{i % 5}\t{task} boat {i}\t{name} mill {i}" for i in range(6)]
            (tmp_path / room / f"{name}.tsv").write_text("\n".join(rows) + "\n")
    return tmp_path


@pytest.fixture
def pairs(tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"query {i}\tanswer {i}\n" for i in range(12)))
    return file


def test_a_saved_model_by_its_path(tiny, folder, pairs, tmp_path):
    tiny.save(tmp_path / "model")
    both = isotrope.evaluate(tmp_path / "model", sts=folder, retrieval=pairs, device="cpu")
    alone = isotrope.evaluate(tiny, sts=str(folder))
    found = isotrope.evaluate(tiny, retrieval=str(pairs))
    assert both.details == alone.details | found.details
    assert both.metrics == alone.metrics | found.metrics
    assert (both.kind, alone.kind, found.kind) == ("sts+retrieval", "sts", "retrieval")
    assert both.name == str(tmp_path / "model")
    with pytest.raises(InputError, match="no pooling 'median'"):
        isotrope.evaluate(tmp_path / "model", retrieval=pairs, pooling="median")


def test_any_encoder(pairs):
    rng = np.random.default_rng(0)
    names = [f"{kind} {i}" for kind in ("query", "answer") for i in range(12)]
    table = Table({name: rng.normal(size=3) for name in names})
    assert isotrope.evaluate(table, retrieval=pairs, batch_size=4).name == "table"
    assert table.calls[0][1] == 4


def test_nothing_to_evaluate_on():
    with pytest.raises(InputError, match="nothing to evaluate on: give the folder of the STS"):
        isotrope.evaluate("all-MiniLM-L6-v2")


def test_the_data_are_looked_at_before_the_model(tmp_path):
    with pytest.raises(InputError, match="no such folder of STS sets"):
        isotrope.evaluate("no/such-model", sts=tmp_path / "nowhere")
