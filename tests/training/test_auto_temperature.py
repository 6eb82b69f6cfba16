"""``--objective.temperature auto``: the audit's number, in the settings of the run."""

from pathlib import Path
from typing import Any

import pytest
import yaml

import isotrope
from isotrope.core.errors import InputError
from isotrope.training import auto_temperature
from isotrope.training.fit_text import fit
from isotrope.training.recipe_facts import TEMPERATURE
from isotrope.training.settings import TrainSettings
from isotrope.training.text_encoder import encoder_of
from tests.refused import refused_setting
from tests.training.conftest import sentences
from tests.training.interrupted import power_cut

PAIRS = [*zip(sentences(64), sentences(64, seed=1), strict=True)]


@pytest.fixture
def given(quick: dict[str, Any]) -> dict[str, Any]:
    own = {key: value for key, value in quick.items() if key != "files"}
    own |= {"head": "none", "max_steps": 3, "checkpoint_every": 1}
    return {**own, "files": PAIRS, "objective_settings": {"temperature": "auto"}}


def begun(folder: Path) -> dict[str, Any]:
    config = yaml.safe_load((folder / "config.yaml").read_text())
    return {k: v for k, v in config.items() if k.startswith("objective.")}


def test_the_audit_measures_the_temperature_of_a_training_without_flags(given) -> None:
    audit = isotrope.audit(PAIRS, encoder=given["encoder"], dev=None)
    assert audit.objective.hyperparameters()["temperature"] == TEMPERATURE
    assert f"temperature ({TEMPERATURE})" in str(audit)


def test_it_is_the_number_of_the_audit(given: dict[str, Any], capsys) -> None:
    outcome = fit(**given)
    audit = isotrope.audit(
        PAIRS, encoder=given["encoder"], batch_size=given["batch_size"], dev=None, seed=7
    )
    value = audit.recommended["temperature"]
    assert begun(outcome.output) == {"objective.temperature": value}
    (recommended,) = audit.recommendations
    assert f"temperature {value:g} for infonce: {recommended.reason}" in capsys.readouterr().err
    card = (outcome.output / "model" / "README.md").read_text()
    assert f"| settings | temperature {value:g}," in card


def test_a_resumed_run_goes_on_with_the_number(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with power_cut(2):
        fit(**given)
    number = begun(Path(given["output"]))
    # another would be recommended now
    monkeypatch.setattr(auto_temperature, "recommend", lambda table: pytest.fail("audited again"))
    resumed = fit(**given, resume=True)
    assert begun(resumed.output) == number
    assert fit(**given, resume=True).result.metrics["steps"] == 3  # of a finished run
    with pytest.raises(InputError, match="objective_settings was"):
        fit(**{**given, "objective_settings": {"temperature": 0.9}}, resume=True)


def test_each_data_set_has_its_own(given: dict[str, Any]) -> None:
    near = [(text, text + " and") for text in sentences(64, seed=3)]
    own = {**given, "files": {"qa": PAIRS, "near": near}, "max_steps": 1}
    found = begun(fit(**own).output)
    assert set(found) == {"objective.qa.temperature", "objective.near.temperature"}
    assert all(isinstance(value, float) for value in found.values())


def test_a_sweep_tries_it_beside_numbers(
    given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS))
    own = {k: v for k, v in given.items() if k not in ("output", "seed", "progress", "files")}
    own |= {"objective_settings": {}, "max_steps": 1}
    vary = {"objective.temperature": ["auto", 0.9]}
    shared = {"vary": vary, "seeds": (7,), "metric": "seconds", "output": tmp_path / "sweep"}
    with pytest.raises(InputError, match=r"add head=.none., or give a number"):
        isotrope.sweep(file, **shared, **{**own, "head": "mlp"})
    assert not (tmp_path / "sweep" / "runs").exists()
    first = isotrope.sweep(file, **shared, **own)
    runs = sorted((tmp_path / "sweep" / "runs").iterdir())
    numbers = {float(begun(run)["objective.temperature"]) for run in runs}
    audit = isotrope.audit(
        file, encoder=given["encoder"], batch_size=given["batch_size"], dev=None, seed=7
    )
    assert numbers == {0.9, audit.recommended["temperature"]}
    monkeypatch.setattr(auto_temperature, "recommend", lambda table: pytest.fail("audited again"))
    again = isotrope.sweep(file, **shared, **own)
    assert again.details["best"] == first.details["best"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"head": "mlp"}, "the audit embeds texts without a head"),
        ({"encoder": "scratch"}, "the audit needs a trained encoder, but encoder='scratch'"),
        ({"objective": "mpt"}, "cannot recommend a temperature for mpt"),
        ({"objective": "dcl"}, "cannot recommend a temperature for dcl"),
        ({"objective": "vicreg"}, "vicreg"),
        (
            {"files": [("the same", text) for text in sentences(8)]},
            "no anchor has a negative",
        ),
        ({"objective_settings": {"temperature": "car"}}, "a number; found 'car'"),
        ({"files": PAIRS[:1]}, "at least 2 rows with text"),
    ],
)
def test_what_has_no_recommendation_is_refused(
    changed: dict[str, Any], message: str, given: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match=message):
        fit(**{**given, **changed})
    assert not Path(given["output"]).exists()


def test_several_processes_of_others_are_refused(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_temperature, "launched_processes", lambda: (2, 2))
    remedy = "run `isotrope audit` first, and give the temperature that it recommends"
    with refused_setting("objective.temperature", remedy=remedy):
        fit(**given)


def test_a_folder_that_is_taken_is_refused_before_anything_is_embedded(
    given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS))
    settings = TrainSettings.read({**given, "files": [str(file)]})
    Path(settings.output).mkdir()
    (Path(settings.output) / "notes.txt").write_text("mine")
    monkeypatch.setattr(auto_temperature, "encoder_of", lambda _: pytest.fail("loaded"))
    with pytest.raises(InputError, match="has files, but no run"):
        auto_temperature.with_temperature(settings, resume=False)
    assert encoder_of(settings)
