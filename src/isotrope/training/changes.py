"""Measures what a training changed (scores, similarities), and advises what to do next.

General sentences, up to 300 first sentences of docstrings in Python's standard library, are
embedded before and after the training, and the cosine of each pair is computed. The result is 100
times Spearman's correlation between the cosines before and after, so 100 means that all pairs keep
their order. The number does not show whether a new order is worse.
"""

import importlib
import inspect
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isotrope.data.text.tokens import StoreReport
from isotrope.encoders.sentence import SentenceEncoder
from isotrope.evaluation.dev_score import DevMetric
from isotrope.evaluation.embed import Encoder, embed
from isotrope.evaluation.sts import spearman
from isotrope.measures.judgement import EASY, DevHistory, judge
from isotrope.training.settings import TrainSettings

_MODULES = """
argparse asyncio calendar collections concurrent.futures configparser csv datetime decimal difflib
email.message fractions ftplib gzip hashlib heapq html http.client imaplib inspect io ipaddress json
logging mailbox math multiprocessing.pool pathlib pickle random re sched shutil smtplib socket
sqlite3 statistics string subprocess tarfile tempfile textwrap threading timeit unittest
urllib.request uuid wave weakref xml.dom zipfile
"""
_SENTENCES = 300
_CUT, _FEW = 0.1, 2_000  # advice is given if a larger share is cut, or if there are fewer pairs
_GIVEN = 2  # largest number of pieces of advice beside the advice to train longer
_NAMED = 3  # number of queries with a worse score that are printed


@cache
def general_sentences() -> tuple[str, ...]:
    """Return up to 300 different first sentences of docstrings, each with 5 to 25 words."""
    sentences: dict[str, None] = {}
    for name in _MODULES.split():
        try:
            members = vars(importlib.import_module(name))
        except ImportError:  # this Python was built without the module
            continue
        for member in [members[key] for key in sorted(members)][:200]:
            if inspect.isroutine(member) or inspect.isclass(member):
                paragraph = (inspect.getdoc(member) or "").partition("\n\n")[0]
                words = paragraph.partition(". ")[0].split()
                if 5 <= len(words) <= 25:
                    sentences.setdefault(" ".join(words))
    texts = list(sentences)
    stride = max(1, len(texts) // _SENTENCES)
    return tuple(texts[::stride][:_SENTENCES])


def similarities(encoder: Encoder) -> NDArray[np.float64]:
    """Return the cosines of all pairs of general sentences, embedded by ``encoder``."""
    vectors = embed(encoder, list(general_sentences()), "general sentences").astype(np.float64)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)  # 0 stays 0
    return np.asarray((vectors @ vectors.T)[np.triu_indices(len(vectors), 1)])


def kept(before: NDArray[np.float64] | None, encoder: Encoder, history: DevHistory) -> float | None:
    """Return 100 times Spearman's correlation of :func:`similarities` before and after a training.

    ``encoder`` is the model of the last step. If the run saved another model, the result is None.
    """
    if before is None or (history.scores and history.chosen_step() != max(history.scores)):
        return None
    return round(100 * spearman(before, similarities(encoder)), 1)


def changed_queries(watch: DevMetric | None, history: DevHistory) -> dict[str, Any] | None:
    """Count the dev queries with a better and a worse score after training; list the largest falls.

    Returns: A dict with ``better``, ``worse``, ``all`` and ``worst``. None if the dev score is not
        a mean over queries, or if the original model was saved.
    """
    if watch is None or not history.scores or history.chosen_step() == 0:
        return None
    steps = (min(history.scores), history.chosen_step())
    before, after = (history.evaluations[step].items for step in steps)
    queries = watch.queries
    if len(queries) != len(before):
        return None
    worst = [i for i in np.argsort(after - before, kind="stable")[:_NAMED] if after[i] < before[i]]
    return {
        "better": int((after > before).sum()),
        "worse": int((after < before).sum()),
        "all": len(queries),
        "worst": [
            {"query": queries[i], "before": float(before[i]), "after": float(after[i])}
            for i in worst
        ],
    }


def _new_data(report: StoreReport, settings: TrainSettings) -> tuple[str, str]:
    """Return which rows, and which flags of ``isotrope evaluate``, compare two models."""
    if report.scored == 1 and report.columns == 2:
        return "scored pairs", "--sts NEW"
    if report.grouped and settings.groups is None:
        columns = f" --columns {shlex.quote(','.join(settings.columns))}" * bool(settings.columns)
        return "labelled texts", f"--retrieval NEW{columns}"  # as the dev score
    files = settings.inputs
    file = files[0] if len(files) == 1 and Path(files[0]).is_file() else "FILE"
    return "pairs", f"--retrieval NEW --corpus {shlex.quote(file)}"


def next_step(
    report: StoreReport,
    encoder: SentenceEncoder,
    history: DevHistory,
    settings: TrainSettings,
    longer: str = "",
) -> str:
    """Return advice on what to do after a training, or "" if the numbers suggest nothing.

    ``longer`` is the advice to train longer, if ``--minutes`` had no time for all steps.
    """
    first = min(history.scores, default=0)
    is_rejected = bool(history.scores) and history.chosen_step() == first
    advice = []  # the most important first
    if is_rejected and not longer:  # a training that was too short needs no diagnosis
        advice.append("run `isotrope diagnose RUN` to find out what to change")
    is_easy = history.is_search and history.scores.get(first, 0.0) >= EASY
    if is_rejected or (is_easy and judge(history).outcome == "undecided"):
        kind, task = _new_data(report, settings)
        # the original in RUN has the prompts of the training
        models = "RUN RUN/rejected" if is_rejected else f"{shlex.quote(settings.encoder)} RUN"
        advice.append(
            f"score both models with a file NEW of {kind} that this training has not seen: "
            f"`isotrope evaluate --compare {models} {task}`"
        )
    if report.truncated_share >= _CUT and not longer:  # if time was short, longer texts do not help
        flag = f"`--max-length {min(2 * report.max_length, encoder.positions)}`"
        remedy = flag if encoder.positions > report.max_length else "an encoder for longer texts"
        cut = f"{report.truncated_share:.0%} of the texts were cut after {report.max_length} tokens"
        advice.append(f"try {remedy}: {cut}, and {encoder.limit_clause}")
    if (pairs := report.kept + report.held_out) < _FEW and report.columns > 1:
        wrong = "look for wrong pairs with `isotrope audit`, or " * (not report.scored)
        advice.append(f"{wrong}add pairs (now {pairs:,})")
    given = [*filter(None, [longer]), *advice[:_GIVEN]]
    return f"next, {'; then '.join(given)}" if given else ""
