"""``isotrope.fit``: objectives and data that are objects, keywords that are typed, messages."""

import inspect
import json
import re
import typing
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import pytest
import torch
import yaml
from transformers import PrinterCallback, TrainerCallback

import isotrope
from docs.generate.text_options import text_options
from isotrope.core.errors import CannotResume, InputError, SettingError
from isotrope.core.hyper import Hyper, Paper
from isotrope.core.result import Result
from isotrope.data.sources import is_in_memory, write_records
from isotrope.diagnostics.audit.rows import read_rows
from isotrope.objectives import MET, InfoNCE
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective
from isotrope.training import fit_text
from isotrope.training import text_options as text_options_module
from isotrope.training.fit_text import check_callbacks, fit
from isotrope.training.images.train import fit_images
from isotrope.training.settings import TrainSettings
from isotrope.training.text_options import TextOptions
from tests import two_processes
from tests.refused import refused, refused_setting
from tests.training.conftest import sentences


@pytest.fixture
def options(quick: dict[str, Any]) -> dict[str, Any]:
    """Settings of a run of two steps, without files."""
    return {**{k: v for k, v in quick.items() if k != "files"}, "max_steps": 2, "head": "none"}


def records(folder: Path) -> list[dict[str, str]]:
    text = (folder / "data-from-python.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


class Main(TrainerCallback):
    """A callback that a user's script defines."""


TEXTS = sentences(40)
PAIRS = [*zip(TEXTS, sentences(40, seed=1), strict=True)]


@pytest.mark.parametrize("make", ["list", "pairs", "datasets", "pandas", "polars", "generator"])
def test_data_in_memory(make: str, options: dict[str, Any]) -> None:
    columns = {"question": [a for a, _ in PAIRS], "answer": [b for _, b in PAIRS]}
    data: Any = {"list": TEXTS, "pairs": PAIRS, "generator": (pair for pair in PAIRS)}.get(make)
    if data is None:
        library = pytest.importorskip(make)
        is_set = make == "datasets"
        data = (library.Dataset.from_dict if is_set else library.DataFrame)(columns)
        options["columns"] = ["question", "answer"]
    outcome = fit(data, **options)
    found = records(outcome.output)
    assert len(found) == 40
    keys = ["text"] if make == "list" else ["anchor", "positive"]
    assert list(found[0]) == keys
    assert outcome.result.details["data"]["unit"] == ("texts" if make == "list" else "pairs")
    config = yaml.safe_load((outcome.output / "config.yaml").read_text())
    assert config["files"] == [str(outcome.output / "data-from-python.jsonl")]


def test_scored_pairs_in_memory_reach_a_loss_for_scores(options: dict[str, Any]) -> None:
    rows = [{"sentence1": a, "sentence2": b, "score": i / 40} for i, (a, b) in enumerate(PAIRS)]
    data = pytest.importorskip("pandas").DataFrame(rows)
    outcome = fit(data, **{**options, "loss": "CoSENTLoss"})
    assert records(outcome.output) == rows
    (outcome.output / "grouped").mkdir()
    file = outcome.output / "grouped" / "data.jsonl"
    assert write_records(data.assign(kind="a"), [], file, groups="kind", scored=True)
    assert json.loads(file.read_text().splitlines()[0]) == {**rows[0], "kind": "a"}
    with pytest.raises(InputError, match="holds scored pairs"):
        fit(data, **{**options, "output": outcome.output / "other", "objective": "infonce"})


def test_data_and_run_are_in_one_folder_under_the_home(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    outcome = fit(PAIRS, **{**options, "output": "~/x"})
    assert outcome.output == home / "x"
    assert len(records(home / "x")) == 40
    assert [*here.iterdir()] == []


@pytest.mark.parametrize("library", ["datasets", "pandas", "polars"])
def test_one_column_of_a_table_is_a_list_of_texts(library: str, tmp_path: Path) -> None:
    module = pytest.importorskip(library)
    table = (module.Dataset.from_dict if library == "datasets" else module.DataFrame)(
        {"text": ["one", None, "three"]}
    )
    column, file = table["text"], tmp_path / "data.jsonl"
    assert is_in_memory(column)
    assert write_records(column, [], file)
    texts = [json.loads(line)["text"] for line in file.read_text(encoding="utf-8").splitlines()]
    assert texts == ["one", "three"]
    assert [row[0] for row in read_rows(column).texts] == ["one", "three"]
    for argument in ({"columns": ["text"]}, {"groups": "topic"}):
        with pytest.raises(InputError, match="columns have no names"):
            write_records(column, **{"columns": [], "file": tmp_path / "x.jsonl", **argument})


@pytest.mark.parametrize("columns", ["0,1", ["0", "1"], [0, 1], (0, 1)])
def test_columns_without_a_name_are_chosen_by_their_number(
    columns: Any, options: dict[str, Any]
) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame([(*pair, number % 7) for number, pair in enumerate(PAIRS)])
    found = records(fit(table, **options, columns=columns, groups=2).output)
    assert [(row["anchor"], row["positive"]) for row in found] == PAIRS
    assert found[8]["2"] == "1"


def test_a_table_without_names(options: dict[str, Any]) -> None:
    pandas = pytest.importorskip("pandas")
    assert len(records(fit(pandas.DataFrame(TEXTS), **options).output)) == 40
    with pytest.raises(InputError, match=r"choose columns by name: columns='0,1'"):
        fit(pandas.DataFrame(PAIRS), **options)
    assert read_rows(pandas.DataFrame(PAIRS), columns=["0", "1"]).texts == PAIRS


def test_what_is_not_read_of_the_data_is_told(
    options: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(PAIRS, columns=["anchor", "positive"]).assign(label=range(40), id=2)
    fit(table, **{**options, "output": tmp_path / "memory"}, groups="label")
    assert (
        "read the data: 40 pairs, columns anchor, positive, label; not read: id"
        in capsys.readouterr().err
    )
    folder = tmp_path / "folder"
    folder.mkdir()
    table.to_csv(folder / "train.csv", index=False)
    table.to_csv(folder / "test.csv", index=False)
    outcome = fit(folder, **{**options, "output": tmp_path / "run"})
    told = capsys.readouterr().err
    assert "read train.csv: 40 pairs, columns anchor, positive (separated by commas)" in told
    assert re.search(r"; not read: label \(.*\), id; files not read: test\.csv", told)
    # test.csv, a copy of train.csv, was left out
    assert outcome.result.details["data"]["duplicates_dropped"] == 0
    fit(table, **{**options, "output": tmp_path / "named"}, columns=["anchor", "positive"])
    assert "not read" not in capsys.readouterr().err


def test_labels_of_data_in_memory_are_named_and_can_be_read(
    options: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"text": text, "intent": f"intent {i % 3}"} for i, text in enumerate(TEXTS)]
    fit(rows, **{**options, "output": tmp_path / "single"})
    assert capsys.readouterr().err.count("columns='text,label=intent'") == 1
    assert "`--columns text,label=intent`" in read_rows(rows).unread_labels  # of an audit
    outcome = fit(rows, **{**options, "output": tmp_path / "run"}, columns="text,label=intent")
    assert {row["label"] for row in records(outcome.output)} == {f"intent {i}" for i in range(3)}
    assert "columns=" not in capsys.readouterr().err


def test_a_semicolon_in_a_text_does_not_make_its_line_a_warning(
    options: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("".join(f"one; {text}\n" for text in TEXTS), encoding="utf-8")
    fit(file, **options)
    assert "first record" not in capsys.readouterr().err


def test_the_first_of_several_processes_writes_the_data(tmp_path: Path) -> None:
    assert two_processes.on_two(_texts_of, tmp_path, tmp_path / "run") == [["0 a"], ["0 a"]]


def _texts_of(rank: int, output: Path) -> list[str]:
    file = output / "data-from-python.jsonl"
    settings = TrainSettings(files=["-"], output=str(output))
    with fit_text._written({file: [f"{rank} a"]}, settings, output):
        return [record["text"] for record in records(output)]


def test_a_streamed_data_set_is_written_once(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    columns = {"anchor": [a for a, _ in PAIRS], "positive": [b for _, b in PAIRS]}
    stream = datasets.Dataset.from_dict(columns).to_iterable_dataset().take(30)
    assert write_records(stream, [], tmp_path / "data.jsonl")
    lines = (tmp_path / "data.jsonl").read_text(encoding="utf-8").splitlines()
    assert [tuple(json.loads(line).values()) for line in lines] == PAIRS[:30]


@pytest.mark.parametrize(
    ("groups", "written"),
    [
        ([1, 1.0, None], ["1", ""]),
        (["a", None, float("nan")], ["a", ""]),
        (("Int64", [1, 1, None]), ["1", ""]),
        (("category", ["a", "b", "a"]), ["a", "a"]),
    ],
)
def test_a_row_without_text_is_left_out(groups: Any, written: list[Any], tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    dtype, cells = groups if isinstance(groups, tuple) else (object, groups)
    texts = pandas.Series(["one", None, "three"], dtype="string")
    table = pandas.DataFrame({"text": texts, "topic": pandas.Series(cells, dtype=dtype)})
    assert write_records(table, [], tmp_path / "data.jsonl", groups="topic")
    lines = [json.loads(line) for line in (tmp_path / "data.jsonl").read_text().splitlines()]
    assert [line["text"] for line in lines] == ["one", "three"]
    assert [line["topic"] for line in lines] == written


def test_a_cell_that_is_no_text_is_named(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    days = pandas.to_datetime(["2020-01-01", None])
    table = pandas.DataFrame({"text": ["one", "two"], "day": days[[1, 0]]})
    message = (
        r"the data, row 2: choose .*; column 'day' holds Timestamp\(.*\) \(Timestamp\), not text"
    )
    with pytest.raises(InputError, match=message):
        write_records(table, [], tmp_path / "data.jsonl", groups="day")
    with pytest.raises(InputError, match=message):
        write_records(table, ["day"], tmp_path / "data.jsonl")
    assert not list(tmp_path.iterdir())


def test_the_same_data_goes_on_and_other_data_does_not(options: dict[str, Any]) -> None:
    first = fit(PAIRS, **options)
    again = fit(PAIRS, **options, resume=True)
    assert again.result == Result.load(first.output / "result.json")
    with pytest.raises(
        InputError, match=r"give the same data .* the data of this call differ from"
    ):
        fit(PAIRS[1:], **options, resume=True)
    with pytest.raises(
        InputError, match=r"choose another output folder: the run in .* is finished"
    ):
        fit(PAIRS, **options)
    with pytest.raises(
        CannotResume, match=r"seed was 7 there, and is 8 now; repeat the command that began the run"
    ):
        fit(PAIRS, **{**options, "seed": 8}, resume=True)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (5, r"give the path of a file, a list of texts .*; found 5 \(int\)"),
        ([], "the data: give at least one record"),
        ([("a", "b"), ("a",)], "record 2 of the data has 1, but earlier records have 2"),
        (
            [("a", "b"), ("a", 5)] * 9,
            r"the data, row 2: choose a column of text; column '2' holds 5 \(int\), not text",
        ),
        (["nowhere.txt"], "nowhere.txt: check the path; there is no such file"),
        (
            ["nowhere.txt", "a text"],
            r"give only files or only texts in a list; 'nowhere.txt' names a file",
        ),
        ("nowhere.txt", "nowhere.txt: check the path; there is no such file"),
        (PAIRS[:3], r"the data have only|batch"),
    ],
)
def test_wrong_data_leaves_nothing(data: Any, message: str, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=message) as caught:
        fit(data, **options)
    assert "--" not in str(caught.value)
    assert not Path(options["output"]).exists()


def test_columns_are_those_of_tables(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="columns have no names"):
        fit(TEXTS, **options, columns=["question"])
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"question": TEXTS})
    with pytest.raises(
        InputError, match=r"the data: choose .* no column 'q' \(did you mean|the data: choose"
    ):
        fit(table, **options, columns="q")
    with pytest.raises(
        InputError, match=r"the data: give a split .test., .*; no split is called 'train'"
    ):
        fit(datasets.DatasetDict({"test": table}), **options)
    splits = datasets.DatasetDict({"train": table, "test": table})
    assert len(records(fit(splits, **options).output)) == 40


@pytest.mark.parametrize(
    ("objective", "name", "settings"),
    [
        (MET, "met", {"margin": 0.45}),
        (InfoNCE(temperature=0.1), "infonce", {"temperature": 0.1}),
        (
            InfoNCE(temperature=0.1).modify(dissipation="margin:0.3333333333"),
            "infonce",
            {"temperature": 0.1, "dissipation": "margin:0.3333333333:dot"},
        ),
        (InfoNCE().modify(ratio=1.5), "infonce", {"ratio": "static:1.5"}),
        (InfoNCE().symmetric(), "infonce", {"symmetric": "true"}),
        (InfoNCE().symmetric().modify(ratio=1.5), "infonce", {"ratio": "static:1.5"}),
        (InfoNCE().parts.repulsion, "infonce", {"part": "repulsion"}),
        (isotrope.Paradigm(weight="hardest"), "paradigm", {"dissipation": "none"}),
    ],
    ids=str,
)
def test_objectives_become_settings(objective: Any, name: str, settings: dict[str, Any]) -> None:
    whole = objective() if isinstance(objective, type) else objective
    found, values = registry.as_settings(whole)
    assert found == name
    assert settings.items() <= values.items()
    assert registry.build(found, values) == whole


@pytest.mark.parametrize("name", registry.names())
def test_every_objective_describes_itself(name: str) -> None:
    whole = registry.find(name)()
    assert registry.build(*registry.as_settings(whole)) == whole


def test_an_objective_trains_as_its_settings_do(options: dict[str, Any], tmp_path: Path) -> None:
    given = InfoNCE(temperature=0.1).modify(weight="softmax:0.07")
    by_object = fit(TEXTS, **options, objective=given).result
    named = {"temperature": 0.1, "weight": "softmax:0.07"}
    options["output"] = tmp_path / "named"
    by_name = fit(TEXTS, **options, objective="infonce", objective_settings=named).result
    assert by_object.metrics["loss"] == by_name.metrics["loss"]
    assert by_object.details["model"] == by_name.details["model"]


def test_what_no_settings_describe_is_refused(options: dict[str, Any]) -> None:
    backwards = InfoNCE().parts.repulsion.symmetric()
    with pytest.raises(InputError, match=r"call modify first, .*no settings describe"):
        fit(TEXTS, **options, objective=backwards)
    message = "objective_settings, which is only for an objective given by its name"
    with pytest.raises(InputError, match=message):
        fit(TEXTS, **options, objective=MET(), objective_settings={"margin": 0.3})
    learnt = InfoNCE(temperature=torch.tensor(0.1, requires_grad=True)).symmetric()
    with pytest.raises(InputError, match="set temperature of infonce to a number"):
        fit(TEXTS, **options, objective=learnt)
    assert not Path(options["output"]).exists()


def test_a_class_of_ones_own(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Objective, "registered", dict(registry.Objective.registered))

    class Pull(Objective, paper=Paper("a toy", "nobody", "none")):
        scale: Annotated[float, Hyper("c", "of the loss", above=0)] = 1.0

        def formula(self, pairs: Any) -> Any:
            return -self.scale * pairs.positive

    outcome = fit(TEXTS, **options, objective=Pull(scale=2.0))
    assert outcome.result.details["objective"] == {"name": "pull", "parameters": {"scale": 2.0}}
    options["output"] += "-2"
    with pytest.raises(InputError, match="the processes that devices=2 starts cannot import"):
        fit(TEXTS, **options, objective=Pull(), devices=2)


def test_a_callback_that_other_processes_cannot_import(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Inner(TrainerCallback):
        pass

    monkeypatch.setattr(Main, "__module__", "__main__")
    own = {"device": "cpu", "devices": 2}
    for callback in (Inner(), Main(), Main):
        with refused():
            fit(TEXTS, **options, **own, callbacks=[callback])
    with refused():
        fit_images("digits", output=options["output"], **own, callbacks=[Main()])
    assert not Path(options["output"]).exists()
    check_callbacks([Inner(), Main()], 1)
    check_callbacks([PrinterCallback()], 2)


def test_the_keywords_are_the_settings() -> None:
    """What a type checker and an IDE see, and what ``help`` and a notebook show."""
    fields = dict(TrainSettings.model_fields)
    del fields["files"]
    assert set(typing.get_type_hints(TextOptions)) == set(fields)
    assert Path(text_options_module.__file__).read_text() == text_options(), "make docs"
    parameters = inspect.signature(fit).parameters
    assert set(parameters) == {"files", "resume", "callbacks", *fields}
    assert repr(parameters["learning_rate"].default) == "<recipe; papers: 3e-05>"
    assert parameters["weight_decay"].default == 0.0
    assert parameters["output"].default is inspect.Parameter.empty


@pytest.mark.parametrize(
    ("wrong", "setting", "shown"),
    [
        (
            {"precision": "16", "device": "cpu"},
            "precision",
            "precision=16 (use precision='bf16' or precision=32 on a CPU",
        ),
        ({"matryoshka": [8], "head": "mlp"}, "matryoshka", "(add head='none': "),
        ({"lora_alpha": 4}, "lora_alpha", "lora_alpha=4 (add lora=RANK"),
        ({"max_length": 5000}, "max_length", "max_length=5000: "),
    ],
)
def test_messages_speak_python(
    wrong: dict[str, Any], setting: str, shown: str, options: dict[str, Any]
) -> None:
    with pytest.raises(SettingError) as caught:
        fit(TEXTS, **{**options, **wrong})
    assert caught.value.setting == setting
    assert shown in str(caught.value)
    assert "--" not in str(caught.value)


def test_images_take_objectives_too(tmp_path: Path) -> None:
    with refused_setting("batch_size", value=0):
        isotrope.fit_images("digits", output=tmp_path / "x", objective=MET(), batch_size=0)


def test_a_dataset_of_the_hub(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    datasets = pytest.importorskip("datasets")
    asked: list[Any] = []

    def load(name: str, split: str, streaming: bool) -> Any:
        asked.append((name, split, streaming))
        if name != "somebody/pairs":
            raise FileNotFoundError("there is none")
        return datasets.Dataset.from_dict({"anchor": TEXTS, "positive": TEXTS[::-1]})

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.chdir(tmp_path)
    outcome = fit("somebody/pairs", **options)
    assert outcome.result.details["data"]["records"] == 40
    assert yaml.safe_load((outcome.output / "config.yaml").read_text())["files"] == [
        "somebody/pairs"
    ]
    options["output"] += "-2"
    with pytest.raises(InputError, match=r"check the name 'somebody/nothing'"):
        fit("somebody/nothing", **options)
    (tmp_path / "texts").mkdir()
    for name in ("texts/none", "somebody/pairs.txt"):  # a path that is not there stays a path
        with pytest.raises(InputError, match="no such file"):
            fit(name, **options)
    assert {*asked} == {(f"somebody/{name}", "train", False) for name in ("pairs", "nothing")}


def test_a_file_that_changed_after_the_run_is_named(
    options: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "work.tsv"
    file.write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS))
    outcome = fit(file, **options)
    said = f"changed since the run: {file}"
    assert said not in "".join(isotrope.diagnose(outcome.output).notes)
    file.write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS[3:]))
    assert said in "".join(isotrope.diagnose(outcome.output).notes)


def test_the_advice_on_a_long_max_length_works(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"give at most max_length=\d+$") as caught:
        fit(PAIRS, **{**options, "max_length": 10**6})
    most = int(str(caught.value).rpartition("=")[2])
    outcome = fit(PAIRS, **{**options, "max_length": most, "max_steps": 1})
    assert isotrope.load(outcome.output).max_length == most


def test_trainings_in_two_threads_give_what_one_gives(
    options: dict[str, Any], tmp_path: Path
) -> None:
    def weights(name: str) -> bytes:
        output = fit(PAIRS, **{**options, "output": str(tmp_path / name)}).output
        return next((output / "model").glob("*.safetensors")).read_bytes()

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(weights, ("first", "second"))
    assert first == second == weights("alone")
