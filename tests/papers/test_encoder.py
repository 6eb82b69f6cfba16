"""Raw encoders: what is masked, that a stopped run ends as it would have, and the gates."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

import isotrope
from isotrope.core import InputError, Result
from isotrope.data import Subset, load_sts_file
from papers import encoder, gpu
from papers.machinery.data_registry import STORED, DataRegistry
from papers.pretraining import MaskedLM, PretrainingRecipe, Tokens, masked, rate_at
from papers.stages import RESULTS

WORDS = ["river", "stone", "cloud", "engine", "garden", "mirror", "ocean", "paper", "rocket"]
TINY = PretrainingRecipe(
    layers=1,
    width=64,
    steps=6,
    batch_size=16,
    max_length=12,
    vocabulary=120,
    learning_rate=0.05,
    warmup=2,
    every=2,
)
ANY = {"dev": (-100.0, 100.0)}
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def texts(count: int = 60) -> list[str]:
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=draw.randint(4, 9))) for _ in range(count)]


def dev() -> Subset:
    first, second = texts(12), [*texts(15)[3:]]
    return Subset("STS-B", "made up", "dev", np.arange(12.0), first, second)


def made(folder: Path, tell=lambda line: None, **more) -> Result:
    own = {"seed": 3, "dev": dev(), "reference": texts(20), "tell": tell, "limits": ANY}
    return encoder.make("raw-1x64", TINY, texts(), folder, **{**own, **more})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    folder = tmp_path_factory.mktemp("whole") / "raw"
    return made(folder), folder


def test_15_percent_are_masked_as_bert_does_it_and_special_tokens_never():
    ids = torch.randint(0, 100, (400, 50), generator=torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(1)
    seen, where = masked(ids, share=0.15, size=100, mask=4, draw=draw)
    plain = ids >= 5
    assert not (where & ~plain).any()
    assert torch.equal(seen[~where], ids[~where])
    assert float(where[plain].double().mean()) == pytest.approx(0.15, abs=0.01)
    chosen, was = seen[where], ids[where]
    assert float((chosen == 4).double().mean()) == pytest.approx(0.8, abs=0.02)
    assert float((chosen == was).double().mean()) == pytest.approx(0.1, abs=0.02)
    assert int(chosen[chosen != 4].min()) >= 5


def test_the_rate_rises_and_falls_to_nothing():
    recipe = PretrainingRecipe(layers=1, width=64, steps=10, warmup=4, learning_rate=1.0)
    assert [rate_at(recipe, step) for step in (0, 3, 4, 7, 9)] == [0.25, 1.0, 1.0, 0.5, 1 / 6]


def test_a_batch_is_a_function_of_seed_and_step_and_of_one_length():
    starts = np.concatenate([[0], np.cumsum(np.arange(1000) % 7 + 3)])
    tokens = Tokens(np.arange(starts[-1]), starts)
    recipe = PretrainingRecipe(layers=1, width=64, steps=10, batch_size=8)
    batches = {step: tokens.batch(recipe, 0, step) for step in (0, 1, 49, 50)}
    again = tokens.batch(recipe, 0, 50)
    assert all(np.array_equal(a, b) for a, b in zip(batches[50], again, strict=True))
    assert all(len({len(row) for row in batch}) <= 2 for batch in batches.values())
    first = {int(row[0]) for batch in batches.values() for row in batch}
    assert len(first) > 30, "other sentences at other steps"
    assert not np.array_equal(tokens.batch(recipe, 1, 0)[0], batches[0][0])


def test_a_run_that_was_stopped_ends_as_it_would_have_ended(
    whole: tuple[Result, Path], tmp_path: Path
):
    class Stopped(Exception):
        pass

    def stop(line: str) -> None:
        raise Stopped

    folder = tmp_path / "raw"
    for _ in range(2):  # a line comes before its checkpoint: at step 2, and again
        with pytest.raises(Stopped):
            made(folder, stop)
        assert not folder.exists()
    lines: list[str] = []
    found = made(folder, lines.append)
    assert [line.partition(",")[0] for line in lines] == ["step 2", "step 4", "step 6"]
    assert found.details["fingerprint"] == whole[0].details["fingerprint"]
    assert not list(tmp_path.glob("*.part"))


def test_a_run_goes_on_from_its_checkpoint(whole: tuple[Result, Path], tmp_path: Path):
    class Stopped(Exception):
        pass

    def stop(line: str) -> None:
        if line.startswith("step 4"):
            raise Stopped

    folder, lines = tmp_path / "raw", list[str]()
    with pytest.raises(Stopped):
        made(folder, stop)
    found = made(folder, lines.append)
    assert [line.partition(",")[0] for line in lines] == ["step 4", "step 6"]
    assert found.details["fingerprint"] == whole[0].details["fingerprint"]
    assert found.details["course"] == whole[0].details["course"]


def test_what_is_left_opens_as_an_encoder_that_pools_by_cls(whole: tuple[Result, Path]):
    result, folder = whole
    loaded = isotrope.load(folder)
    assert (loaded.pooling, loaded.dimension) == ("cls", 64)
    assert loaded.fingerprint() == result.details["fingerprint"]
    assert Result.load(folder / "record.json").metrics == result.metrics
    assert result.provenance["command"][:4] == ["python", "-m", "papers", "encoder"]
    assert {"dev", "mean cosine", "dev whitened", "mean pooling: dev"} <= set(result.metrics)
    assert [row["step"] for row in result.details["course"]] == [2, 4, 6]


def test_the_last_checkpoint_that_passes_is_what_is_left(
    whole: tuple[Result, Path], tmp_path: Path
):
    rows = whole[0].details["course"]
    assert whole[0].metrics["step"] == 6
    assert rows[2]["dev"] != rows[1]["dev"] != rows[0]["dev"]
    middle = {"dev": (rows[1]["dev"], rows[1]["dev"])}
    found = made(tmp_path / "raw", limits=middle)
    assert found.metrics["step"] == 4
    assert found.metrics["dev"] == pytest.approx(rows[1]["dev"], abs=1e-4)
    assert found.details["fingerprint"] != whole[0].details["fingerprint"]


def test_without_one_that_passes_there_is_no_encoder(tmp_path: Path):
    with pytest.raises(InputError, match="no checkpoint of raw-1x64 passes the gates"):
        made(tmp_path / "raw", limits={"dev": (101.0, 102.0)})
    assert not (tmp_path / "raw").exists()


def test_one_that_is_there_is_not_made_again(whole: tuple[Result, Path]):
    lines: list[str] = []
    assert made(whole[1], lines.append).metrics == whole[0].metrics
    assert not lines


def test_the_seed_decides_the_encoder(whole: tuple[Result, Path], tmp_path: Path):
    other = made(tmp_path / "raw", seed=4)
    assert other.details["fingerprint"] != whole[0].details["fingerprint"]


def test_a_batch_with_nothing_to_fill_in_teaches_nothing(whole: tuple[Result, Path]):
    loaded = isotrope.load(whole[1])
    ids = torch.full((2, 3), 7)
    model = MaskedLM(loaded.model[0].model, 64, len(loaded.tokenizer))
    loss = model(ids, torch.ones_like(ids), ids, torch.zeros_like(ids, dtype=torch.bool))
    loss.backward()
    assert loss.item() == 0
    assert all(not p.grad.any() for p in model.parameters() if p.grad is not None)


def test_both_gates_must_be_passed():
    assert encoder.passes_gates({"dev": 20.0, "mean cosine": 0.99})
    assert not encoder.passes_gates({"dev": 45.1, "mean cosine": 0.8})
    assert not encoder.passes_gates({"dev": 30.0, "mean cosine": 0.5})
    assert not encoder.passes_gates({"dev": 30.0})


def test_without_data_it_says_what_is_missing(tmp_path: Path):
    with pytest.raises(InputError, match=r"there is no .*wiki_en_1m.txt.gz: --data names"):
        encoder.run(["raw-2x128-pmi", "--data", str(tmp_path)])


def test_a_raw_encoder_that_is_not_there_is_named_with_its_command(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    places = DataRegistry(None, tmp_path)
    for name, command, made in (
        ("raw-2x128-pmi-seed1", "encoder raw-2x128-pmi --seed 1", "raw-2x128-pmi-seed1"),
        ("raw-4x256-pmi", "encoder raw-4x256-pmi --seed 0", "raw-4x256-pmi-seed0"),
        (gpu.NAME, "gpu", gpu.NAME),
    ):
        told = f"{name}: `python -m papers {command}` makes {made}"
        assert places.missing_encoder(name) == [told]
    (tmp_path / "isotrope/papers/encoders/raw-2x128-pmi-seed1").mkdir(parents=True)
    assert places.missing_encoder("raw-2x128-pmi-seed1") == []
    assert places.encoder("raw-2x128-pmi-seed1").endswith("encoders/raw-2x128-pmi-seed1")


RECORDS = sorted((RESULTS / "encoders").glob("*.json"))


@pytest.mark.parametrize("file", RECORDS, ids=lambda file: file.stem)
def test_the_records_pass_the_gates(file: Path):
    assert encoder.passes_gates(Result.load(file).metrics)


@pytest.mark.parametrize("folder", sorted(STORED.iterdir()), ids=lambda folder: folder.name)
def test_an_encoder_in_the_repository_is_the_recorded_one_and_raw(folder: Path):
    record = Result.load((RESULTS / "encoders") / f"{folder.name}.json")
    assert isotrope.load(folder).fingerprint() == record.details["fingerprint"]
    assert DataRegistry(None, folder).encoder(folder.name) == str(folder)
    pairs = DATA / "sts/stsb/dev.tsv"
    if not pairs.is_file():
        pytest.skip("STS-B is not part of the repository")
    measured = encoder.gates(folder, load_sts_file(pairs), texts(200))
    low, high = encoder.GATES["dev"]
    assert low <= measured["dev"] <= high
    assert measured["dev"] == pytest.approx(float(record.metrics["dev"] or 0), abs=0.01)


def test_weights_have_11_bits(whole: tuple[Result, Path]):
    weights = list(isotrope.load(whole[1]).model.parameters())
    assert all(torch.equal(weight, weight.half().float()) for weight in weights)
