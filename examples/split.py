"""Split a file of pairs into a part to train on and a part to test with.

    python examples/split.py faq.csv --columns question,answer --share 0.2

Pairs that share a text, directly or through other pairs, stay together, so that no test text is
trained on. If an answer has three or more questions on average, as in a FAQ, this is impossible.
Then only questions are split, and the test asks new questions about known answers. The same happens
if too many pairs are linked, as in chains of paraphrases; pairs whose positive is a question of the
test are then left out. Texts that differ only in case and in most punctuation count as one. --rows
150 gives the number of test pairs instead of their share. The number is exact, unless too many
pairs are linked. The parts are train.jsonl and test.jsonl, in the current folder or in --output;
existing files are not replaced.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from isotrope.core import InputError
from isotrope.data.sources import read
from isotrope.data.text.repeats import hash64, joined_groups, near_identical
from isotrope.data.text.views import QUESTIONS


def drawn(units: np.ndarray, rows: int, largest: int, seed: int) -> np.ndarray:
    """Return which pairs to test with: whole units of at most ``largest`` pairs, ``rows`` in all.

    A unit that would exceed the number is left out, so the result has fewer pairs only if all other
    units are too large.
    """
    _, unit, sizes = np.unique(units, return_inverse=True, return_counts=True)
    taken, left = np.zeros(len(sizes), bool), rows
    for one in np.random.default_rng(seed).permutation(len(sizes)):
        if sizes[one] <= min(left, largest):
            taken[one], left = True, left - sizes[one]
    return taken[unit]


def main() -> None:
    """Write both parts, and print their sizes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="tsv, csv, jsonl or parquet")
    parser.add_argument(
        "--columns",
        type=lambda names: names.split(","),
        help="the columns of question and answer: question,answer",
    )
    parser.add_argument("--output", type=Path, default=Path(), help="folder for both parts")
    parser.add_argument("--share", type=float, default=0.1, help="share of pairs to test with")
    parser.add_argument("--rows", type=int, help="number of pairs to test with, such as 150")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    train, test = options.output / "train.jsonl", options.output / "test.jsonl"
    if train.exists() or test.exists():
        parser.error(f"remove {train} and {test} first, or choose another --output")
    if not 0 < options.share < 1:
        parser.error(f"choose a --share between 0 and 1, such as 0.1; found {options.share:g}")
    try:
        records = list(read([options.file], columns=options.columns))
    except InputError as error:
        parser.error(str(error))
    rows = round(options.share * len(records)) if options.rows is None else options.rows
    marks = np.array(
        [[hash64(near_identical(text)) for text in record.texts[:2]] for record in records],
        np.uint64,
    )
    tested = drawn(joined_groups(marks), rows, max(1, rows // 10), options.seed)
    what = "no text of a test pair is in train.jsonl"
    answers = len(np.unique(marks[:, -1]))
    if len(np.unique(marks, axis=0)) >= QUESTIONS * answers or tested.sum() < rows / 4:
        tested = drawn(marks[:, 0], rows, rows, options.seed)
        what = "no question of test.jsonl is in train.jsonl, but answers are in both"
    trained = ~tested & ~np.isin(marks[:, -1], marks[tested, 0])
    if not trained.any() or not tested.any():
        empty = "test.jsonl" if trained.any() else "train.jsonl"
        parser.error(f"choose another --share or --rows: {empty} would be empty")
    options.output.mkdir(parents=True, exist_ok=True)
    asked = {near_identical(text) for i in np.flatnonzero(tested) for text in records[i].texts[:2]}
    negatives, left_out = max(len(record.texts) for record in records) > 2, 0
    for file, part in ((train, trained), (test, tested)):
        lines = []
        for texts in (records[i].texts for i in np.flatnonzero(part)):
            kept = list(texts[2:])
            if file == train:
                kept = [text for text in kept if near_identical(text) not in asked]
            left_out += len(texts) - 2 - len(kept)
            names = ("anchor", "positive") if len(texts) > 1 else ("text",)
            row = dict[str, object](zip(names, texts, strict=False))
            row |= {"negative": kept} if negatives else {}
            lines.append(json.dumps(row) + "\n")
        file.write_text("".join(lines), encoding="utf-8")
    print(f"{trained.sum()} pairs in train.jsonl, {tested.sum()} pairs in test.jsonl: {what}")
    if unused := (~tested & ~trained).sum():
        print(f"left out of train.jsonl: {unused} pairs whose positive is a question of the test")
    if left_out:
        print(f"left out of train.jsonl: {left_out} hard negatives that are texts of the test")


if __name__ == "__main__":
    main()
