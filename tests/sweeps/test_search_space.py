"""What a command line says of values is what they are."""

import pytest

from isotrope.core.errors import InputError
from isotrope.sweeps.search_space import Span, Varied, read_varied
from isotrope.sweeps.spec import RUNS
from isotrope.training.images.settings import ImageSettings
from isotrope.training.run_settings import RunSettings
from isotrope.training.settings import TrainSettings


def read(text: str) -> Varied:
    return read_varied(text, TrainSettings)


def test_values_stay_as_they_are_typed() -> None:
    assert read("learning-rate=1e-5, 3e-5").values == ("1e-5", "3e-5")
    assert read("learning_rate=1e-5") == Varied("learning-rate", ("1e-5",))
    assert read("objective.dissipation=margin:0.3,none").values == ("margin:0.3", "none")
    assert read_varied("method.decay=0.9,0.99", ImageSettings).name == "method.decay"


@pytest.mark.parametrize("settings", RUNS.values(), ids=RUNS)
def test_a_name_with_a_dot_is_kept_and_all_others_are_flags(settings: type[RunSettings]) -> None:
    dotted = settings.dotted_names()
    assert any("_" in name for name in dotted)
    for name in [*dotted, "objective.my_data.margin", "objective.my-data.margin"]:
        assert read_varied(f"{name}=1,2", settings).name == name
    for name in settings.model_fields.keys() - {"output", "seed", "progress", "devices"}:
        read = {read_varied(f"{way}=1,2", settings).name for way in (name, name.replace("_", "-"))}
        assert read == {name.replace("_", "-")}


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("learning-rate=1e-5..1e-4", Span(1e-5, 1e-4, log=True, integers=False)),
        ("learning-rate=1e-5..9e-5", Span(1e-5, 9e-5, log=False, integers=False)),
        ("learning-rate=1e-5..9e-5:log", Span(1e-5, 9e-5, log=True, integers=False)),
        ("weight-decay=0..1", Span(0, 1, log=False, integers=False)),
        ("weight-decay=1e-5..1:linear", Span(1e-5, 1, log=False, integers=False)),
        ("objective.margin=-1..1", Span(-1, 1, log=False, integers=False)),
        ("batch-size=16..64", Span(16, 64, log=False, integers=True)),
        ("micro-batch=2..64", Span(2, 64, log=True, integers=True)),
        ("objective.margin=1..5:whole", Span(1, 5, log=False, integers=True)),
    ],
)
def test_ranges(text: str, span: Span) -> None:
    assert read(text).span == span
    assert read(text).values == ()


def test_a_range_may_be_made_values_for_a_grid() -> None:
    assert read("learning-rate=1e-5..1e-3:3").values == ("1e-05", "0.0001", "0.001")
    assert read("weight-decay=0..1:5").values == ("0", "0.25", "0.5", "0.75", "1")
    assert read("batch-size=2..4:9:linear").values == ("2", "3", "4")  # none twice
    assert read("learning-rate=1e-5..1e-3:3").span is None


def test_ends_are_never_left_by_rounding() -> None:
    span = Span(1.23456e-5, 9.87654e-5, log=True, integers=False)
    for share in (0.0, 1e-9, 0.5, 1 - 1e-9, 1.0):
        assert span.low <= float(span.at(share)) <= span.high


def test_the_ends_of_a_range() -> None:
    assert read("learning-rate=1e-5..1e-4").ends == ("1e-05", "0.0001")
    assert read("objective=a,b").ends == ("a", "b")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("learning-rate", "takes NAME=VALUE,VALUE"),
        ("=3", "takes NAME=VALUE,VALUE"),
        ("learning-rate=", "takes NAME=VALUE,VALUE"),
        ("learning-rat=3", r"^vary: learning-rat: unknown setting \(did you mean"),
        ("learning-rate=1,,2", "empty or listed twice"),
        ("learning-rate=1,1", "empty or listed twice"),
        ("learning-rate=a..b", "LOW..HIGH, with two numbers"),
        ("learning-rate=1e-4..1e-5", "from a smaller to a larger"),
        ("learning-rate=1e-5..inf", "from a smaller to a larger"),
        ("learning-rate=-1e308..1e308", "from a smaller to a larger"),  # their difference overflows
        ("learning-rate=1e-5..1e-4:1", "write only :log, :linear, :whole"),
        ("learning-rate=1e-5..1e-4:linaer", "found 'linaer'"),
        ("weight-decay=0..1:log", "begin a logarithmic range above 0"),
        ("batch-size=1.5..3", "give whole numbers as the ends"),
        ("output=a,b", "its own folder"),
        ("seed=1,2", r"seeds=\[0, 1, 2\]"),
        ("devices=1,2", "use jobs=N, which"),
    ],
)
def test_what_means_nothing_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(text)
