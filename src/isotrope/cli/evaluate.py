"""``isotrope evaluate``: score an encoder, or compare several."""

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from isotrope.cli.command import Command, as_json
from isotrope.core.errors import InputError, SettingError
from isotrope.core.files import check_outputs, write_text
from isotrope.core.legible import counted, csv_text
from isotrope.core.run_folder import RunFolder
from isotrope.core.settings import Used, setting
from isotrope.encoders.names import existing, is_bm25, resolve
from isotrope.evaluation.options import DATA, OF_LABELS, Evaluation

if TYPE_CHECKING:
    from isotrope.evaluation.embed import Encoder

_KNOWN = 1_000_000  # records of a run's data that are compared with the queries

EPILOG = """\
examples:
  isotrope evaluate runs/wiki --sts DIR
  isotrope evaluate all-MiniLM-L6-v2 --sts DIR --transfer DIR --json
  isotrope evaluate runs/p --retrieval pairs.tsv --corpus answers.txt
  isotrope evaluate runs/p --labels train.tsv --labels-test test.tsv --knn --linear
  isotrope evaluate --compare runs/a runs/b runs/c --sts DIR --csv table.csv
  isotrope evaluate runs/images --knn --linear
  isotrope evaluate --compare runs/images runs/cut --knn --labels pictures/

--sts takes a folder with sts12/*.tsv ... sts16/*.tsv, stsb/test.tsv and sickr/test.tsv, each line
score<TAB>sentence1<TAB>sentence2; or SentEval's folder downstream; or one file of scored pairs
(tsv, csv, jsonl, parquet with columns score, sentence1, sentence2). The result is 100 x Spearman's
correlation of the cosines with the scores of the file. As in SimCSE, all pairs of a year are scored
together ("all"), and STS-B and SICK-R are scored on their test splits. --json also prints the
results for every subset and their means, the dev splits, Pearson's correlation, and the results by
dot product and by Euclidean and Manhattan distance.

--transfer takes a folder with mr, cr, subj, mpqa, sst2, trec and mrpc. A linear classifier is
trained on frozen embeddings, with the folds, seeds and early stopping of SentEval. Papers report
scores with --mode full; --mode prototyping is faster. --tasks MR TREC scores only these two tasks.

--retrieval takes a file of pairs (--columns names the two columns), and ranks the second texts of
all pairs for each first text. Each labelled text is a query: others of its label are right. The
fewer texts are ranked, the higher the scores. If your search will rank other texts too, name a file
with these texts as --corpus: single texts, or pairs, of which all texts but the first are ranked;
if both files have labels, only these are ranked. --retrieval also takes a folder with the files
queries.jsonl and corpus.jsonl ({"_id": ..., "text": ...} on each line), or queries.tsv and
corpus.tsv (id<TAB>text); and qrels.tsv or qrels/test.tsv (query id, document id, gain; with or
without a header). The files may end in .gz. To compare with BM25, which ranks texts by the words
they share with the query, write bm25 as a model: --compare bm25 runs/p (needs the extra bm25).
recall@k is the share of a query's right answers in the first k: with two, recall@1 is at most 50.

--labels takes lines label<TAB>text, or .csv, .tsv, .jsonl or .parquet with columns text and label
(--columns names others): a training file, with a test file in --labels-test; a single file, of
which a fifth is the test part; or a folder with the files train and test. --knn predicts the label
by a vote of the 200 nearest neighbours, weighted by exp(cosine/0.1): the nearest decide. --linear
trains a linear classifier on the frozen embeddings. Without --knn and --linear, both are done. For
an image encoder, --labels takes pictures: a folder with a folder for each class, .npz, or other
data of train-images. Without --labels, a run on images is scored on the data of the run.

--compare shows the models side by side. For every score, a paired bootstrap over the scored items
tests whether a model differs from the first model by more than noise; the p-values are corrected
for the number of scores (Holm's method), for each model on its own: other models in the table do
not change them. Noise is the variation between test sets, not between training seeds.

--dimensions and --precision show how far the score falls with smaller vectors. The table compares
every combination of both with the full vectors, and has the size of one vector in bytes. int8
stores each coordinate as one of 256 values; binary stores only the sign of each coordinate.

--card writes the scores into the model card of the run, as a table and as metadata for the hub.
With --compare, the table has all models.

The scores of finished tasks are stored in the folder --results. By default, this is RUN/evaluations
for a run, and your cache folder for other models. If you repeat the command, a task with the same
weights, data and protocol is not computed again. --again computes all tasks again.
"""

_of_labels = Used(lambda labelled: labelled, "needs labelled texts: `--labels FILE`")


class EvaluateSettings(Evaluation):
    """Settings of ``isotrope evaluate``. With neither ``knn`` nor ``linear``, both are computed."""

    model: str | None = setting(
        None,
        "Run folder, model folder, Hugging Face id, all-MiniLM-L6-v2 if installed, or bm25.",
        "MODEL",
        positional=True,
        used=Used(lambda compare: not compare, "name all models after `--compare`"),
    )
    compare: list[str] = setting([], "Models to show side by side.", "MODEL", many=True)
    metric: str = setting(
        "",
        "Score that decides, such as ndcg@10. Choose it in advance: its p-value is not corrected.",
        "SCORE",
        used=Used(lambda compare: compare, "needs `--compare`"),
    )
    knn: bool = setting(False, "Score kNN on --labels.", group=DATA, used=_of_labels)
    linear: bool = setting(False, "Score a linear probe on --labels.", group=DATA, used=_of_labels)
    dimensions: list[int] = setting(
        [], "Lengths of text embeddings to compare, such as 384 256 128.", "N", many=True
    )
    precision: list[Literal["float32", "int8", "binary"]] = setting(
        [], "Precisions of stored embeddings to compare.", many=True
    )
    as_json: bool = as_json()
    csv: Path | None = setting(None, "CSV file to write the scores to.")
    queries: Path | None = setting(
        None,
        "CSV file to write: for each query of --retrieval, its right answers (a JSON list), the "
        "rank of the best-ranked one (empty if above 100), and the text that is ranked first. For "
        "labelled texts, it has their labels, too.",
        "FILE",
        used=Used(lambda retrieval: retrieval, "needs `--retrieval`, of pairs or labelled texts"),
    )
    card: bool = setting(
        False, "Write the scores, or the table of --compare, into the model card of the run."
    )


def evaluate(settings: EvaluateSettings) -> int:
    """Evaluate, and print tables or JSON."""
    models = settings.compare or ([settings.model] if settings.model else [])
    _check_models(models, settings)
    position, card = _find_card(models, settings) if settings.card else (0, None)
    for file in filter(None, (settings.csv, settings.queries)):  # before anything is scored
        check_outputs(file.parent, [file.name], [*settings.data.values()])
    from isotrope.evaluation.compare import compare, named_apart
    from isotrope.evaluation.dispatch import score_model, text_tasks
    from isotrope.evaluation.retrieval import query_changes
    from isotrope.evaluation.tables import comparison, csv_rows, query_rows

    options = settings.model_dump(include={*Evaluation.model_fields})
    if not settings.knn and not settings.linear:
        options |= {"knn": True, "linear": True}
    chosen = Evaluation.read(options)
    tasks = text_tasks(models, chosen, progress=True)
    encoders = _encoders(models, settings)
    results = [score_model(encoder, chosen, tasks, progress=True) for encoder in encoders]
    searched = None
    if settings.retrieval is not None:
        searched = next(task.searched for task in tasks() if task.kind == "retrieval")
        assert searched is not None
        for model in models:
            if known := known_queries(RunFolder(model), searched.queries):
                of = f"{known:,} of the {len(searched.queries):,} queries"
                so = "so the scores are higher than on new queries"
                print(f"{model}: the data of this run contain {of}, {so}", file=sys.stderr)
    result = results[0]
    if len(results) > 1:
        result = compare(results, metric=settings.metric)
        if searched is not None and settings.compare:
            result.details["queries"] = query_changes(results, searched)
    if settings.queries is not None and searched is not None:
        _write_csv(settings.queries, query_rows(named_apart(results), searched))
    if card is not None:
        from isotrope.training.card import add_scores

        scores = comparison(result, brief=True) if settings.compare else str(result)
        data = ", ".join(f"{name} {path.name}" for name, path in settings.data.items())
        add_scores(card, results[position], data, scores)
        print(f"the scores are written to {card}", file=sys.stderr)
    if settings.csv is not None:
        _write_csv(settings.csv, csv_rows(result))
    print(json.dumps(result.details, allow_nan=False) if settings.as_json else result)
    _name_lengths(models)
    return 0


def _name_lengths(models: Sequence[str]) -> None:
    """Print how many steps the models took that are runs, if the numbers differ."""
    from isotrope.core.result import Result

    steps = {}
    for model in models:
        with suppress(InputError):  # no run, or a damaged result
            if (count := Result.load(RunFolder(model).result).metrics.get("steps")) is not None:
                steps[model] = counted(int(count), "step")
    if len({*steps.values()}) > 1:
        print(*(f"{model} took {n}" for model, n in steps.items()), sep="; ", file=sys.stderr)


def _check_models(models: Sequence[str], settings: EvaluateSettings) -> None:
    """Refuse missing models, names that look like missing paths, and missing data."""
    if not models:
        raise SettingError(
            "is missing", setting="model", remedy="name a model: isotrope evaluate MODEL --sts DIR"
        )
    if settings.compare and len(models) < 2:
        raise SettingError("needs at least two models", setting="compare")
    _check_data(models, settings)
    for model in models:
        if not is_bm25(model):
            existing(model)


def _check_data(models: Sequence[str], settings: EvaluateSettings) -> None:
    """Refuse an evaluation without data: texts, labels, or the pictures of runs."""
    if settings.labels is not None:
        return
    if settings.data.keys() - OF_LABELS:
        settings.check_used(labelled=False)
        return
    from isotrope.evaluation.image_tasks import takes_images

    pictures = all(takes_images(model) for model in models)
    settings.check_used(labelled=pictures)
    if not pictures:
        raise InputError(
            "name the data to evaluate on: --sts DIR, --transfer DIR, --retrieval PATH or --labels "
            "FILE"
        )


def _find_card(models: Sequence[str], settings: EvaluateSettings) -> tuple[int, Path]:
    """Return the position of the one model whose card ``--card`` can mean, and its README.md."""
    cards = {}
    for position, run in enumerate(map(RunFolder, models)):
        if settings.compare and not run.is_begun:
            continue
        for folder in (run.path, run.model):  # if both have a card, it is that of the model
            if (folder / "README.md").is_file():
                cards[position] = folder / "README.md"
    if len(cards) != 1 or settings.dimensions or settings.precision:
        raise SettingError(
            "needs exactly one run among the models; without `--compare`, a model folder with a "
            "README.md works too; leave out `--dimensions` and `--precision`",
            setting="card",
        )
    return next(iter(cards.items()))


def _encoders(models: Sequence[str], settings: EvaluateSettings) -> "Sequence[str | Encoder]":
    """Return the models to score; or one model's full vectors, and shorter and less precise ones.

    A wrong name is an error before any model is scored.
    """
    if not settings.dimensions and not settings.precision:
        for model in models[1:] and models:
            if not is_bm25(model):
                resolve(model)
        return models
    from isotrope.encoders.loading import load
    from isotrope.evaluation.embed import stored
    from isotrope.evaluation.image_tasks import takes_images

    if len(models) > 1 or settings.truncate_dim is not None or takes_images(models[0]):
        flag = "dimensions" if settings.dimensions else "precision"
        raise SettingError("takes one text encoder, without `--truncate-dim`", setting=flag)
    encoder = load(models[0], pooling=settings.pooling, device=settings.device)
    return stored(encoder, settings.dimensions, settings.precision, batch_size=settings.batch_size)


def known_queries(run: RunFolder, queries: Sequence[str]) -> int:
    """Count the queries that are the first text of a record in a run's training data.

    Case and most punctuation are ignored. If another user or machine made the run, or a data file
    is missing, the data are not read, and the result is 0.
    """
    from isotrope.data.sources import dataset_files, read
    from isotrope.data.text.repeats import near_identical
    from isotrope.training.settings import OF_SCORES

    settings = run.settings() if run.is_run and run.is_own else {}
    files = list(chain.from_iterable(dataset_files(settings.get("files") or []).values()))
    if not files or not all(Path(file).is_file() for file in files):
        return 0
    try:
        columns, groups = settings.get("columns") or None, settings.get("groups")
        scores = {"scored": bool(settings.get("loss")), "tabs": settings.get("loss") in OF_SCORES}
        reading = read(files, columns=columns, groups=groups, paired=False, **scores)
        known = {near_identical(record.texts[0]) for record in islice(reading, _KNOWN)}
    except InputError:  # the file has changed since the training; the scores are right all the same
        return 0
    return sum(near_identical(query) in known for query in queries)


def _write_csv(file: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows under the names of their columns; all rows have the columns of the first."""
    write_text(file, csv_text([*rows[0]], (row.values() for row in rows)))


run = Command(
    "evaluate",
    EvaluateSettings,
    evaluate,
    "Score an encoder of text or images, or compare several.",
    EPILOG,
    usage="isotrope evaluate MODEL ...\n       isotrope evaluate --compare MODEL MODEL ...",
)
