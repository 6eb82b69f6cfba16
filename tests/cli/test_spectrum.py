"""``isotrope spectrum`` end to end: on a tiny run of images and one of text."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import isotrope
from isotrope.core.views import Views
from isotrope.training.rebuild import rebuild
from tests.image_run import write_pictures
from tests.training.conftest import sentences
from tests.training.tiny_images import SMALL

QUICK = ("--iterations", 6, "--batch-size", 6, "--device", "cpu")


def trained(folder: Path, **settings: Any) -> Path:
    quick = {
        "encoder": "resnet9",
        "width": 2,
        "method_settings": SMALL["simclr"],
        "batch_size": 12,
        "max_steps": 5,
        "checkpoint_every": 2,
        "weight_decay": 0.05,
        "progress": False,
    }
    pictures = write_pictures(folder / "pictures.npz", test=False, labels=False)
    isotrope.fit_images(pictures, output=folder / "run", **{**quick, **settings})
    return folder / "run"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("images"))


def files(run: Path) -> dict[str, bytes]:
    return {f.name: f.read_bytes() for f in (run / "spectrum").iterdir() if f.suffix != ".npz"}


def test_what_it_prints_and_writes(run, images: Path) -> None:
    found = run("spectrum", images, *QUICK, "--no-progress")
    assert found.code == 0, found.err
    for said in (
        "run, step 4 of 5: ntxent by simclr",
        "head as trained",
        "1 batch of 6; batch norm: batch statistics; no weight decay",
        "lambda_max",
        "of 6 Ritz values",
        "strict saddle or slope",
        "1/lambda_max",
    ):
        assert said in found.out
    assert set(files(images)) == {f"step-4.{suffix}" for suffix in ("json", "csv", "svg", "png")}
    assert str(images / "spectrum" / "step-4.svg") in found.out
    with (images / "spectrum" / "step-4.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 6
    assert sum(float(row["weight"]) for row in rows) == pytest.approx(1, abs=1e-6)
    record = json.loads((images / "spectrum" / "step-4.json").read_text())
    assert record["metrics"]["lambda_max"] == pytest.approx(float(rows[-1]["ritz_value"]))
    assert record["details"]["hessian"]["asked"]["iterations"] == 6


def test_the_same_again_is_the_same_to_the_bit(run, images: Path) -> None:
    """Also from nothing: what a finished process left is not needed."""
    command = ("spectrum", images, *QUICK, "--seeds", 3, "--no-progress")
    assert run(*command).code == 0
    before = files(images)
    assert run(*command).code == 0
    for state in (images / "spectrum").glob("*.npz"):
        state.unlink()
    assert run(*command).code == 0
    again = files(images)
    for name in ("step-4.csv", "step-4.svg", "step-4.png"):
        assert again[name] == before[name]


def test_interrupted_it_goes_on(run, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from isotrope.diagnostics.curvature import Hessian

    command = ("spectrum", images, *QUICK, "--seeds", 7, "--json")
    plain, done = Hessian.__matmul__, []

    def product(self: Hessian, vector: Any) -> Any:
        if len(done) == 4:
            raise KeyboardInterrupt
        done.append(None)
        return plain(self, vector)

    with monkeypatch.context() as patched:
        patched.setattr(Hessian, "__matmul__", product)
        assert run(*command).code == 130
    done.clear()
    with monkeypatch.context() as patched:
        patched.setattr(Hessian, "__matmul__", product)
        assert run(*command).code == 0
    assert len(done) == 2


@pytest.mark.slow
def test_seeds_say_how_much_it_is_worth(run, images: Path) -> None:
    options = ("--seeds", 0, 1, 2, "--probes", 2, "--batches", 2)
    found = run("spectrum", images, *QUICK, *options, "--json")
    (record,) = json.loads(found.out)["spectra"]
    spread, seeds = record["details"]["spread"]["lambda_max"], record["details"]["seeds"]
    assert set(seeds) == {"0", "1", "2"}
    values = [row["lambda_max"] for row in seeds.values()]
    assert len({*values}) == 3
    assert (spread["min"], spread["max"]) == (min(values), max(values))
    assert spread["mean"] == pytest.approx(sum(values) / 3)
    table = run("spectrum", images, *QUICK, *options).out
    assert "2 batches of 6" in table
    assert "max of 3 seeds" in table


@pytest.mark.slow
def test_flags_change_what_they_name(run, images: Path) -> None:
    def numbers(*flags: object) -> dict[str, Any]:
        found = run("spectrum", images, *QUICK, "--seeds", 11, *flags, "--json")
        assert found.code == 0, found.err
        return json.loads(found.out)["spectra"][0]["metrics"]

    plain = numbers()
    decayed = numbers("--weight-decay")
    assert decayed["lambda_max"] - plain["lambda_max"] == pytest.approx(0.05, rel=0.02)
    assert numbers("--batch-norm", "running")["loss"] != plain["loss"]
    assert numbers("--no-keep-graph")["lambda_max"] == plain["lambda_max"]
    assert numbers("--threshold", 1e9)["flat"] > plain["flat"]
    assert numbers("--iterations", 3)["ritz_values"] == 3
    said = run("spectrum", images, *QUICK, "--optimum", -5).out
    assert "towards a loss of -5: mean rate" in said
    assert "directions of escape, steepest first: -" in said


def test_checkpoints_in_one_picture(run, images: Path) -> None:
    names = [images / "checkpoints" / f"{name}.ckpt" for name in ("previous", "last")]
    asked = [part for name in names for part in ("--checkpoint", name)]
    found = run("spectrum", images, *asked, *QUICK, "--json")
    value = json.loads(found.out)
    assert [one["metrics"]["step"] for one in value["spectra"]] == [2, 4]
    assert value["compared"] is None
    assert {"comparison.svg", "step-2.svg", "step-4.svg"} <= set(files(images))


def test_two_networks_by_the_papers_hypotheses(run, images: Path, tmp_path: Path) -> None:
    other = trained(tmp_path, width=4)
    found = run("spectrum", images, other, *QUICK)
    assert found.code == 0, found.err
    assert any(found.out.count(said) for said in ("H0 rejected", "H0 stands", "neither: "))
    assert "they add up to the iterations: no evidence" in found.out


def test_text_and_a_run_without_checkpoint(run, tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("\n".join(sentences(40)), encoding="utf-8")
    settings = {"encoder": "scratch", "batch_size": 8, "max_steps": 2, "progress": False}
    isotrope.fit(tmp_path / "corpus.txt", output=tmp_path / "run", **settings)
    found = run("spectrum", tmp_path / "run", *QUICK)
    assert found.code == 0, found.err
    assert "head none: the run kept no checkpoint" in found.out
    assert "batch norm: none" in found.out
    assert "adamw scales its steps" in found.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere is no run folder"),
        (["RUN", "--iterations", "0"], "--iterations must be 1 or more; found 0"),
        (["RUN", "--probes", "0"], "--probes must be 1 or more"),
        (["RUN", "--batches", "-1"], "--batches must be 1 or more"),
        (
            ["RUN", "--seeds", "1", "1"],
            "whole numbers from 0 to 2^63 - 1; found [1, 1]",
        ),
        (
            ["RUN", "--seeds", "-1"],
            "whole numbers from 0 to 2^63 - 1; found [-1]",
        ),
        (["RUN", "--threshold", "0"], "--threshold must be above 0 and finite; found 0"),
        (["RUN", "--batch-size", "1"], "--batch-size must be 2 or more; found 1"),
        (["RUN", "--width", "0"], "--width must be above 0 and finite; found 0"),
        (["RUN", "--batch-norm", "none"], "invalid choice: 'none'"),
        (["RUN", "RUN", "--checkpoint", "x"], "--checkpoint is for a single run"),
        (["RUN", "--checkpoint", "x.ckpt"], "x.ckpt is no checkpoint that can be read"),
        (["RUN", "--optimum", "1e9", *map(str, QUICK)], "must be below the loss here"),
        ([], "the following arguments are required: RUN"),
    ],
)
def test_bad_input_is_one_line(run, images: Path, arguments: list[str], message: str) -> None:
    found = run("spectrum", *[str(images) if a == "RUN" else a for a in arguments])
    assert found.code == 2
    assert message in found.err
    assert len(found.err.splitlines()) == 1


def test_a_missing_extra_names_itself(run, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "isotrope.reports.spectra", raising=False)
    found = run("spectrum", images, *QUICK)
    assert found.code == 2
    assert "pip install '.[report]'" in found.err


def test_by_embeddings_it_is_the_objectives_own_curvature(run, images: Path) -> None:
    """NT-Xent on the 2 x 6 raw projections of a batch, against the dense Hessian of the same."""
    command = ("spectrum", images, *QUICK, "--by", "embeddings", "--no-progress")
    found = run(*command, "--iterations", 500)
    assert found.code == 0, found.err
    assert "numbers in its embeddings" in found.out
    assert "each embedding free" in found.out
    assert "1/lambda_max" not in found.out
    record = json.loads((images / "spectrum" / "step-4-embeddings.json").read_text())
    seen = rebuild(images, batch_size=6, device="cpu")
    with torch.no_grad():
        (views,) = seen.terms[0]()
    rows = torch.cat([views.anchors, views.positives]).double()

    def loss(flat: torch.Tensor) -> torch.Tensor:
        return seen.objective.loss(Views(*flat.view_as(rows).chunk(2)), backend="eager")

    dense = torch.autograd.functional.hessian(loss, rows.flatten())
    values = torch.linalg.eigvalsh(dense)
    assert record["metrics"]["parameters"] == rows.numel()
    assert record["metrics"]["lambda_max"] == pytest.approx(float(values[-1]), rel=1e-4)
    assert record["metrics"]["lambda_min"] == pytest.approx(float(values[0]), rel=1e-4)


@pytest.mark.parametrize("flag", [("--batches", 2), ("--weight-decay",)])
def test_what_embeddings_have_not(run, images: Path, flag: tuple[object, ...]) -> None:
    found = run("spectrum", images, *QUICK, "--by", "embeddings", *flag)
    assert found.code == 2
    assert f"{flag[0]} is of a spectrum by parameters" in found.err
