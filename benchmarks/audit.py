"""Does the push ledger find rows that belong together, and what does it cost?

1. planted: pairs from docstrings (first sentence, rest). The rest of 60 of them is split in two,
   and the second half gets the words of the first sentence, turned by one word, so that 60 pairs of
   rows among 520 belong together. The anchors of a planted pair have the same words, so that the
   cosine of the anchors finds them by the planting itself; the other rankings compare an anchor
   with another row's positive. 3 seeds.
2. labelled: the sentences of MRPC (test) and SICK-R (test) as single texts with dropout. Pairs that
   people called paraphrases (MRPC), or scored 4.5 and more of 5 (SICK), belong together; those
   labelled otherwise do not. ../shared/data is needed (--data).
3. pictures: 2,000 pictures of CIFAR-10 with NT-Xent at temperature 0.1, by a small ResNet with
   random weights and by the same after 3 epochs of SimCLR on 5,000. Those of one class, a tenth of
   all pairs, count as belonging together; `precision` is that of the pairs that push each other
   most. 2 seeds.
   ../shared/data is needed, and 2 minutes of one core.
4. nearest: how much of the list that comparing all pairs gives is found where rows meet their
   nearest rows only. Rows are the halves of Wikipedia sentences, by the mean of the vectors that
   all-MiniLM-L6-v2 has for their tokens, weighted by rarity (384 numbers): a hard case, since the
   halves of a sentence have a mean cosine of 0.28. All pairs of 2,048 drawn rows are compared, and
   those of their partners: `belong` counts the pairs of the exact list that have one of them.
   ../shared/data is needed.
5. cost: seconds of one core and memory of the ledger on drawn embeddings in files, each in a
   process of its own; `megabytes` is the largest resident memory besides those files.

6. tasks: rows of one intent (banking77, clinc150) or of one cluster (parakqc_ko), of the test parts
   of ../shared/data/tasks.

Pairs are ranked by the evidence of the audit, by the reciprocal push, by the push of either row on
the other, by the cosine of anchor and positive, of the anchors and of the positives, and by the
relative margin (the cosine over that of the own positive); each is the larger of the two rows'
where it differs. `ap` is the average
precision over all pairs of rows, where what is not labelled counts as not belonging together, so
that it is a lower bound; `ap_labelled` is that over the labelled pairs alone. `flagged`,
`precision` and `recall` are those of `isotrope audit` as it comes (--suspect 0.6).

    OMP_NUM_THREADS=1 python benchmarks/audit.py [--only WORD] [--data DIR] [--csv FILE]

Rows that are in the CSV are kept: delete one to measure it again.
"""

import argparse
import csv
import gzip
import itertools
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import average_precision_score

import isotrope
import ledger
from corpus import STANDARD_LIBRARY, collect, fields
from isotrope.core.views import unit
from isotrope.diagnostics.audit import neighbours, push
from isotrope.diagnostics.audit.alike import alike
from isotrope.diagnostics.audit.rows import Embedded, embed_rows, read_rows
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.kernels.tiles import chunked_topk
from isotrope.objectives.infonce import InfoNCE

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = (
    *("part", "data", "seed", "score", "rows", "belong", "ap", "ap_labelled", "flagged"),
    *("precision", "recall", "dimension", "seconds", "megabytes"),
)
KEY = COLUMNS[:4]
ENCODER, SUSPECT, PUSHED, SEEDS = "all-MiniLM-L6-v2", 0.6, 0.1, (0, 1, 2)
SPLIT, OTHERS, LONG = 60, 400, 40  # docstrings, and words of one that is split
EPOCHS, TRAINED_ON, SHOWN, STRONGEST = 3, 5_000, 2_000, (100, 1_000)  # pictures, and pairs of them
COSTS, EVERY = (1_000, 10_000, 30_000, 50_000, 100_000, 500_000, 1_000_000), ", all pairs"
NEAREST, DRAWN, POSSIBLE = 100_000, 2_048, 0.02  # rows, some of them, push of a partner that counts

TASKS = ("banking77", "clinc150", "parakqc_ko")

Pairs = list[tuple[int, int]]


def planted(seed: int) -> tuple[list[tuple[str, str]], Pairs]:
    """Return rows, and which of them belong together."""
    items = collect((STANDARD_LIBRARY, "numpy"))
    random.Random(seed).shuffle(items)
    long = [item for item in items if len(item.target.split()) >= LONG][:SPLIT]
    names = {item.name for item in long}
    rows = []
    for item in long:
        words, query = item.target.split(), item.query.split()
        half = len(words) // 2
        rows.append((item.query, " ".join(words[:half])))
        rows.append((" ".join(query[1:] + query[:1]), " ".join(words[half:])))
    rows += [(item.query, item.target) for item in items if item.name not in names][:OTHERS]
    return rows, [(2 * i, 2 * i + 1) for i in range(len(long))]


def labelled(data: Path, name: str) -> tuple[list[str], Pairs, Pairs]:
    """Return the sentences, the pairs that belong together, and those that do not."""
    file = {"mrpc": "transfer/mrpc/test.tsv", "sick": "sts/sickr/test.tsv"}[name]
    places: dict[str, int] = {}
    pairs: tuple[Pairs, Pairs] = ([], [])
    for score, first, second in fields(data / file):
        i, j = sorted(places.setdefault(text.strip(), len(places)) for text in (first, second))
        if i != j:
            pairs[float(score) < (1 if name == "mrpc" else 4.5)].append((i, j))
    return list(places), *pairs


def task(folder: Path) -> tuple[list[tuple[str, str]], Pairs]:
    """Return up to 1,500 queries of a task's test part with a document, and which are of one kind.

    Two rows belong together if the same documents are right for both queries.
    """
    texts = [dict(fields(folder / f"{name}.tsv.gz")) for name in ("queries", "corpus")]
    right: dict[str, list[str]] = {}
    for query, document, grade in fields(folder / "qrels.tsv"):
        if float(grade) > 0:
            right.setdefault(query, []).append(document)
    queries = list(right)
    random.Random(0).shuffle(queries)
    members: dict[tuple[str, ...], list[int]] = {}
    rows = []
    for number, query in enumerate(queries[:1_500]):
        answers = right[query]
        own = members.setdefault(tuple(sorted(answers)), [])
        rows.append((texts[0][query], texts[1][answers[len(own) % len(answers)]]))
        own.append(number)
    return rows, [pair for own in members.values() for pair in itertools.combinations(own, 2)]


def rankings(embedded: Embedded, columns: int) -> dict[str, np.ndarray]:
    """Return the scores of all pairs of rows, n x n and symmetric, by their names."""
    n = len(embedded)
    book = push.ledger(embedded, InfoNCE(), None, keep=64)
    one_sided = np.zeros((n, n))
    np.put_along_axis(one_sided, book.partners, book.push * (book.partners >= 0), axis=1)
    push._ANCHORS, push._COLUMNS, usual = columns // 2, columns, (push._ANCHORS, push._COLUMNS)
    few = push.ledger(embedded, InfoNCE(), None, keep=64)
    push._ANCHORS, push._COLUMNS = usual
    a, p = (
        torch.nn.functional.normalize(x).numpy() for x in (embedded.anchors, embedded.positives)
    )
    cosines = a @ p.T
    own = np.maximum(np.diag(cosines), 0.05)[:, None]
    found, evidence = alike(embedded, neighbours.nearest(embedded), book), np.full((n, n), -10.0)
    evidence[tuple(found.rows.T)] = found.evidence
    several = {
        "evidence": evidence,
        "reciprocal push": reciprocal(book),
        f"reciprocal push in {columns} rows": reciprocal(few),
        "push": one_sided,
        "cosine": cosines,
        "relative margin": cosines / own,
    }
    symmetric = {name: np.maximum(x, x.T) for name, x in several.items()}
    return {**symmetric, "cosine of anchors": a @ a.T, "cosine of positives": p @ p.T}


def reciprocal(book: push.Ledger) -> np.ndarray:
    """Return the reciprocal push of each two rows (n x n) that are among each other's partners."""
    n = len(book.partners)
    rows = np.stack([np.repeat(np.arange(n), book.partners.shape[1]), book.partners.ravel()], 1)
    rows = rows[rows[:, 1] >= 0]
    both = np.zeros((n, n))
    both[tuple(rows.T)] = push.mutual_push(book, rows)[0]
    return both


def scored(embedded: Embedded, together: Pairs, apart: Pairs | None) -> list[dict[str, Any]]:
    """Return one row for each ranking."""
    n = len(embedded)
    truth = np.zeros((n, n), bool)
    truth[tuple(np.array(together).T)] = True
    above = np.triu_indices(n, 1)
    known = None if apart is None else tuple(np.array([*together, *apart]).T)
    rows = []
    for name, score in rankings(embedded, 64).items():
        row: dict[str, Any] = {"score": name, "rows": n, "belong": len(set(together))}
        row["ap"] = round(average_precision_score(truth[above], score[above]), 3)
        if known is not None:
            row["ap_labelled"] = round(average_precision_score(truth[known], score[known]), 3)
        if name == "evidence":
            flagged = score[above] >= SUSPECT
            row["flagged"] = int(flagged.sum())
            row["precision"] = (
                round(float(truth[above][flagged].mean()), 3) if flagged.any() else ""
            )
            row["recall"] = round(float(truth[above][flagged].sum() / truth.sum()), 3)
        rows.append(row)
    return rows


def pictures(folder: Path, epochs: int, seed: int) -> list[dict[str, Any]]:
    """Return how often the pairs of pictures that push each other most are of one class."""
    data, net = folder / "cifar10", {"encoder": "resnet9", "width": 16}
    with tempfile.TemporaryDirectory() as run:
        if epochs:
            isotrope.fit_images(
                data,
                **net,
                limit=TRAINED_ON,
                epochs=epochs,
                seed=seed,
                linear=False,
                knn_every=0,
                output=run,
            )
            net = {"encoder": run}
        audit = isotrope.audit_images(data, **net, limit=SHOWN, seed=seed)
    assert audit.same_label is not None
    pairs = audit.pictures.labels[audit.alike.rows]
    same = pairs[:, 0] == pairs[:, 1]
    every = SHOWN * (SHOWN - 1) // 2
    shared = {"rows": SHOWN, "belong": round(audit.same_label["all"] * every)}
    return [
        {"score": f"strongest {count}", **shared, "precision": round(float(same[:count].mean()), 3)}
        for count in STRONGEST
    ] + [{"score": "evidence", **shared, "flagged": audit.suspects}]


def halves(file: Path, n: int) -> Embedded:
    """Return both halves of n sentences, each the mean of the vectors of its tokens."""
    encoder = SentenceEncoder.load(ENCODER, device="cpu")
    ids = torch.arange(len(encoder.tokenizer))[:, None]
    ends = [encoder.tokenizer.cls_token_id, encoder.tokenizer.sep_token_id]
    rows = torch.cat([torch.full_like(ids, ends[0]), ids, torch.full_like(ids, ends[1])], dim=1)
    with torch.inference_mode():
        table = torch.cat([encoder(part, torch.ones_like(part)) for part in rows.split(512)])
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        words = [line.split() for line in itertools.islice(lines, n)]
    texts = [" ".join(each[: len(each) // 2]) for each in words]
    texts += [" ".join(each[len(each) // 2 :]) for each in words]
    tokens = [torch.tensor(row[1:-1]) for row in encoder.tokenize(texts, 64)[0]]
    flat, starts = torch.cat(tokens), np.cumsum([0, *map(len, tokens)])[:-1]
    share = flat.bincount(minlength=len(table)) / len(flat)
    table = (table - share @ table) * (1e-3 / (1e-3 + share))[:, None]
    vectors = torch.nn.functional.embedding_bag(flat, table, torch.from_numpy(starts), mode="mean")
    return Embedded(vectors[:n], vectors[n:], torch.arange(n))


def nearest(embedded: Embedded) -> list[dict[str, Any]]:
    """Return how much of the exact list of some rows is found."""
    n = len(embedded)
    drawn = torch.randperm(n, generator=torch.Generator().manual_seed(0))[:DRAWN]
    exact, seconds = book_of(embedded, drawn)
    possible = np.unique(exact.partners[drawn][exact.push[drawn] >= POSSIBLE])
    others = torch.from_numpy(np.setdiff1d(possible, drawn.numpy()))
    more, spent = book_of(embedded, others)
    for name in ("partners", "push", "force"):
        getattr(exact, name)[others] = getattr(more, name)[others]
    pairs = np.stack(
        [drawn.numpy().repeat(exact.partners.shape[1]), exact.partners[drawn].ravel()], 1
    )
    pairs = np.unique(np.sort(pairs[pairs[:, 1] >= 0], axis=1), axis=0)
    pairs = pairs[push.mutual_push(exact, pairs)[0] >= PUSHED]
    start = time.process_time()
    near = neighbours.nearest(embedded)
    book = push.ledger(embedded, InfoNCE(), near)
    took = time.process_time() - start
    have = push.mutual_push(book, pairs)[0]
    shared = {"rows": n, "belong": len(have), "dimension": embedded.anchors.shape[1]}
    rows: list[dict[str, Any]] = [
        {
            "score": f"push from {least:g}",
            **shared,
            "recall": round(float((have >= least).mean()), 3),
        }
        for least in (1e-9, PUSHED / 4, PUSHED / 2, PUSHED)
    ]
    rows[0]["seconds"] = round(took, 1)
    all_pairs = {"score": "all pairs of some rows", **shared, "seconds": round(seconds + spent)}
    return [*rows, all_pairs, {**shared, **listed(embedded, near, book, drawn)}]


def listed(
    embedded: Embedded, near: neighbours.Near, book: push.Ledger, drawn: torch.Tensor
) -> dict[str, Any]:
    """Return how much of what the exact evidence lists, of some rows, the audit lists."""
    a, p = unit(embedded.anchors), unit(embedded.positives)
    sides = ((a, a), (p, p), (a, p), (p, a))

    def nearest_of(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cosines with the 20 nearest of all rows, and these, both 4 x rows x 20."""
        count = neighbours.NEAREST
        found = torch.zeros(4, len(rows), count), torch.zeros(4, len(rows), count).long()
        for place in torch.arange(len(rows)).split(512):
            for side, (one, other) in enumerate(sides):
                tile = one[rows[place]] @ other.T
                tile[torch.arange(len(place)), rows[place]] = -torch.inf
                found[0][side, place], found[1][side, place] = chunked_topk(tile, count)
        return found

    cosines, places = nearest_of(drawn)
    usual = torch.zeros(4, len(a))  # no row is below 0, so none is left out too early
    usual[:, drawn] = cosines.mean(dim=2)
    side, row, slot = (2 * cosines - usual[:, drawn, None] >= SUSPECT).nonzero().unbind(dim=1)
    pairs = torch.stack([drawn[row], places[side, row, slot]], dim=1).sort(dim=1).values
    pairs = pairs.unique(dim=0)
    rest = pairs[~torch.isin(pairs, drawn)].unique()
    usual[:, rest] = nearest_of(rest)[0].mean(dim=2)
    i, j = pairs.unbind(dim=1)
    cosines = torch.stack([(one[i] * other[j]).sum(dim=1) for one, other in sides])
    above = (2 * cosines - usual[:, i] - usual[[0, 1, 3, 2]][:, j]) / 0.05
    right = {*map(tuple, pairs[0.05 * (above.logsumexp(dim=0) - np.log(4)) >= SUSPECT].tolist())}
    found = alike(embedded, near, book)
    mine = found.rows[(found.evidence >= SUSPECT) & np.isin(found.rows, drawn).any(axis=1)]
    both = right & {*map(tuple, mine.tolist())}
    return {
        "score": f"evidence from {SUSPECT}",
        "belong": len(right),
        "flagged": len(mine),
        "precision": round(len(both) / max(len(mine), 1), 3),
        "recall": round(len(both) / max(len(right), 1), 3),
    }


def book_of(embedded: Embedded, some: torch.Tensor) -> tuple[push.Ledger, float]:
    """Return the exact ledger of some rows alone, and the seconds that it took."""

    def meetings(order: torch.Tensor) -> Any:
        for rows in some.split(push._ANCHORS):
            others = order[~torch.isin(order, rows)]
            for part in others.tensor_split(-(-len(others) // (push._COLUMNS - len(rows)))):
                columns = torch.cat([rows, part])
                yield rows, columns, torch.arange(len(columns)) >= len(rows)

    usual, start = (push._rectangles, neighbours._EXACT), time.process_time()
    push._rectangles, neighbours._EXACT = meetings, len(embedded)
    book = push.ledger(embedded, InfoNCE(), None)
    push._rectangles, neighbours._EXACT = usual
    return book, time.process_time() - start


def in_file(path: Path, n: int, d: int, seed: int, of: torch.Tensor | None = None) -> torch.Tensor:
    """Return drawn embeddings in a file that is mapped, around others where they are given."""
    draw = torch.Generator().manual_seed(seed)
    rows = torch.from_numpy(np.lib.format.open_memmap(path, "w+", np.float32, (n, d)))
    for part in torch.arange(n).split(10_000):
        rows[part] = torch.randn(len(part), d, generator=draw) + (0 if of is None else of[part])
    return rows


def cost(n: int, d: int) -> dict[str, Any]:
    """Return seconds and peak memory of the ledger; call it in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        anchors = in_file(Path(folder) / "anchors.npy", n, d, 0)
        positives = in_file(Path(folder) / "positives.npy", n, d, 1, anchors)
        embedded = Embedded(anchors, positives, torch.arange(n))
        over, peaks = threading.Event(), [resident()]

        def watch() -> None:
            while not over.wait(0.05):
                peaks.append(resident())

        watching = threading.Thread(target=watch)
        watching.start()
        start = time.process_time()
        near = neighbours.nearest(embedded)
        alike(embedded, near, push.ledger(embedded, InfoNCE(), near))
        seconds = time.process_time() - start
        over.set()
        watching.join()
    return {"rows": n, "dimension": d, "seconds": round(seconds, 1), "megabytes": round(max(peaks))}


def resident() -> float:
    """Return the MB that are resident, without those of files."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("RssAnon:")[2].split()[0]) / 1024


def measure(part: str, data: str, seed: str, folder: Path) -> list[dict[str, Any]]:
    """Return the rows of one measurement."""
    if part == "cost":
        command = [sys.executable, __file__, "--cost", *data.split(" x ")]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        return [dict(zip(COLUMNS, next(csv.reader([done.stdout])), strict=True))]
    if part == "nearest":
        return nearest(halves(folder / "corpus" / "wiki_en_1m.txt.gz", NEAREST))
    if part == "pictures":
        return pictures(folder, int(data.split()[1]), int(seed))
    encoder = SentenceEncoder.load(ENCODER, device="cpu")
    if part == "planted":
        pairs, together = planted(int(seed))
        embedded = embed_rows(encoder, read_rows(pairs), max_length=64)
        return scored(embedded, together, None)
    if part == "tasks":
        pairs, together = task(folder / "tasks" / data)
        return scored(embed_rows(encoder, read_rows(pairs), max_length=128), together, None)
    texts, together, apart = labelled(folder, data)
    return scored(embed_rows(encoder, read_rows(texts), max_length=64), together, apart)


def main() -> None:
    """Measure what is not in the CSV."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", metavar="WORD")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--csv", type=Path, default=Path(__file__).with_suffix(".csv"))
    parser.add_argument("--cost", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.cost:
        row = {"part": "cost", "data": " x ".join(options.cost), "seed": "0", "score": "ledger"}
        n, d, every = int(options.cost[0]), *options.cost[1].partition(EVERY)[:2]
        if every:
            neighbours._EXACT = n
        csv.DictWriter(sys.stdout, COLUMNS, restval="").writerow({**row, **cost(n, int(d))})
        return
    jobs = [("planted", "docstrings", str(seed)) for seed in SEEDS]
    jobs += [("labelled", name, "0") for name in ("mrpc", "sick")]
    jobs += [("tasks", name, "0") for name in TASKS]
    jobs += [
        ("pictures", f"cifar10, {epochs} epochs", str(seed))
        for seed in SEEDS[:2]
        for epochs in (0, EPOCHS)
    ]
    jobs += [("nearest", "halves of wikipedia sentences", "0")]
    jobs += [("cost", f"{n} x 384", "0") for n in COSTS] + [("cost", f"100000 x 384{EVERY}", "0")]
    rows: list[dict[str, Any]] = [*ledger.read(options.csv)]
    for job in jobs:
        if options.only not in " ".join(job) or any(job == tuple(r.values())[:3] for r in rows):
            continue
        new = measure(*job, options.data)
        rows += [{**dict(zip(COLUMNS, job, strict=False)), **row} for row in new]
        ledger.write(options.csv, COLUMNS, rows)
        for row in new:
            print(", ".join(f"{key} {value}" for key, value in {**row}.items() if value != ""))


if __name__ == "__main__":
    main()
