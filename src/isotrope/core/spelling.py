"""Spells the settings in messages: as flags, as arguments in Python, or as lines of YAML.

In the source of a message, a setting is a flag between backticks, such as ``--head none``. The
command line prints the flag. Python prints ``head='none'``. Errors in YAML show ``head: none``.

If a user writes the name that another library uses, such as ``--bs``, the error proposes the name
of the setting in isotrope, ``--batch-size``.
"""

import contextlib
import difflib
import re
import reprlib
import shlex
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

Spelling = Callable[[str, str], str]
"""Returns the text of a setting, given the name of its field and its value (``""`` for none)."""

_NAMED = re.compile(r"`--([a-z][\w.-]*)(?: ([^`]*))?`")
_BARE = re.compile(r"(?<![`\w-])--[a-z][\w-]*(?:\.[\w-]+)*")
# characters that a shell interprets, and spaces within a list
_FOR_A_SHELL = re.compile(r"[;|&<>()$*?!\"'\\#]|[^,]+ [^,]*,|,[^,]* ")
_LONGEST = 60  # characters of a value

_ALIKE = 0.7  # similarity (difflib) below which two names count as unrelated
ALIASES = {
    "learning-rate": ("lr", "max_lr", "base_lr"),
    "encoder": ("model", "model_name", "model_name_or_path", "backbone", "arch", "pretrained"),
    "output": ("output_dir", "out_dir", "save_dir", "default_root_dir", "logging_dir", "log_dir"),
    "clip": ("max_grad_norm", "gradient_clip_val", "grad_clip", "clip_grad_norm"),
    "weight-decay": ("wd",),
    "batch-size": ("bs", "train_batch_size", "per_device_train_batch_size"),
    "micro-batch": ("mini_batch_size", "micro_batch_size", "gradient_accumulation_steps"),
    "epochs": ("num_train_epochs", "max_epochs", "num_epochs", "n_epochs"),
    "max-steps": ("steps", "num_steps", "max_iters", "iterations"),
    "eval-every": ("eval_steps", "evaluation_steps", "val_check_interval"),
    "log-every": ("logging_steps", "log_every_n_steps"),
    "checkpoint-every": ("save_steps", "checkpoint_save_steps"),
    "dev": ("eval_dataset", "eval_data", "val", "val_data", "validation", "valid"),
    "files": ("train_dataset", "train_data", "train_file", "dataset", "data"),
    "data": ("train_dataset", "train_data", "dataset", "files"),
    "sampling": ("multi_dataset_batch_sampler", "batch_sampler"),
    "max-length": ("max_seq_length", "max_len", "max_seq_len"),
    "objective": ("criterion", "loss_function"),
    "objective.temperature": ("temp", "tau"),
    "lora": ("lora_r", "lora_rank", "peft"),
    "lora-targets": ("target_modules", "lora_target_modules"),
    "workers": ("num_workers", "dataloader_num_workers"),
    "devices": ("gpus", "num_gpus", "nproc_per_node", "world_size"),
    "logger": ("report_to", "loggers", "wandb", "wandb_project"),
    "precision": ("fp16", "bf16", "mixed_precision", "dtype"),
    "optimizer": ("optim",),
    "warmup-epochs": ("warmup", "warmup_ratio", "warmup_steps", "num_warmup_steps"),
    "warmup": ("warmup_ratio", "warmup_steps", "num_warmup_steps", "warmup_epochs"),
    "scheduler": ("lr_scheduler_type", "lr_scheduler", "learning_rate_scheduler", "lr_schedule"),
    "patience": (
        *("early_stopping_patience", "early_stopping", "early_stopping_rounds"),
        "EarlyStoppingCallback",
    ),
    "gradient-checkpointing": ("activation_checkpointing", "grad_checkpointing", "use_checkpoint"),
    "query-prompt": ("query_prefix", "query_instruction"),
    "passage-prompt": ("passage_prefix", "document_prefix", "document_prompt"),
    "matryoshka": ("matryoshka_dims",),
    "image-size": ("img_size", "crop_size"),
    "augment": ("augmentation", "transform", "transforms"),
    "resume": ("resume_from_checkpoint", "ckpt_path"),
    "progress": ("tqdm", "show_progress_bar", "disable_tqdm"),
}
"""For each setting, its names in sentence-transformers, Hugging Face, Lightning and timm."""
ACCEPTED = {
    "learning-rate": "lr",
    "encoder": "model",
    "output": "output-dir",
    "clip": "max-grad-norm",
}
"""Other libraries' names that the command line and YAML files accept."""


def named(setting: str, value: object = None) -> str:
    """Return a setting as a flag in backticks, for a message that :func:`spell` completes.

    Args:
        setting: Name of the setting, such as ``batch_size`` or ``objective.temperature``.
        value: Value to show. If None, only the name is shown.
    """
    flag = f"--{setting.replace('_', '-')}"
    if value is None or value is True:
        return f"`{flag}`"
    if value is False:
        return f"`--no-{flag[2:]}`"
    values = value if isinstance(value, (list, tuple)) else [value]
    return f"`{' '.join([flag, *map(_word, values)])}`"


def _word(value: object) -> str:
    short = isinstance(value, Path) or (isinstance(value, str) and len(value) <= _LONGEST)
    text = str(value) if short else brief(value)
    return text.replace("`", "'")


def brief(value: object) -> str:
    """Return a short ``repr`` of any value for an error message."""
    short = reprlib.Repr()
    short.maxstring = short.maxlong = short.maxother = _LONGEST
    try:
        return short.repr(value)
    except ValueError:  # a number of more digits than Python prints
        return f"a very large {type(value).__name__}"


def as_flag(setting: str, value: str) -> str:
    """Return a setting as on the command line, for example ``--head none``."""
    one = " " in value and setting == "columns"  # and not several values
    word = shlex.quote(value) if one or _FOR_A_SHELL.search(value) else value
    return f"--{setting.replace('_', '-')} {word}".rstrip()


def as_key(setting: str, value: str) -> str:
    """Return a setting as in a YAML file, for example ``head: none``."""
    return f"{setting.replace('_', '-')}: {value}".removesuffix(": ")


def as_argument(setting: str, value: str) -> str:
    """Return a setting as in Python, ``head='none'``; numbers and ``CAPITALS`` have no quotes."""
    prefix, dot, key = setting.partition(".")
    word = value if value.isupper() or _is_number(value) else repr(value)
    if len(numbers := value.split()) > 1 and all(map(_is_number, numbers)):
        word = f"[{', '.join(numbers)}]"
    if dot:
        return f"{prefix}_settings={{{key!r}: {word if value else '...'}}}"
    name = setting.replace("-", "_")
    if name.startswith("no_") or name == "resume":
        return f"{name.removeprefix('no_')}={name == 'resume'}"
    return f"{name}={word}" if value else name


def _is_number(word: str) -> bool:
    with contextlib.suppress(ValueError):
        return float(word) is not None
    return False


_spelling: Spelling = as_argument


def spell(message: str, spelling: Spelling | None = None) -> str:
    """Replace each flag in backticks by its spelling; without ``spelling``, see :func:`spelled`."""
    write = spelling or _spelling
    return _NAMED.sub(lambda match: write(match[1], match[2] or ""), message)


def spell_all(text: str) -> str:
    """Replace each flag of a text that is stored as on the command line, by its spelling."""
    return spell(_BARE.sub(r"`\g<0>`", text))


@contextlib.contextmanager
def spelled(spelling: Spelling) -> Iterator[None]:
    """In the block, spell settings by the function ``spelling``; outside, as in Python."""
    global _spelling  # for the whole process, because its threads print errors as well
    before, _spelling = _spelling, spelling
    try:
        yield
    finally:
        _spelling = before


def intended_name(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that has a similar name, or the alias ``word``; otherwise None."""
    names = list(candidates)
    letters = _letters(word)
    exact = [name for name in names if letters == _letters(name)]
    by_alias = [name for name in names if letters in map(_letters, ALIASES.get(name, ()))]
    if exact or by_alias:
        return (exact or by_alias)[0]
    by_letters: dict[str, str] = {}
    for name in sorted(names, key=lambda name: "." in name):  # names without a dot first
        for part in (name, name.rpartition(".")[2]):
            by_letters.setdefault(_letters(part), name)
    close = difflib.get_close_matches(letters, by_letters, n=1, cutoff=_ALIKE)
    return by_letters[close[0]] if close else None


def _letters(name: str) -> str:
    return re.sub(r"[-_.]", "", name.lower())


def with_folder(advice: str, run: str) -> str:
    """Put the folder ``run`` in place of the word RUN in a line of advice, but not inside paths."""
    return re.sub(r"(?<![\w./\\'-])RUN(?![\w.-])", lambda _: run, advice)
