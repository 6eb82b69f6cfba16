"""Several data sets in one training: their names, and whose batch each step has."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from isotrope.core.errors import InputError
from isotrope.data.sources import dataset_files
from isotrope.data.text.batches import Batches, DatasetMixture
from isotrope.paradigm.declared import objectives_by_dataset

STORES = {"qa": range(43), "nli": range(21)}  # 10 and 5 batches of 4


def test_in_proportion_every_batch_comes_once_an_epoch_in_another_order() -> None:
    mixture = DatasetMixture(STORES, 4, "proportional", 1)
    assert mixture.steps_per_epoch == 15
    orders = []
    for epoch in (0, 1):
        drawn = [mixture.at(15 * epoch + step) for step in range(15)]
        assert sorted((d.dataset, d.number) for d in drawn) == [
            *(("nli", i) for i in range(5)),
            *(("qa", i) for i in range(10)),
        ]
        for name, size in (("qa", 40), ("nli", 20)):
            seen = np.concatenate([d.indices for d in drawn if d.dataset == name])
            assert len(set(seen.tolist())) == size
        orders.append([(d.dataset, d.number) for d in drawn])
    assert orders[0] != orders[1]
    other = DatasetMixture(STORES, 4, "proportional", 2)
    assert orders[0] != [(d.dataset, d.number) for d in map(other.at, range(15))]


def test_in_turn_the_larger_one_continues_where_it_was() -> None:
    mixture = DatasetMixture(STORES, 4, "round-robin", 1)
    assert mixture.steps_per_epoch == 10  # the smaller has five batches
    drawn = [mixture.at(step) for step in range(20)]
    assert [d.dataset for d in drawn] == ["qa", "nli"] * 10
    of_qa = np.concatenate([d.indices for d in drawn if d.dataset == "qa"])
    assert len(set(of_qa.tolist())) == 40  # two epochs of the smaller, one of the larger
    counts = Counter(np.concatenate([d.indices for d in drawn[1::2]]).tolist())
    assert set(counts.values()) <= {1, 2}
    assert sum(counts.values()) == 40


@pytest.mark.parametrize("sampling", ["proportional", "round-robin"])
def test_one_data_set_is_as_it_was(sampling: str) -> None:
    mixture = DatasetMixture({"": STORES["qa"]}, 4, sampling, 1)  # type: ignore[arg-type]
    assert mixture.steps_per_epoch == 10
    for step in (0, 3, 12):
        name, number, indices = mixture.at(step)
        assert (name, number) == ("", step)
        assert indices.tolist() == Batches(STORES["qa"], 4, 1).at(step).tolist()


def test_names_of_data_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("split=train").mkdir()
    assert dataset_files(["split=train", "b.tsv"]) == {"": ["split=train", "b.tsv"]}
    assert dataset_files(["data/split=x/a.tsv"]) == {"": ["data/split=x/a.tsv"]}
    with pytest.raises(
        InputError, match=r"give 'b.tsv' a name too, as NAME=FILE: the other data sets have"
    ):
        dataset_files(["qa=a.tsv", "b.tsv"])


def test_settings_of_one_data_set_win_over_those_of_all() -> None:
    own = objectives_by_dataset("met", {"nli.margin": 0.3, "margin": 0.5}, ["qa", "nli"])
    assert own == {"qa": ("met", {"margin": 0.5}), "nli": ("met", {"margin": 0.3})}


@pytest.mark.parametrize(
    ("objective", "settings", "message"),
    [
        ("qa=met", {}, "nli is not a data set with an objective; the data sets are qa, nli"),
        ("qa=met,nli=met,x=met", {}, "x is not a data set with an objective"),
        ("met", {"x.margin": 1.0}, "x is not a data set with an objective"),
        (
            "qa=met,nli=met",
            {"margin": 1.0},
            "name the data set too, such as objective_settings={.qa",
        ),
    ],
)
def test_objectives_that_fit_no_data_set(
    objective: str, settings: dict[str, float | str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        objectives_by_dataset(objective, settings, ["qa", "nli"])
