"""Whatever a parser is given, it answers with something valid or with one line of refusal."""

import contextlib
import gzip
import io
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isotrope.cli.arguments import dotted
from isotrope.core.documents import read_json, read_yaml
from isotrope.core.errors import InputError
from isotrope.core.hyper import hypers, value_of
from isotrope.data.lines import lines
from isotrope.data.sources import read
from isotrope.data.text.labelled import load_labelled
from isotrope.data.text.retrieval_sets import load_retrieval
from isotrope.data.text.sts_sets import load_sts_file
from isotrope.paradigm import registry
from isotrope.paradigm.objective import Objective
from isotrope.sweeps.search_space import read_varied
from isotrope.training.images.settings import ImageSettings
from isotrope.training.settings import TrainSettings

quick = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

# text as files have it: much structure, odd characters, halves of surrogate pairs
words = st.text(
    st.one_of(
        st.sampled_from(
            list("\t\n\r,;:\"'{}[]=.-_ %&*!?|>#\\/0123456789ax\0\ufeff\u2028\u200b\x85")
        ),
        st.characters(),
    ),
    max_size=60,
)
numbers = st.one_of(
    st.integers(), st.floats(), st.integers(min_value=10**300, max_value=10**320), st.booleans()
)
values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), numbers, words, st.binary(max_size=9)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)),
    max_leaves=6,
)


def refused_or(call: Callable[[], Any]) -> Any:
    """Return what a call gives, or None where it refuses: on one line of bounded length."""
    try:
        return call()
    except InputError as error:
        said = str(error)
        assert said.strip()
        assert len(said) < 20_000  # the command line cuts what it prints
        return None


def written(folder: Path, name: str, data: str | bytes) -> Path:
    path = folder / name
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    path.write_bytes(gzip.compress(data, 1) if name.endswith(".gz") else data)
    return path


@quick
@given(data=st.one_of(words, st.binary(max_size=80)), suffix=st.sampled_from(["", ".gz"]))
def test_lines(tmp_path: Path, data: str | bytes, suffix: str) -> None:
    path = written(tmp_path, f"a.txt{suffix}", data)
    found = refused_or(lambda: list(lines(path, limit=50)))
    for number, (line, text) in enumerate(found or (), start=1):
        assert line == number
        assert "\n" not in text
        assert len(text) <= 50


@quick
@given(
    data=st.one_of(words, st.lists(words, max_size=5).map("\n".join), st.binary(max_size=80)),
    suffix=st.sampled_from([".txt", ".tsv", ".csv", ".jsonl", ".parquet", ".csv.gz"]),
    columns=st.one_of(st.none(), st.lists(words, max_size=4)),
)
def test_corpora(tmp_path: Path, data: str | bytes, suffix: str, columns: list[str] | None) -> None:
    path = written(tmp_path, f"a{suffix}", data)
    for record in refused_or(lambda: list(read([path], columns=columns))) or ():
        assert 1 <= len(record.texts) <= 3
        assert any(record.texts)
        for text in record.texts:
            assert text == text.strip()
            text.encode()


@quick
@given(rows=st.lists(st.dictionaries(words, values, max_size=3), max_size=3))
def test_json_lines(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    import json

    whole = "\n".join(json.dumps(row, default=repr) for row in rows)
    path = written(tmp_path, "a.jsonl", whole)
    for record in refused_or(lambda: list(read([path]))) or ():
        assert all(isinstance(text, str) for text in record.texts)


@quick
@given(
    data=st.one_of(
        words,
        st.lists(st.tuples(numbers.map(str) | words, words, words).map("\t".join), max_size=4).map(
            "\n".join
        ),
        st.binary(max_size=60),
    ),
    suffix=st.sampled_from([".tsv", ".csv", ".jsonl"]),
)
def test_score_files(tmp_path: Path, data: str | bytes, suffix: str) -> None:
    import numpy as np

    path = written(tmp_path, f"a{suffix}", data)
    found = refused_or(lambda: load_sts_file(path))
    if found is not None:
        assert np.isfinite(found.scores).all()
        assert all(found.first)
        assert all(found.second)
    refused_or(lambda: load_labelled(path))
    refused_or(lambda: load_retrieval(path))


@quick
@given(data=st.one_of(words, st.binary(max_size=60)))
def test_documents(tmp_path: Path, data: str | bytes) -> None:
    path = written(tmp_path, "a.yaml", data)
    found = refused_or(lambda: read_yaml(path))
    assert found is None or all(isinstance(key, str) for key in found)
    refused_or(lambda: read_json(path))


@quick
@given(value=values)
def test_yaml_that_was_written_is_read(tmp_path: Path, value: Any) -> None:
    import yaml

    with contextlib.suppress(ValueError, OverflowError):  # what cannot be written
        whole = yaml.safe_dump({"a": value}, allow_unicode=True)
        refused_or(lambda: read_yaml(written(tmp_path, "a.yaml", whole)))


names = st.one_of(
    st.sampled_from([*TrainSettings.model_fields, *ImageSettings.model_fields]),
    st.sampled_from(["objective.temperature", "objective.weight", "method.queue", "objective."]),
    words,
)


@quick
@given(
    given_values=st.dictionaries(names, values, max_size=4),
    cls=st.sampled_from([TrainSettings, ImageSettings]),
)
def test_settings(given_values: dict[str, Any], cls: type[Any]) -> None:
    least = {"output": "r", "files" if cls is TrainSettings else "data": "a"}
    found = refused_or(lambda: cls.read({**least, **given_values}))
    if found is not None:  # and what is accepted can be written down and read again
        import yaml

        again = cls.read(yaml.safe_load(io.StringIO(found.to_yaml())))
        assert again == found


objectives = st.sampled_from(["infonce", "mpt", "met", "barlowtwins", "paradigm", "dcl", "miov3"])
parts = st.one_of(
    words,
    numbers.map(str),
    st.tuples(
        st.sampled_from(["softmax", "margin", "static", "hardest", "fraction", "none", "arccon"]),
        st.lists(numbers.map(str) | words, max_size=3),
    ).map(lambda told: ":".join([told[0], *told[1]])),
)
keys = st.sampled_from(
    [
        *("temperature", "margin", "weight", "ratio", "dissipation", "preset", "symmetric", "part"),
        *("in_batch", "variant", "views", "balance"),
    ]
)


@quick
@given(name=objectives, told=st.dictionaries(keys | words, parts | values, max_size=3))
def test_objective_settings(name: str, told: dict[str, Any]) -> None:
    found = refused_or(lambda: registry.build(name, told))
    assert found is None or isinstance(found, Objective)


@quick
@given(value=parts | values)
def test_values_of_hyperparameters(value: Any) -> None:
    for hyper in hypers(registry.find("infonce")).values():
        with contextlib.suppress(ValueError):
            value_of(hyper, value)


@quick
@given(
    rest=st.lists(
        st.one_of(
            words,
            st.tuples(st.sampled_from(["--objective.", "--objective", "--x="]), words).map("".join),
        ),
        max_size=5,
    )
)
def test_dotted_flags(rest: list[str]) -> None:
    found = refused_or(lambda: dotted(rest, "objective"))
    if found is not None:
        flags, others = found
        assert all(name.startswith("objective.") and value for name, value in flags.items())
        assert not any(other.startswith("--objective.") for other in others)


spans = st.tuples(numbers.map(str), st.sampled_from(["..", "...", "."]), numbers.map(str)).map(
    "".join
)


@quick
@given(
    name=st.sampled_from(["learning-rate", "cut", "batch-size", "objective.temperature", "views"])
    | words,
    told=st.one_of(words, spans, st.tuples(spans, words).map(":".join), parts),
    equals=st.sampled_from(["=", "", "=="]),
)
def test_varied(name: str, told: str, equals: str) -> None:
    found = refused_or(lambda: read_varied(f"{name}{equals}{told}", TrainSettings))
    if found is None:
        return
    assert found.ends
    if found.span is not None:
        for share in (0, 0.3, 1):
            assert found.span.low <= float(found.span.at(share)) <= found.span.high, found


@quick
@given(device=words, pooling=words)
def test_names_of_devices_and_poolings(device: str, pooling: str) -> None:
    from isotrope.encoders.device import find_device
    from isotrope.encoders.modules import pooling_name

    refused_or(lambda: find_device(device))
    refused_or(lambda: pooling_name(pooling))


@quick
@given(name=st.text(string.printable, max_size=40) | words)
def test_names_of_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    from isotrope.encoders.names import resolve

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    if not name.startswith(("/", "~", ".")):
        assert refused_or(lambda: resolve(name)) is None or "minilm" in name.lower()
