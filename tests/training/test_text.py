"""Training for real: small encoders, six steps, everything a run folder promises."""

import csv
import json
import random
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import isotrope
from isotrope.core.errors import CannotResume, InputError
from isotrope.core.result import Result
from isotrope.data.text.retrieval_sets import load_retrieval
from isotrope.diagnostics.metrics import columns
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.evaluation.dev_score import dev_metric_of_file
from isotrope.evaluation.retrieval import own_prompts, retrieval
from isotrope.measures.judgement import DevEvaluation, judgement_of
from isotrope.training import text_module
from isotrope.training.fit_text import fit
from isotrope.training.text import summary
from tests.refused import refused, refused_setting
from tests.training.conftest import sentences
from tests.training.interrupted import checkpoints, power_cut

COLUMNS = columns("text")
RETRIEVAL = "isotrope.evaluation.dev_score.retrieval_evaluation"


def hits(score: float) -> DevEvaluation:
    """Of 1,000 queries so many percent find their answer."""
    return DevEvaluation(score, (np.arange(1_000) < 10 * score).astype(float))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model" / "model.safetensors")


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="") as handle:
        return list(csv.DictReader(handle))


def test_a_run_folder_holds_what_it_promises(quick: dict) -> None:
    outcome = fit(**{**quick, "encoder": "scratch"}, dev="auto")
    folder = outcome.output
    assert outcome.exit_code == 0
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["max-steps"] == 6
    found = rows(folder)
    assert tuple(found[0]) == COLUMNS
    assert [int(row["step"]) for row in found] == [0, 2, 3, 4, 5, 6]
    assert [int(row["step"]) for row in found if row["dev"]] == [0, 3, 6]
    for row in found:
        if row["loss"]:
            assert float(row["alignment"]) > 0.001, "dropout makes the two views differ"
            assert 0 <= float(row["dissipation"]) <= 1
            assert float(row["samples_per_second"]) > 0
    result = json.loads((folder / "result.json").read_text())
    assert result["provenance"]["seed"] == 7
    assert result["provenance"]["versions"]["torch"]
    assert len(result["provenance"]["data"]) == 16
    assert result["details"]["data"]["holdout"] > 0
    best = max(float(row["dev"]) for row in found if row["dev"])
    assert result["metrics"]["dev_best"] == pytest.approx(best)
    assert list((folder / "tensorboard").glob("events*"))
    assert [path.name for path in checkpoints(folder)] == ["checkpoint-4", "checkpoint-2"]
    assert not (folder / "tokens").exists()


def test_the_model_loads_in_sentence_transformers(quick: dict) -> None:
    from sentence_transformers import SentenceTransformer

    outcome = fit(**quick, dev="auto")
    texts = ["a stone in the river", "a lantern on the bridge, seen from the harbor"]
    theirs = SentenceTransformer(str(outcome.output / "model"), device="cpu").encode(texts)
    ours = isotrope.load(outcome.output, device="cpu").encode(texts)
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
    card = (outcome.output / "model" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: sentence-transformers")
    assert "held-out MRR@10" in card


def test_one_seed_gives_the_same_weights_and_another_does_not(quick: dict, tmp_path: Path) -> None:
    folders = []
    for i, seed in enumerate((7, 7, 8)):
        folders.append(
            fit(**{**quick, "output": str(tmp_path / str(i)), "seed": seed, "max_steps": 2}).output
        )
    first, again, other = (weights(folder) for folder in folders)
    assert all(torch.equal(first[k], again[k]) for k in first)
    assert any(not torch.equal(first[k], other[k]) for k in first)


def test_resuming_equals_never_stopping(quick: dict, tmp_path: Path) -> None:
    """Weights bit for bit, and the same metrics; the interruption falls between checkpoints."""
    whole = fit(**quick, dev="auto").output
    broken = {**quick, "output": str(tmp_path / "broken"), "dev": "auto"}
    with power_cut(5):
        fit(**broken)
    torch.rand(3)  # whatever else happened to the global generator
    resumed = fit(**broken, resume=True).output
    first, second = weights(whole), weights(resumed)
    assert all(torch.equal(first[k], second[k]) for k in first)
    drop = "samples_per_second"
    assert [{k: v for k, v in row.items() if k != drop} for row in rows(whole)] == [
        {k: v for k, v in row.items() if k != drop} for row in rows(resumed)
    ]
    told, again = (
        Result.load(folder / "result.json").details["judgement"] for folder in (whole, resumed)
    )
    assert told == again
    assert set(told["numbers"]) == {"start", "saved", "last"}


def test_a_resumed_run_names_the_settings_that_changed(
    quick: dict, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = {**quick, "refit": True, "checkpoint_every": 2}
    with power_cut(5):
        fit(**begun)
    capsys.readouterr()
    fit(**{**begun, "refit": False, "checkpoint_every": 3}, resume=True)
    assert [
        x for x in capsys.readouterr().err.splitlines() if x.startswith("this resumed run")
    ] == [
        "this resumed run has `--checkpoint-every 3` in place of `--checkpoint-every 2`",
        "this resumed run has `--no-refit` in place of `--refit`",
    ]


def test_a_run_of_an_older_version_goes_on_with_empty_cells(
    quick: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column that metrics.csv did not have then is empty before the step of resuming."""
    with power_cut(5):
        fit(**quick)
    folder = Path(quick["output"])
    older = [column for column in COLUMNS if column not in ("std", "effective_rank")]
    kept = rows(folder)
    with (folder / "metrics.csv").open("w", newline="") as handle:
        writer = csv.DictWriter(handle, older, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept)
    found = rows(fit(**quick, resume=True).output)
    assert tuple(found[0]) == COLUMNS
    assert [bool(row["std"]) for row in found if row["loss"]] == [False, False, True, True]
    assert found[0] == {**kept[0], "std": "", "effective_rank": ""}


def test_resume_of_a_finished_run_does_nothing(quick: dict) -> None:
    first = fit(**quick)
    stamp = (first.output / "result.json").stat().st_mtime_ns
    again = fit(**quick, resume=True)
    assert again.exit_code == 0
    assert again.result == type(again.result).load(first.output / "result.json")
    assert (first.output / "result.json").stat().st_mtime_ns == stamp


def test_resume_starts_where_there_is_nothing(quick: dict) -> None:
    assert fit(**quick, resume=True).result.metrics["steps"] == 6


def test_a_folder_in_use_is_refused(quick: dict) -> None:
    output = fit(**quick).output
    with pytest.raises(InputError, match=r"choose another output folder: the run in .* finished"):
        fit(**quick)
    (output / "result.json").rename(output.parent / "result.json")
    with pytest.raises(InputError, match=r"add resume=True to continue the run in"):
        fit(**quick)
    (output.parent / "result.json").rename(output / "result.json")
    with refused(
        CannotResume,
        remedy="repeat the command that began the run, or choose another output folder",
    ):
        fit(**{**quick, "batch_size": 8}, resume=True)


def test_folders_that_are_no_run(quick: dict, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes").write_text("mine")
    with pytest.raises(InputError, match=r"has no config.yaml to resume"):
        fit(**quick, resume=True)
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match=r"give a folder as output: .* is a file"):
        fit(**{**quick, "output": str(tmp_path / "file")})


def test_a_crash_while_a_checkpoint_is_written_keeps_the_one_before(
    quick: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = weights(fit(**{**quick, "output": quick["output"] + "-whole"}).output)

    class Crash(BaseException):
        pass

    calls = iter(range(100))

    def crash(path: Path) -> None:
        if path.name == "complete.json" and next(calls) == 1:
            raise Crash

    monkeypatch.setattr("isotrope.core.files.sync", crash)
    with pytest.raises(Crash):
        fit(**quick)
    monkeypatch.undo()
    assert [path.name for path in checkpoints(quick["output"])] == ["checkpoint-2"]
    found = weights(fit(**quick, resume=True).output)
    assert all(torch.equal(whole[k], found[k]) for k in whole)


def test_the_random_generators_of_the_caller_are_as_they_were(quick: dict) -> None:
    def drawn() -> tuple[float, float, float]:
        return random.random(), float(np.random.random()), float(torch.rand(()))  # noqa: NPY002

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    expected = drawn()
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002
    torch.set_rng_state(states[2])
    fit(**{**quick, "max_steps": 1})
    assert drawn() == expected


def test_divergence_ends_the_run_and_nothing_broken_is_kept(quick: dict) -> None:
    with pytest.raises(InputError, match=r"training diverged: the (loss|gradient) is not finite"):
        fit(**{**quick, "max_steps": 30}, learning_rate=1e30, dev="auto")
    kept = weights(Path(quick["output"]))
    assert all(torch.isfinite(v).all() for v in kept.values())


def test_an_sts_file_with_a_bad_line_is_not_taken_for_pairs(quick: dict, tmp_path: Path) -> None:
    texts = sentences(60, seed=3)
    lines = [f"{i % 6}\t{texts[i]}\t{texts[i + 1]}" for i in range(40)]
    lines[20] = lines[20].replace("2\t", "nan\t", 1)
    file = tmp_path / "dev.tsv"
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(
        InputError, match=r"dev.tsv, line 21: correct the score 'nan'.* must be a finite number"
    ):
        fit(**quick, dev=str(file))


def test_output_in_the_corpus_is_refused(quick: dict, corpus: Path) -> None:
    inside = {**quick, "files": [str(corpus.parent)], "output": str(corpus.parent / "a" / "run")}
    with pytest.raises(InputError, match="so the run would train on its own"):
        fit(**inside)


def test_float16_on_a_cpu_and_pooling_from_scratch_are_refused(quick: dict) -> None:
    with refused_setting("precision", value="16"):
        fit(**quick, precision="16", device="cpu")
    with refused_setting("pooling", value="cls"):
        fit(**{**quick, "encoder": "scratch"}, pooling="cls")


def test_an_empty_folder_stays_empty_when_a_run_fails(quick: dict) -> None:
    output = Path(quick["output"])
    output.mkdir()
    with pytest.raises(InputError, match="the data have only"):
        fit(**{**quick, "batch_size": 301})
    assert list(output.iterdir()) == []


def test_parents_made_for_a_failed_run_go_with_it(quick: dict, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the data have only"):
        fit(**{**quick, "output": str(tmp_path / "a" / "b" / "run"), "batch_size": 301})
    assert not (tmp_path / "a").exists()


def test_training_that_makes_it_worse_says_so_and_keeps_the_start(quick: dict, monkeypatch) -> None:
    values = iter([50.0, 40.0, 30.0])
    monkeypatch.setattr(RETRIEVAL, lambda *_, **__: hits(next(values)))
    outcome = fit(**quick, dev="auto")
    assert outcome.result.metrics["dev_best_step"] == 0
    details = outcome.result.details
    assert details["judgement"]["outcome"] == "worse"
    assert details["model"]["fingerprint"] == details["model"]["start"]
    saved = SentenceEncoder.load(outcome.output, device="cpu")
    assert details["model"]["fingerprint"] == saved.fingerprint()
    assert details["verdict"] == details["judgement"]["sentence"]
    assert "training made the model worse" in details["verdict"]
    assert "30.00 at step 6 (-20.00, 95%" in details["verdict"]
    assert details["verdict"] in (outcome.output / "model" / "README.md").read_text()
    assert summary(outcome).startswith(details["verdict"])
    state = SentenceEncoder.load(quick["encoder"]).model[0].model.state_dict()
    kept = weights(outcome.output)
    assert kept.keys() == state.keys()
    assert all(torch.equal(kept[k], state[k]) for k in kept)


def test_a_fall_within_noise_is_not_called_worse(quick: dict, monkeypatch) -> None:
    values, noise = iter([50.0, 49.9, 49.8]), np.random.default_rng(0)

    def look(*_: object, **__: object) -> DevEvaluation:
        found = hits(next(values))
        return DevEvaluation(found.value, noise.permutation(found.items))

    monkeypatch.setattr(RETRIEVAL, look)
    outcome = fit(**quick, dev="auto")
    assert outcome.result.details["judgement"]["outcome"] == "undecided"
    told = outcome.result.details["verdict"]
    assert told.startswith("undecided: held-out MRR@10")
    assert told.endswith("; the saved model is the one before training")
    kept = judgement_of(outcome.output, None)  # after the fact, from the scores of examples
    assert kept is not None
    assert kept.sentence == told


def test_pairs_with_hard_negatives_and_prompts(quick: dict, tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    texts = sentences(120)
    lines = [f"{texts[i]}\t{texts[i + 1]}\t{texts[i + 2]}" for i in range(0, 117, 3)]
    file.write_text("\n".join(lines) + "\n")
    outcome = fit(
        **{**quick, "files": [str(file)], "max_steps": 2},
        query_prompt="query: ",
        passage_prompt="passage: ",
    )
    assert outcome.result.details["data"]["views"] == "pairs"
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(outcome.output / "model"), device="cpu")
    np.testing.assert_allclose(
        model.encode_query("a stone"), model.encode("query: a stone"), atol=1e-6
    )
    np.testing.assert_allclose(
        model.encode_document("a stone"), model.encode("passage: a stone"), atol=1e-6
    )
    assert "queries `query: `" in (outcome.output / "model" / "README.md").read_text()
    with pytest.raises(InputError, match="barlowtwins takes no hard negatives"):
        fit(
            **{**quick, "files": [str(file)], "output": str(tmp_path / "b")},
            objective="barlowtwins",
        )
    assert not (tmp_path / "b").exists()


def test_a_dev_file_is_searched_with_the_prompts_of_the_training(
    quick: dict, tmp_path: Path
) -> None:
    file, texts = tmp_path / "pairs.tsv", sentences(120)
    file.write_text("".join(f"{texts[i]}\t{texts[i + 1]}\n" for i in range(0, 120, 2)))
    settings = {**quick, "files": [str(file)], "dev": str(file), "max_steps": 2}
    prompts = {"query_prompt": "stone water: ", "passage_prompt": "fire "}
    outcome = fit(**settings, **prompts)
    plain = fit(**{**settings, "output": str(tmp_path / "plain")})
    assert outcome.result.metrics["dev_start"] != plain.result.metrics["dev_start"]
    model = SentenceEncoder.load(outcome.output, device="cpu")
    scored = isotrope.evaluate(model, retrieval=file, results=None).metrics["mrr@10"]
    assert 100 * scored == pytest.approx(outcome.result.metrics["dev_best"], abs=1e-9)


def test_a_training_without_the_prompts_of_its_model_warns(
    quick: dict, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encoder = SentenceEncoder.scratch(sentences(300))
    encoder.model.prompts = {"query": "query: ", "document": "", "passage": "text: "}
    encoder.save(tmp_path / "prompted")
    settings = {**quick, "encoder": str(tmp_path / "prompted"), "max_steps": 1}
    fit(**settings)
    assert "expects 'query: ' before queries and 'text: ' before" in capsys.readouterr().err
    outcome = fit(**{**settings, "output": str(tmp_path / "b")}, query_prompt="query: ")
    assert "set --query-prompt" not in capsys.readouterr().err
    trained = SentenceEncoder.load(outcome.output, device="cpu")
    assert own_prompts(trained) == ("query: ", "")  # as in the training, and not the model's own


@pytest.mark.parametrize("default", ["none", "document"])
def test_a_default_prompt_that_is_empty_stays_one(
    quick: dict, tmp_path: Path, default: str
) -> None:
    """It became the passages' prompt, or a name that the saved model does not have."""
    from sentence_transformers import SentenceTransformer

    encoder = SentenceEncoder.scratch(sentences(300))
    encoder.model.prompts = {default: "", "query": "q: ", "about": "of: "}
    encoder.model.default_prompt_name = default
    encoder.save(tmp_path / "prompted")
    changed = {**quick, "encoder": str(tmp_path / "prompted"), "max_steps": 1}
    outcome = fit(**changed, query_prompt="query: ", passage_prompt="passage: ")
    model = SentenceTransformer(str(outcome.output / "model"), device="cpu")
    trained = SentenceEncoder.load(outcome.output, device="cpu").encode(["a stone"])
    np.testing.assert_allclose(model.encode(["a stone"]), trained, atol=1e-6)
    assert model.prompts["about"] == "of: "
    assert model.prompts["query"] == "query: "
    assert abs(model.encode_document(["a stone"]) - trained).max() > 1e-3


def test_a_model_with_a_prompt_of_its_own_takes_no_other(quick: dict, tmp_path: Path) -> None:
    encoder = SentenceEncoder.scratch(sentences(300))
    encoder.model.prompts = {"own": "about: "}
    encoder.model.default_prompt_name = "own"
    encoder.save(tmp_path / "prompted")
    changed = {**quick, "encoder": str(tmp_path / "prompted")}
    with pytest.raises(InputError, match=r"puts its own prompt 'about: ' before every text"):
        fit(**changed, query_prompt="query: ")


def test_the_summary_says_when_nothing_is_left_to_learn(quick: dict) -> None:
    quick = {**quick, "encoder": "scratch"}  # so wide that no negative comes before a positive
    easy = fit(**{**quick, "max_steps": 2}, objective_settings={"dissipation": "margin:0"})
    assert easy.result.metrics["dead"] == 1
    assert "100% of the anchors in the last logged batch" in summary(easy)
    busy = {**quick, "output": quick["output"] + "-busy", "max_steps": 2}
    assert "nothing left" not in summary(fit(**busy, objective_settings={"dissipation": "none"}))


def test_the_last_numbers_are_of_one_batch(quick: dict, monkeypatch) -> None:
    """A share that does not exist at the end must not be an old one."""
    looks = iter([0.5, 0.25, None, None])
    monkeypatch.setattr(
        text_module,
        "measure",
        lambda *_: {"dissipation": 0.0, "dead": 1.0, "hardest_share": next(looks), "ratio": 1.0},
    )
    assert fit(**quick).result.metrics["hardest_share"] is None


def test_adjacent_text(quick: dict) -> None:
    outcome = fit(**{**quick, "max_steps": 2}, views="adjacent")
    assert outcome.result.details["data"]["views"] == "adjacent"


def test_retrieval_and_sts_files_as_dev(quick: dict, tmp_path: Path) -> None:
    texts = sentences(60, seed=3)
    sts = tmp_path / "dev.tsv"
    sts.write_text("".join(f"{i % 6}\t{texts[i]}\t{texts[i + 1]}\n" for i in range(40)))
    outcome = fit(**{**quick, "max_steps": 3}, dev=str(sts))
    assert "dev STS Spearman (dev.tsv)" in outcome.result.details["dev"]["name"]
    sts.write_text("score\tsentence1\tsentence2\n" + sts.read_text())
    assert dev_metric_of_file(sts).name == outcome.result.details["dev"]["name"]
    pairs = tmp_path / "found.tsv"
    pairs.write_text("".join(f"{texts[i]}\t{texts[i + 1]}\n" for i in range(0, 40, 2)))
    other = {**quick, "output": str(tmp_path / "other"), "max_steps": 3}
    outcome = fit(**other, dev=str(pairs))
    assert (
        outcome.result.details["dev"]["name"] == "dev retrieval MRR@10 of 20 queries among 20 texts"
    )


def test_ranks_are_scored_by_the_chosen_metric(quick: dict, tmp_path: Path) -> None:
    texts = sentences(60, seed=3)
    pairs, sts = tmp_path / "found.tsv", tmp_path / "dev.tsv"
    pairs.write_text("".join(f"{texts[i]}\t{texts[i + 1]}\n" for i in range(0, 40, 2)))
    data = load_retrieval(pairs)
    for number, dev in enumerate(("auto", str(pairs))):
        chosen = {**quick, "output": str(tmp_path / str(number)), "dev": dev, "max_steps": 1}
        outcome = fit(**chosen, dev_metric="ndcg@10")
        assert "nDCG@10" in outcome.result.details["dev"]["name"]
    scored = retrieval(outcome.encoder, data).metrics["ndcg@10"]
    best = outcome.result.metrics["dev_best"]
    assert best == pytest.approx(100 * scored, abs=1e-3)
    sts.write_text("".join(f"{i % 6}\t{texts[i]}\t{texts[i + 1]}\n" for i in range(40)))
    with refused_setting("dev_metric"):
        fit(**{**quick, "output": str(tmp_path / "no")}, dev=str(sts), dev_metric="ndcg@10")
    assert not (tmp_path / "no").exists()


def test_a_file_is_of_scored_pairs_if_it_has_their_column(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    rows = pandas.DataFrame({"anchor": ["the score", "a score of 3"], "positive": ["2:1", "three"]})
    scored = rows.set_axis(["sentence1", "sentence2"], axis=1).assign(score=[0.5, 4.0])
    for table, kind in ((rows, "dev retrieval MRR@10"), (scored, "dev STS Spearman")):
        table.to_csv(tmp_path / "dev.csv", index=False)
        table.to_json(tmp_path / "dev.jsonl", orient="records", lines=True)
        table.to_parquet(tmp_path / "dev.parquet")
        for suffix in ("csv", "jsonl", "parquet"):
            assert dev_metric_of_file(tmp_path / f"dev.{suffix}").name.startswith(kind)


def test_single_texts_are_not_trained_on_the_prompt_of_passages(quick: dict, capsys) -> None:
    fit(**{**quick, "max_steps": 1}, passage_prompt="passage: ")
    said = capsys.readouterr().err
    assert "passage_prompt='passage: ' (training uses only the query prompt" in said
    same = {"query_prompt": "text: ", "passage_prompt": "text: "}
    fit(**{**quick, "max_steps": 1, "output": quick["output"] + "-same"}, **same)
    assert "passage_prompt=" not in capsys.readouterr().err


def test_held_out_text_that_another_data_set_has_is_counted(quick: dict, tmp_path: Path) -> None:
    pairs = [*zip(sentences(120, seed=1), sentences(120, seed=2), strict=True)]
    data = {"a": pairs, "b": [(b, a) for a, b in pairs]}
    own = {key: value for key, value in quick.items() if key != "files"} | {"max_steps": 1}
    both = fit(data, **own, dev="auto", holdout=0.3).result.details["data"]
    assert both["holdout_trained_on"] > 20
    one = fit(pairs, **{**own, "output": tmp_path / "one"}, dev="auto", holdout=0.3)
    assert one.result.details["data"]["holdout_trained_on"] == 0


def test_dev_auto_with_nothing_held_out_is_an_error(quick: dict) -> None:
    own = {key: value for key, value in quick.items() if key != "files"}
    with pytest.raises(InputError, match=r"found 0 pairs of two different texts among .* needs 20"):
        fit([(f"a {i}", f"b {i}") for i in range(2)], **{**own, "batch_size": 2}, dev="auto")


def test_the_result_names_the_data_of_its_dev_score(quick: dict, tmp_path: Path) -> None:
    """Paths and names of files do not: one name is of two files, and one file has two names."""
    pairs = [f"{first}\t{second}" for first, second in pairwise(sentences(8, seed=1))]
    files = {}
    for name, lines in [("a", pairs), ("b", pairs), ("c", pairs[1:])]:
        files[name] = tmp_path / name / "pairs.tsv"
        files[name].parent.mkdir()
        files[name].write_text("\n".join(lines) + "\n")
        files[f"sts {name}"] = tmp_path / name / "sts.tsv"
        files[f"sts {name}"].write_text("".join(f"{i}.0\t{x}\n" for i, x in enumerate(lines)))
    auto = {"auto": {}, "again": {"batch_size": 8}, "seed": {"seed": 8}, "more": {"holdout": 0.3}}
    runs = {name: {"dev": str(file)} for name, file in files.items()}
    runs |= {name: {"dev": "auto", **changed} for name, changed in auto.items()}
    data = {
        name: fit(**quick | {"max_steps": 1, "output": str(tmp_path / f"run {name}")} | changed)
        .result.details["dev"]["data"]
        for name, changed in runs.items()
    }  # fmt: skip
    same = {frozenset(name for name in data if data[name] == value) for value in data.values()}
    assert same == {
        *map(frozenset, (("a", "b"), ("sts a", "sts b"), ("auto", "again"))),
        *map(frozenset, (["c"], ["sts c"], ["seed"], ["more"])),
    }


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"files": ["nowhere.txt"]}, "nowhere.txt"),
        ({"objective": "infonec"}, "did you mean 'infonce'"),
        ({"objective_settings": {"in_batch": "false"}}, "with in_batch=False needs additional"),
        (
            {"objective": "miov3", "objective_settings": {"temperature": 0.011}},
            r"objective miov3: .* at temperature 0\.011, .* overflows torch.float32",
        ),
        (
            {"objective": "dino", "objective_settings": {"part": "repulsion"}},
            "objective dino: DINO has no gradient components: .* 'logits'",
        ),
        ({"encoder": "./no/such/model"}, "no/such/model"),
        ({"encoder": "nobody/nothing-here"}, "nobody/nothing-here"),
        ({"batch_size": 301}, "the data have only"),
        ({"dev": "nowhere.tsv"}, "nowhere.tsv"),
        ({"plugin": ["nowhere.py"]}, "nowhere.py is not a file"),
        ({"objective_settings": {"temperature": -1}}, r"must be >= 0\.0001; found -1"),
        (
            {"encoder": "all-MiniLM-L6-v2", "max_length": 600},
            "max_length=600: all-MiniLM-L6-v2 cannot read so many tokens",
        ),
        ({"device": "mps"}, "mps"),
    ],
)
def test_bad_input_leaves_nothing_behind(quick: dict, changed: dict, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        fit(**{**quick, **changed})
    assert "\n" not in str(caught.value)
    assert not Path(quick["output"]).exists()


@pytest.mark.parametrize("cached", [False, True])
def test_the_backend_is_told_recorded_and_used(quick: dict, capsys, cached: bool) -> None:
    losses = {}
    for backend in ("auto", "eager", "bfloat16"):
        output = f"{quick['output']}-{backend}"
        settings = {**quick, "output": output, "backend": backend, "max_steps": 1, "progress": True}
        result = fit(**settings, micro_batch=4 if cached else None).result
        told = capsys.readouterr().err
        name = result.details["backend"]["name"]
        assert re.search(
            rf"^on .*, precision 32, 1 CPU thread, loss backend {name}$", told, re.MULTILINE
        )
        losses[backend] = result.metrics["loss"]
    assert losses["bfloat16"] != pytest.approx(losses["eager"], rel=1e-6)
    assert losses["bfloat16"] == pytest.approx(losses["eager"], rel=1e-2)
    assert result.details["backend"] == {"name": "bfloat16", "reason": "chosen by the user"}
    assert yaml.safe_load((Path(output) / "config.yaml").read_text())["backend"] == "bfloat16"


def test_identical_views_are_warned_about(quick: dict, capsys) -> None:
    fit(**{**quick, "max_steps": 2, "progress": True}, dropout=0.0)
    assert "without dropout, the two views of a text are equal" in capsys.readouterr().err


def test_bfloat16(quick: dict) -> None:
    outcome = fit(**{**quick, "max_steps": 2}, precision="bf16")
    assert np.isfinite(outcome.result.metrics["loss"])


def test_the_function_is_the_function_whatever_was_imported_before() -> None:
    import isotrope
    import isotrope.training.text

    assert isotrope.fit is isotrope.training.fit is fit


@pytest.mark.slow
def test_cut_initialization_of_text_divides_what_is_not_pretrained(
    quick: dict, tmp_path: Path
) -> None:
    """Of a pretrained encoder only the head; from scratch the encoder, too."""
    still = {**quick, "max_steps": 1, "learning_rate": 1e-12, "batch_size": 4}
    outcomes = [
        fit(**{**still, "output": str(tmp_path / f"{name}-{cut:g}"), "encoder": name, "cut": cut})
        for name in ("scratch", "all-MiniLM-L6-v2")
        for cut in (1.0, 3.0)
    ]
    assert outcomes[1].result.details["cut"] == {"c": 3.0, "what": "weights"}
    scratch, cut, pretrained, same = (outcome.encoder for outcome in outcomes)
    for before, after in zip(scratch.parameters(), cut.parameters(), strict=True):
        divided = 3.0 if before.ndim > 1 else 1.0
        torch.testing.assert_close(after * divided, before, rtol=1e-5, atol=1e-8)
    for before, after in zip(pretrained.parameters(), same.parameters(), strict=True):
        torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-8)
    norms = [float(rows(outcome.output)[0]["norm"]) for outcome in outcomes[2:]]
    assert norms[1] < norms[0] / 2


@pytest.mark.parametrize("unit", ["texts", "pairs"])
def test_the_summary_counts_what_it_says(quick: dict, tmp_path: Path, unit: str) -> None:
    file = tmp_path / "corpus.txt"
    if unit == "pairs":
        lines = file.read_text().splitlines()
        file = tmp_path / "pairs.tsv"
        halves = zip(lines[:100], lines[100:200], strict=True)
        file.write_text("".join(f"{a}\t{b}\n" for a, b in halves))
    outcome = fit(**{**quick, "files": [str(file)], "max_steps": 2})
    metrics = outcome.result.metrics
    seconds = 2 * quick["batch_size"] / metrics["samples_per_second"]
    assert metrics["seconds"] == pytest.approx(seconds, abs=6e-4)  # it is rounded to milliseconds
    assert f"s, {metrics['samples_per_second']:.0f} {unit}/s\n" in summary(outcome)
