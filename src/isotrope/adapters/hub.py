"""The Hugging Face hub: the model of a run, with its card, as a repository there.

Nothing here is called by anything but ``isotrope push``, and nothing asks the network before
:func:`push` does. Who may write where is the hub's own login (``hf auth login``, or HF_TOKEN).
"""

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isotrope.core.documents import read_text
from isotrope.core.errors import InputError, MissingExtra
from isotrope.core.result import Result
from isotrope.encoders.names import first_line, hub_name, model_folder
from isotrope.evaluation.store import finished

try:
    from huggingface_hub import CommitOperationAdd, EvalResult, HfApi, ModelCard, get_token
    from huggingface_hub.constants import is_offline_mode
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    from huggingface_hub.utils import disable_progress_bars, validate_repo_id  # type: ignore[attr-defined]
except ModuleNotFoundError as error:
    raise MissingExtra(error.name or "huggingface_hub", extra="train") from error

__all__ = ["ANSWER_WITHIN", "Upload", "check", "prepare", "push", "reachable"]

ANSWER_WITHIN = 3.0
"""Seconds in which the hub must answer before it counts as out of reach."""

_CARD = "README.md"
_HERE = "path/to/this/folder"  # how the cards of ours say where the model is


@dataclass(frozen=True)
class Upload:
    """What goes to the hub.

    Attributes:
        repo: ``user/name``.
        folder: of the model.
        files: below it, but the card.
        card: the text of the card there.
    """

    repo: str
    folder: Path
    files: list[Path]
    card: str


def reachable(repo: str) -> HfApi:
    """Return the hub, having asked it who we are.

    Args:
        repo: to be named where it does not answer.

    Raises:
        InputError: the hub is switched off, does not answer, or does not know us.
    """
    if is_offline_mode():
        raise InputError(f"cannot push to {repo}: the hub is switched off (HF_HUB_OFFLINE is set)")
    if get_token() is None:
        raise InputError(f"cannot push to {repo}: not logged in; run `hf auth login`")
    api = HfApi(library_name="isotrope")
    failures: list[Exception] = []

    def ask() -> None:
        try:
            api.whoami()
        except Exception as error:
            failures.append(error)

    # in a thread of its own: looking up a host name takes no timeout
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ANSWER_WITHIN)
    if thread.is_alive():
        raise InputError(
            f"cannot push to {repo}: {api.endpoint} does not answer; is there a network?"
        )
    if failures:
        raise _refused(repo, failures[0])
    return api


def _refused(repo: str, error: Exception) -> InputError:
    # of what is no answer of the hub: no route, no name, a broken connection
    where = "" if isinstance(error, HfHubHTTPError) else "the hub cannot be reached: "
    return InputError(f"cannot push to {repo}: {where}{first_line(error)}")


def check(run: str | Path, repo: str) -> Path:
    """Return the folder of the model of a run.

    Args:
        run: a finished run folder, or a folder with a model.
        repo: ``user/name``.

    Raises:
        InputError: no such folder, a run that has not come to its end, or a name that the hub
            cannot have.
    """
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise InputError(f"{repo!r} cannot be a name on the hub: {first_line(error)}") from error
    if "/" not in repo:
        raise InputError(f"{repo!r} does not say whose it is: give user/name")
    run = Path(run).expanduser()
    if not run.is_dir():
        raise InputError(f"there is no folder {run}; give a run folder, or a folder with a model")
    folder = model_folder(run)
    if folder != run and not (run / "result.json").is_file():
        raise InputError(
            f"the training in {run} has not come to its end (no result.json); go on with --resume, "
            f"or push {folder}, the best model so far"
        )
    return folder


def prepare(run: str | Path, repo: str) -> Upload:
    """Find the model of a run and complete its card; no network.

    The card of the hub is the model's own, with the scores that ``isotrope evaluate`` has kept of
    exactly these weights, and without the name of a folder of this machine as its ``base_model``.

    Args:
        run: a finished run folder, or a folder with a model.
        repo: ``user/name``.

    Raises:
        InputError: as :func:`check`, or the model has no card, or one that is none.
    """
    folder = check(run, repo)
    files = [
        file
        for file in sorted(folder.rglob("*"))
        if file.is_file()
        and file != folder / _CARD
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    ]
    return Upload(repo, folder, files, _card(Path(run).expanduser(), folder, repo))


def push(upload: Upload, api: HfApi, *, private: bool = False) -> str:
    """Upload a model in one commit, and return its address.

    Args:
        upload: from :func:`prepare`.
        api: from :func:`reachable`.
        private: make the repository private, if it is not there yet.

    Raises:
        InputError: the hub refuses, or ``private`` was asked for and the repository is public.
    """
    disable_progress_bars()
    added = [CommitOperationAdd(_CARD, upload.card.encode("utf-8"))]
    added += [CommitOperationAdd(f.relative_to(upload.folder).as_posix(), f) for f in upload.files]
    try:
        address = api.create_repo(upload.repo, private=private or None, exist_ok=True)
        public = private and not api.model_info(upload.repo).private
        if not public:
            message = "Upload a model trained by isotrope"
            api.create_commit(upload.repo, added, commit_message=message)
    # of several libraries below it: what they have in common is Exception
    except Exception as error:
        raise _refused(upload.repo, error) from error
    if public:
        raise InputError(
            f"{upload.repo} is there already and public; make it private in its settings on the "
            "hub, or leave --private out"
        )
    return str(address)


def _card(run: Path, folder: Path, repo: str) -> str:
    """Return the card of a folder as it is going to stand on the hub."""
    path = folder / _CARD
    if not path.is_file():
        raise InputError(f"{folder} has no {_CARD}: a model on the hub needs a card; write one")
    try:
        card = ModelCard(read_text(path))
    # of the YAML reader and of the checks of its fields
    except Exception as error:
        raise InputError(f"{path} is no model card: {first_line(error)}") from error
    card.text = card.text.replace(_HERE, repo)
    _name_base(card)
    scores = _scores(run, folder)
    if scores:
        _add_scores(card, scores, repo)
    return str(card)


def _name_base(card: ModelCard) -> None:
    """Let ``base_model`` be a name of the hub's, or nothing."""
    about: Any = card.data  # a ModelCardData
    base = about.base_model
    if not isinstance(base, str):
        return
    named = hub_name(base)
    about.base_model = named
    if named is None:
        card.text = card.text.replace(base, Path(base).name)


def _scores(run: Path, folder: Path) -> list[Result]:
    """Return what has been scored of exactly these weights; nothing is loaded if nothing was."""
    kept = run / "evaluations"
    if not any(kept.glob("*.json")):
        return []
    from isotrope.data.text.sts_sets import TASKS
    from isotrope.encoders.loading import load_encoder
    from isotrope.evaluation.sts import with_average

    found = finished(kept, load_encoder(folder, device="cpu").fingerprint())
    seven = [r for r in found if set(r.metrics) <= set(TASKS) and not _settings(r)]
    # how a corpus lies is no score
    others = [r for r in found if r not in seven and r.kind != "corpus"]
    return [*([with_average(seven)] if seven else []), *others]


def _settings(result: Result) -> dict[str, Any]:
    settings: dict[str, Any] = result.provenance["key"]["settings"]
    return settings


def _add_scores(card: ModelCard, results: Sequence[Result], repo: str) -> None:
    """Put the scores into the text, before the citation, and those of STS into the metadata."""
    rows = [
        (result.kind, name, value, _settings(result))
        for result in results
        for name, value in result.metrics.items()
        if isinstance(value, (int, float))
    ]
    lines = [
        f"| {_protocol(kind, more)} | {name} | {value:g} |" for kind, name, value, more in rows
    ]
    table = "\n".join(["| protocol | task | value |", "|---|---|---|", *lines])
    said = f"Scored by `isotrope evaluate`, on its user's own copies of the data:\n\n{table}\n"
    before, heading, after = card.text.partition("\n## Citation")
    card.text = f"{before.rstrip()}\n\n{said}{heading}{after}"
    found = [
        EvalResult(
            task_type="semantic-similarity",
            task_name="Semantic Textual Similarity",
            dataset_type=re.sub(r"\W", "-", name.lower()),
            dataset_name=name,
            metric_type="spearman_cosine",
            metric_name="100 x Spearman's correlation of the cosine",
            metric_value=value,
        )
        for kind, name, value, more in rows
        if kind == "sts" and not more
    ]
    if found:
        about: Any = card.data
        about.model_name, about.eval_results = repo.rpartition("/")[2], found


def _protocol(kind: str, settings: dict[str, Any]) -> str:
    more = ", ".join(f"{name} {value}" for name, value in settings.items())
    return f"{kind} ({more})" if more else kind
