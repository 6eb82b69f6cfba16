"""Formats the source of an objective as BibTeX."""

import re

from isotrope.core.hyper import Paper


def bibtex(paper: Paper) -> str:
    """Return one entry per title of a source; references without a title become a note.

    >>> print(bibtex(Paper("A Loss", "Doe et al., 2020; for sentences: Roe, 2021", "eq. 1")))
    @misc{doe2020,
        title={A Loss},
        author={Doe and others},
        year={2020},
        note={for sentences: Roe, 2021}
    }
    """
    titles, references = paper.title.split("; "), paper.reference.split("; ")
    further = references[len(titles) :]
    entries = [_entry(*entry) for entry in zip(titles, references, strict=False)]
    entries[0] |= {"note": "; ".join(further)} if further else {}
    return "\n\n".join(map(_written, entries))


def _entry(title: str, reference: str) -> dict[str, str]:
    """Split ``Wang and Isola, 2020`` into fields; keep any other reference whole."""
    match = re.fullmatch(r"(.+), (\d{4})(?: \(.+\))?", reference)
    authors, year = (match[1], match[2]) if match else (reference, "")
    first = re.split(r" et al\.| and ", authors)[0]
    key = re.sub(r"[^a-z]", "", first.lower()) + year
    fields = {"title": title, "author": authors.replace("et al.", "and others"), "year": year}
    return {"": key or "unknown"} | {name: text for name, text in fields.items() if text}


def _written(entry: dict[str, str]) -> str:
    key, *fields = entry.items()
    lines = ",\n".join(f"    {name}={{{text}}}" for name, text in fields)
    return f"@misc{{{key[1]},\n{lines}\n}}"
