"""Command: the command line that trains with given settings."""

import shlex

from isotrope.methods.settings import RunSettings

__all__ = ["command"]


def command(settings: RunSettings, positional: str) -> str:
    """Return the command line that trains with these settings.

    Args:
        settings: of a run.
        positional: the setting that has no flag.
    """
    values, fields = settings.model_dump(), type(settings).ordered()
    first = values[positional]
    verb = {"text": "train", "images": "train-images"}[settings.kind]
    words = ["isotrope", verb, *(first if isinstance(first, list) else [first])]
    for name, field in fields.items():
        value = values[name]
        default = field.get_default(call_default_factory=True)
        if name in (positional, "progress") or value == default:
            continue
        flag = "--" + name.replace("_", "-")
        if isinstance(value, dict):
            prefix = name.removesuffix("_settings")
            words += [word for k, v in value.items() for word in (f"--{prefix}.{k}", _spelled(v))]
        elif isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        elif isinstance(value, list):
            words += [word for one in value for word in (flag, str(one))]
        else:
            words += [flag, _spelled(value)]
    return shlex.join(words)


def _spelled(value: object) -> str:
    """A value as it is typed."""
    return f"{value:.12g}" if isinstance(value, float) else str(value)
