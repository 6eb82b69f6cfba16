"""``isotrope evaluate``: score an encoder, or several side by side."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isotrope.cli.arguments import Parser
from isotrope.core.errors import InputError
from isotrope.core.files import check_outputs
from isotrope.encoders.names import existing

if TYPE_CHECKING:
    from isotrope.core.result import Result

EPILOG = """\
examples:
  isotrope evaluate runs/wiki --sts DIR
  isotrope evaluate all-MiniLM-L6-v2 --sts DIR --transfer DIR --json
  isotrope evaluate runs/p --retrieval pairs.tsv
  isotrope evaluate runs/p --labels train.tsv --labels-test test.tsv --knn --linear
  isotrope evaluate --compare runs/a runs/b runs/c --sts DIR --csv table.csv
  isotrope evaluate runs/images --knn --linear
  isotrope evaluate --compare runs/images runs/cut --knn --labels pictures/

--sts: a folder with sts12/*.tsv ... sts16/*.tsv, stsb/test.tsv, sickr/test.tsv, each line
score<TAB>sentence1<TAB>sentence2; or SentEval's folder downstream; or a file of your own (tsv, csv,
jsonl, parquet with columns score, sentence1, sentence2). The score is 100 x Spearman's correlation
of the cosine, over all pairs of a year together ("all") or the test split of STS-B and SICK-R,
which is the protocol of SimCSE. --json also has the means over subsets, Pearson's correlation,
every subset, the dev splits, the dot product and the Euclidean and Manhattan distance.

--transfer: a folder with mr, cr, subj, mpqa, sst2, trec and mrpc. A linear classifier on frozen
embeddings with the folds, seeds and early stopping of SentEval; --mode prototyping is quicker, and
is not what papers print. --tasks MR TREC scores only these, without an average.

--retrieval: a folder with queries.jsonl, corpus.jsonl and qrels.tsv, or a file of pairs.

--labels: labelled texts (label<TAB>text): the training part, or all of it (a fifth of each class is
then kept for testing), or a folder with train and test. --knn is the weighted majority of 200
neighbours, with weights exp(cosine/0.1); --linear is a linear probe on the frozen embeddings;
without either, both are measured. An encoder of images takes labelled pictures here (a folder of
classes, .npz, whatever train-images takes) and has no other score. A run on images needs no
--labels: --knn and --linear then use its own training and test part, split as they were.

--corpus: one text a line (or two, a pair); alignment, uniformity and other measures of embeddings.

--compare shows the models side by side, and says for every number whether the later models differ
from the first by more than noise: by a paired bootstrap over the scored items, corrected for the
number of comparisons. It accounts for the noise of the test data, not for that of the training
seed.

Every finished task is kept, in RUN/evaluations or the user's cache (--results), and is not scored
again for the same weights, data and protocol: you may stop the command and start it again. --again
scores everything anew.
"""


def run(arguments: Sequence[str]) -> int:
    """Parse, evaluate, print tables or JSON."""
    options = _parser().parse_args(list(arguments))
    models = options.compare or ([options.model] if options.model else [])
    if options.compare and options.model:
        raise InputError(
            f"the model {options.model} is before --compare; name all models after it: "
            "isotrope evaluate --compare A B --sts DIR"
        )
    if not models:
        raise InputError("no model given: isotrope evaluate MODEL --sts DIR")
    if options.compare and len(models) < 2:
        raise InputError("--compare needs at least two models")
    _check_data(models, options)
    for model in models:
        existing(model)
    if options.csv is not None:  # before anything is scored
        names = ("sts", "transfer", "retrieval", "labels", "labels_test", "corpus")
        read = [getattr(options, name) for name in names]
        check_outputs(options.csv.parent, [options.csv.name], read)
    result = _compared(models, options) if options.compare else _evaluated(models[0], options)
    _show(result, options)
    return 0


def _check_data(models: Sequence[str], options: argparse.Namespace) -> None:
    """Check that there is data to score on: text, labels, or a run's own pictures."""
    if options.tasks and options.transfer is None:
        raise InputError("--tasks chooses among the transfer tasks: give --transfer DIR, too")
    texts = any((options.sts, options.transfer, options.retrieval, options.corpus))
    of_labels = options.knn or options.linear or options.labels_test
    if options.labels or (texts and not of_labels):
        return
    from isotrope.evaluation.image_tasks import takes_images

    if texts or not all(takes_images(model) for model in models):
        if of_labels:
            raise InputError(
                "--knn, --linear and --labels-test need the labelled texts: --labels FILE"
            )
        raise InputError(
            "nothing to evaluate: give --sts DIR, --transfer DIR, --retrieval PATH, --labels FILE "
            "or --corpus FILE"
        )
    if not options.knn and not options.linear:
        raise InputError(
            f"nothing to evaluate: {models[0]} takes images; add --knn or --linear, on the "
            "run's own images or on yours (--labels FOLDER)"
        )


def _compared(models: Sequence[str], options: argparse.Namespace) -> "Result":
    from isotrope.encoders.names import resolve
    from isotrope.evaluation.compare import compare

    for model in models:  # every model, before an hour is spent on the first
        resolve(model)
    return compare([_evaluated(model, options) for model in models])


def _parser() -> Parser:
    parser = Parser(
        prog="isotrope evaluate",
        usage="isotrope evaluate MODEL ...\n       isotrope evaluate --compare MODEL MODEL ...",
        description="Score an encoder of text or images: a model folder, a run folder, a hub id.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help="model folder, run folder, hub id, or the installed all-MiniLM-L6-v2",
    )
    parser.add_argument("--compare", metavar="MODEL", nargs="+", help="models side by side")
    what = parser.add_argument_group("what to score on, any of them together")
    what.add_argument("--sts", metavar="DIR|FILE", type=Path, help="the seven STS tasks, or a file")
    what.add_argument("--transfer", metavar="DIR", type=Path, help="the seven transfer tasks")
    what.add_argument("--retrieval", metavar="DIR|FILE", type=Path, help="a retrieval set")
    what.add_argument("--labels", metavar="DIR|FILE", type=Path, help="labelled texts or images")
    what.add_argument("--labels-test", metavar="FILE", type=Path, help="their test part")
    what.add_argument("--knn", action="store_true", help="k nearest neighbours on --labels")
    what.add_argument("--linear", action="store_true", help="a linear probe on --labels")
    what.add_argument("--corpus", metavar="FILE", type=Path, help="alignment, uniformity and more")
    parser.add_argument(
        "--mode",
        choices=("full", "prototyping"),
        default="full",
        help="protocol of the transfer tasks [full]",
    )
    parser.add_argument(
        "--tasks", metavar="TASK", nargs="+", help="only these of the transfer tasks: MR TREC ..."
    )
    parser.add_argument(
        "--pooling", metavar="NAME", help="pooling to use instead of the model's own"
    )
    parser.add_argument(
        "--truncate-dim", metavar="N", type=int, help="score the first N coordinates alone (text)"
    )
    parser.add_argument(
        "--device", default="auto", metavar="auto|cpu|cuda|mps", help="where to encode [auto]"
    )
    parser.add_argument("--results", metavar="DIR", type=Path, help="where finished tasks are kept")
    parser.add_argument("--again", action="store_true", help="score finished tasks anew")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--csv", metavar="FILE", type=Path, help="write the numbers as a table")
    return parser


def _evaluated(model: str, options: argparse.Namespace) -> "Result":
    from isotrope.evaluation import evaluate

    return evaluate(
        model,
        sts=options.sts,
        transfer=options.transfer,
        retrieval=options.retrieval,
        labels=options.labels,
        labels_test=options.labels_test,
        knn=options.knn or not options.linear,
        linear=options.linear or not options.knn,
        corpus=options.corpus,
        mode=options.mode,
        only=options.tasks,
        pooling=options.pooling,
        truncate_dim=options.truncate_dim,
        device=options.device,
        results="auto" if options.results is None else options.results,
        again=options.again,
        progress=True,
    )


def _show(result: "Result", options: argparse.Namespace) -> None:
    """Write the CSV table if requested, and print the numbers."""
    from isotrope.cli import scores

    if options.csv is not None:
        rows: list[dict[str, Any]] = scores.rows(result)
        scores.write_csv(options.csv, rows)
    if options.json:
        print(json.dumps(result.details, ensure_ascii=False, allow_nan=False))
    else:
        print(scores.comparison(result) if options.compare else scores.tables(result))
