"""Writing a token store: what goes in comes out, once; counts, hold-out, prompts, full disks."""

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from isotrope.core.errors import InputError
from isotrope.data.sources import read
from isotrope.data.text import store_writer
from isotrope.data.text.store_writer import StoreSettings, build, mark_repeated, read_part
from isotrope.data.text.views import held_out_together

from ..conftest import VOCABULARY, Make, ids, records, stored, tokenize


def test_texts_come_back_in_file_order(make: Make) -> None:
    texts = [f"text number {i}" for i in range(2500)]  # more than two batches of the tokenizer
    store = make(texts)
    assert len(store) == 2500
    assert store.columns == 1
    assert stored(store) == [ids(text) for text in texts]
    picked = store.rows(np.array([7, 3, 7]), 0)
    assert [row.tolist() for row in picked] == [ids(texts[i]) for i in (7, 3, 7)]
    assert store.report.views == "dropout"
    assert store.report.tokens == sum(len(ids(text)) for text in texts)


@pytest.mark.parametrize("columns", [2, 3])
def test_pairs(make: Make, columns: int) -> None:
    pairs = [tuple(f"{side} {i}" for side in "apn"[:columns]) for i in range(50)]
    store = make(pairs)
    assert store.columns == columns
    for column in range(columns):
        assert stored(store, column) == [ids(pair[column]) for pair in pairs]


def test_adjacent_texts_are_stored_once(make: Make) -> None:
    store = make(["a", "b", "c", "d", None, "e", "f", None, "g"], views="adjacent")
    assert stored(store, 0) == [ids(text) for text in "abce"]
    assert stored(store, 1) == [ids(text) for text in "bcdf"]
    assert store.report.texts == 6
    assert store.report.views == "adjacent"


def test_prompts(make: Make) -> None:
    store = make([("a", "b", "c"), ("d", "e", "f")], prompts=("find ", "text "))
    assert stored(store, 0) == [ids("find a"), ids("find d")]
    assert stored(store, 1) == [ids("text b"), ids("text e")]
    assert stored(store, 2) == [ids("text c"), ids("text f")]
    adjacent = make(["a", "b", "c"], views="adjacent", prompts=("find ", "text "))
    assert stored(adjacent, 0) == [ids("find a"), ids("find b")]
    assert stored(adjacent, 1) == [ids("text b"), ids("text c")]


def test_exact_duplicates_are_dropped_and_counted(make: Make) -> None:
    store = make(["a", "b", "a", "A", "b", "a"])
    assert stored(store) == [ids("a"), ids("b"), ids("A")]
    assert store.report.duplicates_dropped == 3
    assert store.report.records == 6
    groups = store.text_marks(np.arange(3), 0)
    assert groups.dtype == np.uint64
    assert groups[0] == groups[2] != groups[1]  # near-identical ones stay, marked


def test_a_pair_is_a_duplicate_only_as_a_whole(make: Make) -> None:
    store = make([("a", "b"), ("a", "c"), ("b", "a"), ("a", "b")])
    assert len(store) == 3
    assert store.text_marks(np.arange(3), 0)[2] == store.text_marks(np.arange(3), 1)[0]


@pytest.mark.parametrize("chunk", [3, 1 << 16])
def test_holdout_and_duplicates_over_chunks(
    make: Make, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(store_writer, "CHUNK", chunk)
    texts = [f"text {i % 40}" for i in range(100)]
    store = make(texts, holdout=0.3, seed=1)
    held = [text for (text,) in store.held_out()]
    assert len(held) == len(set(held)) == store.report.held_out > 3
    kept = [text for text in dict.fromkeys(texts) if text not in held]
    assert stored(store) == [ids(text) for text in kept]
    assert store.report.duplicates_dropped == 60
    assert len(store) + store.report.held_out == 40
    assert held == [text for text in dict.fromkeys(texts) if text in held]  # file order


def test_held_out_texts_survive_any_characters(make: Make) -> None:
    texts = [f'{i}\u2028"\\\n𝄞' for i in range(50)]
    store = make(texts, holdout=0.5)
    assert {text for (text,) in store.held_out()} <= set(texts)
    assert store.report.held_out > 10


def test_truncation_is_reported(make: Make) -> None:
    store = make(["a b c d", "a", "b", "c"], max_length=4)
    assert store.report.truncated_share == 0.25
    assert store.report.max_length == 4
    assert stored(store)[0] == ids("a b", 4)


def test_texts_without_tokens_are_left_out(make: Make) -> None:
    store = make([("a", "b"), ("@", "b"), ("c", "@"), ("e", "f")])
    assert stored(store, 0) == [ids("a"), ids("e")]
    assert store.report.empty_skipped == 2


def test_rows_left_out_for_other_reasons_are_not_counted_as_empty(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\na,1\nb,1\n,1\nc,\nd,2\ne,2\n")
    settings = StoreSettings(vocabulary=VOCABULARY, max_length=16)
    store = build(tmp_path / "store", read([tmp_path / "a.csv"]), tokenize, settings)
    assert (len(store), store.report.empty_skipped) == (4, 1)


@pytest.mark.parametrize("scored", [False, True])
def test_negatives_that_are_held_out_are_dropped_or_counted(
    tmp_path: Path, *, scored: bool
) -> None:
    """Each negative is the positive of another pair, before or after it."""
    names = [f"answer {i}" for i in range(200)]
    rows = [(f"question {i}", names[i], f"{names[i - 1]}!", f"extra {i}") for i in range(200)]
    made = [record._replace(scores=(0.9, 0.2, 0.1)) for record in records(*rows)]
    held = held_out_together(made, 0.2, seed=0)
    settings = StoreSettings(vocabulary=VOCABULARY, max_length=16, holdout=0.2, scored=scored)
    store = build(tmp_path / "store", made, tokenize, settings, held=held)
    out = [*store.held_out()]
    assert len(out) > 30
    assert len(store) + len(out) == 200
    every, dropped = np.arange(len(store)), store.report.negatives_dropped
    counts = np.bincount(store.owners(every), minlength=len(store))
    assert 2 * len(store) - counts.sum() == dropped
    assert (dropped > 20) != scored  # a loss of scores needs as many texts in each record
    assert (store.trained_on(out).sum() > 20) == scored


def test_large_vocabularies_take_four_bytes(make: Make) -> None:
    def big(texts: list[str], max_length: int) -> tuple[list[list[int]], int]:
        return [[70_000 + len(text)] for text in texts], 0

    folder = make(["x", "y"]).folder
    store = build(folder, records("a", "bb"), big, StoreSettings(vocabulary=80_000, max_length=4))
    assert stored(store) == [[70_001], [70_002]]
    assert (folder / "tokens.bin").stat().st_size == 8


def test_fingerprint_follows_texts_and_order(make: Make) -> None:
    prints = [make(texts).report.fingerprint for texts in (["a", "b"], ["a", "b"], ["b", "a"])]
    assert prints[0] == prints[1] != prints[2]
    assert len(prints[0]) == 16


def test_progress_counts_every_record(make: Make) -> None:
    seen: list[int] = []
    make([f"{i}" for i in range(2300)], progress=seen.append)
    assert sum(seen) == 2300


def test_many_long_texts_are_tokenised_in_small_batches(make: Make, tmp_path: Path) -> None:
    sizes: list[int] = []

    def counting(texts: list[str], max_length: int) -> tuple[list[list[int]], int]:
        sizes.append(sum(map(len, texts)))
        return tokenize(texts, max_length)

    long = [f"{i} " + "x" * 90_000 for i in range(40)]
    build(
        tmp_path / "s", records(*long), counting, StoreSettings(vocabulary=VOCABULARY, max_length=4)
    )
    assert len(sizes) == 4
    assert max(sizes) < 1_100_000


@pytest.mark.parametrize(
    ("texts", "settings", "found"),
    [
        ([], {}, "found 0"),
        (["a"], {}, "found 1 .of 1: 0 repeated"),
        (["a", "a", "a"], {}, "found 1 .of 3: 2 repeated"),
        (["a", None, "b"], {"views": "adjacent"}, "found 0"),
        ([f"{i}" for i in range(5)], {"holdout": 0.999999}, "found 0 .of 5: 0 repeated, 5 held"),
        (["@", "@@"], {}, "found 1 .of 2: 0 repeated, 0 held out, 1 empty"),
    ],
)
def test_too_little_text(make: Make, tmp_path: Path, texts, settings, found: str) -> None:
    with pytest.raises(InputError, match=f"at least 2 different records; {found}"):
        make(texts, **settings)
    assert list(tmp_path.iterdir()) == []  # nothing half-written


@pytest.mark.parametrize("holdout", [-0.1, 1.0, 7])
def test_holdout_is_a_share(make: Make, holdout: float) -> None:
    with pytest.raises(InputError, match="set holdout to a share from 0 to less than 1"):
        make(["a", "b"], holdout=holdout)


def test_views_must_fit(make: Make) -> None:
    with pytest.raises(InputError, match="use views='pairs'"):
        make([("a", "b")] * 3, views="dropout")


def test_a_failing_tokenizer_leaves_nothing(tmp_path: Path) -> None:
    def failing(texts: list[str], max_length: int) -> tuple[list[list[int]], int]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "s", records("a", "b"), failing, StoreSettings(vocabulary=9, max_length=4))
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_an_input_error(tmp_path: Path) -> None:
    script = """
        import resource, signal, sys
        from pathlib import Path
        from isotrope.core.errors import InputError
        from isotrope.data.records import Record
        from isotrope.data.text.store_writer import StoreSettings, build
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        records = (Record((f"text {i}",), Path("t.txt"), i + 1, i == 0) for i in range(50_000))
        try:
            build(Path(sys.argv[1], "store"), records, lambda t, m: ([[1, 2]] * len(t), 0),
                  StoreSettings(vocabulary=9, max_length=4))
        except InputError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "cannot write" in done.stdout
    assert "file too large" in done.stdout
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow  # seconds
def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    """Ten times the lines must not take more memory (peak of a process of its own)."""
    script = """
        import resource, sys
        from pathlib import Path
        from isotrope.data.sources import read
        from isotrope.data.text.store_writer import StoreSettings, build
        folder, count = Path(sys.argv[1]), int(sys.argv[2])
        with (folder / "a.txt").open("w") as handle:
            for i in range(count):
                handle.write(f"line {i % (count - 100)} of a corpus that does not fit\\n")
        store = build(folder / "store", read([folder / "a.txt"]),
                      lambda texts, length: ([[5] * 12] * len(texts), 0),
                      StoreSettings(vocabulary=9, max_length=32, holdout=0.05))
        assert store.report.duplicates_dropped == 100, store.report
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    """
    peaks = []
    for count in (20_000, 200_000):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script), str(tmp_path), str(count)],
            capture_output=True,
            text=True,
            check=True,
        )
        peaks.append(int(done.stdout))
    # kilobytes; what stays is one bucket of hashes (a megabyte at this size, 40 at most), while
    # the texts of 180,000 more lines are 9 MB, and as Python objects 20
    assert peaks[1] - peaks[0] < 8_000


def test_groups_are_kept_beside_held_out_and_repeated_records(make: Make) -> None:
    texts = [("a " * (1 + i % 7) + "b " * (1 + i // 7), f"p {i}") for i in range(40)]
    groups = [f"g{i % 5}" for i in range(40)]
    plain = make(texts, holdout=0.3).report
    store = make([*texts, texts[0]], groups=groups, grouped=True, holdout=0.3)
    kept = [ids(anchor) for anchor, _ in texts]
    numbers = [kept.index(row) for row in stored(store)]
    assert len(store) == plain.kept < 40
    (labels,) = store.group_marks(np.arange(len(store)))
    for i, a in zip(numbers, labels, strict=True):
        assert [groups[j] == groups[i] for j in numbers] == (labels == a).tolist()
    assert store.report.fingerprint != plain.fingerprint
    marks = store.held_out_groups
    assert marks is not None
    names = [groups[int(positive[2:])] for _, positive in store.held_out()]
    assert len(names) == len(marks) > 5
    for name, mark in zip(names, marks, strict=True):
        assert [other == name for other in names] == (marks == mark).tolist()
    assert make(texts, holdout=0.3).held_out_groups is None
    other = make([*texts, texts[0]], groups=groups[::-1], grouped=True, holdout=0.3)
    assert other.report.fingerprint != store.report.fingerprint
    assert make(texts).group_marks(np.arange(3)) == []


@pytest.mark.parametrize("chunk", [3, 1 << 16])
def test_groups_that_go_with_duplicates_are_counted(
    make: Make, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(store_writer, "CHUNK", chunk)
    texts = ["a", "b", "a", "a", "a", "b", "a", "c", "c"]
    groups = ["A", "", "B", "B", "A", "C", "", "", ""]  # dropped: B of a, and C of b
    store = make(texts, groups=groups, grouped=True)
    assert (store.report.groups_dropped, store.report.duplicates_dropped) == (2, 6)
    assert not list(store.folder.glob("*.all"))
    assert make(texts).report.groups_dropped == 0
    assert make(texts, groups=["A"] * 9, grouped=True).report.groups_dropped == 0


def test_adjacent_texts_have_no_groups(make: Make) -> None:
    with pytest.raises(
        InputError, match=r"t\.txt, line 1: use .*: an adjacent pair joins two records"
    ):
        make(["a", "b", "c"], groups=["x"], views="adjacent", grouped=True)


@pytest.mark.parametrize("bucket", [3, 50, 1 << 20])
@pytest.mark.parametrize("chunk", [7, 1 << 16])
def test_marks_all_but_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: int, chunk: int
) -> None:
    monkeypatch.setattr(store_writer, "_BUCKET", bucket)
    monkeypatch.setattr(store_writer, "CHUNK", chunk)
    random = np.random.default_rng(0)
    # one value very often: a bucket must not grow with its repetitions
    hashes = np.where(random.random(400) < 0.4, 12, random.integers(0, 150, 400)).astype(np.uint64)
    hashes[5] = 2**64 - 1
    hashes.tofile(tmp_path / "hashes")
    mark_repeated(tmp_path / "hashes", tmp_path / "marks", len(hashes))
    expected = [int(value in hashes[:i]) for i, value in enumerate(hashes)]
    assert read_part(tmp_path / "marks", np.uint8, 0, 1000).tolist() == expected


def test_nothing_to_mark(tmp_path: Path) -> None:
    mark_repeated(tmp_path / "none", tmp_path / "marks", 0)
    assert (tmp_path / "marks").read_bytes() == b""
