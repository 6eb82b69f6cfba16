"""The seven STS tasks with invented pairs, as many as the real ones have, in both layouts."""

from pathlib import Path

YEARS = {
    "12": {
        "MSRpar": 750,
        "MSRvid": 750,
        "SMTeuroparl": 459,
        "surprise.OnWN": 750,
        "surprise.SMTnews": 399,
    },
    "13": {"FNWN": 189, "headlines": 750, "OnWN": 561},
    "14": {
        "deft-forum": 450,
        "deft-news": 300,
        "headlines": 750,
        "images": 750,
        "OnWN": 750,
        "tweet-news": 750,
    },
    "15": {
        "answers-forums": 375,
        "answers-students": 750,
        "belief": 375,
        "headlines": 750,
        "images": 750,
    },
    "16": {
        "answer-answer": 254,
        "headlines": 249,
        "plagiarism": 230,
        "postediting": 244,
        "question-question": 209,
    },
}
SPLITS = {"stsb": {"dev": 1500, "test": 1379}, "sickr": {"dev": 500, "test": 4927}}


def pairs(name: str, count: int) -> list[tuple[str, str, str]]:
    """Scores 1.0 to 4.0 and few distinct sentences, so that encoding them takes no time."""
    return [
        (f"{1 + (i * 7) % 31 / 10:.1f}", f"{name} boat {i % 9}", f"{name} river {i % 7}")
        for i in range(count)
    ]


def write_plain(folder: Path) -> Path:
    """``sts12/MSRpar.tsv`` ... ``sickr/test.tsv``."""
    for room, subsets in {**{f"sts{y}": s for y, s in YEARS.items()}, **SPLITS}.items():
        (folder / room).mkdir(parents=True)
        for name, count in subsets.items():
            rows = "".join("\t".join(pair) + "\n" for pair in pairs(name, count))
            (folder / room / f"{name}.tsv").write_text(rows)
    return folder


def write_senteval(folder: Path) -> Path:
    """``STS/STS12-en-test/STS.input.MSRpar.txt`` ... ``SICK/SICK_test_annotated.txt``.

    The years hold one pair more, without a score.
    """
    for year, subsets in YEARS.items():
        room = folder / "STS" / f"STS{year}-en-test"
        room.mkdir(parents=True)
        for name, count in subsets.items():
            rows = pairs(name, count)
            rows.insert(3, ("", "never", "scored"))
            (room / f"STS.input.{name}.txt").write_text("".join(f"{a}\t{b}\n" for _, a, b in rows))
            (room / f"STS.gs.{name}.txt").write_text("".join(f"{score}\n" for score, _, _ in rows))
    (folder / "STS" / "STSBenchmark").mkdir()
    (folder / "SICK").mkdir()
    for split, file in (("dev", "trial"), ("test", "test_annotated")):
        rows = pairs(split, SPLITS["stsb"][split])
        text = "".join(
            f"main\tMSRvid\t2012\t{i}\t{s}\t{a}\t{b}\n" for i, (s, a, b) in enumerate(rows)
        )
        (folder / "STS" / "STSBenchmark" / f"sts-{split}.csv").write_text(text)
        rows = pairs(split, SPLITS["sickr"][split])
        header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
        text = "".join(f"{i}\t{a}\t{b}\t{s}\tNEUTRAL\n" for i, (s, a, b) in enumerate(rows))
        (folder / "SICK" / f"SICK_{file}.txt").write_text(header + text)
    return folder
