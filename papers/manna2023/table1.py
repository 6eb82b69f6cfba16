"""Table 1: the image sets, as our loaders read them."""

from papers.machinery.artifact import Rendered, Results, Scale, Sheet
from papers.machinery.job import PaperJob
from papers.machinery.verdicts import Ruling
from papers.paper_numbers import printed

PAPER = printed("mio", "table1")
DATA = {
    "CIFAR-10": "cifar10",
    "CIFAR-100": "cifar100",
    "STL-10": "stl10",
    "Tiny-ImageNet": "tiny-imagenet",
}
READ: dict[Scale, tuple[str, ...]] = {
    "smoke": ("digits",),
    "cpu": ("cifar10",),
    "paper": tuple(DATA.values()),
}


def jobs(scale: Scale) -> list[PaperJob]:
    """One for each set that is there at this scale."""
    return [PaperJob("image_set", {"data": data}) for data in READ[scale]]


def render(scale: Scale, results: Results) -> Rendered:
    """Compare the sets as read with the printed sizes."""
    rows, verdicts = [], []
    for name, data in DATA.items():
        numbers = [float(value or 0) for value in PAPER.rows[name]]
        accuracies = _read(results, data)
        row: list[str | None] = [name, *(f"{value:g}" for value in numbers)]
        rows.append(
            [
                *row,
                *([None] * len(numbers) if accuracies is None else (f"{v:g}" for v in accuracies)),
            ]
        )
        verdicts.append(
            Ruling(
                f"the loader of {name} reads the sizes that the paper prints",
                None if accuracies is None else accuracies == numbers,
            )
        )
    header = ("set", *PAPER.columns, *(f"{name}, read" for name in PAPER.columns))
    stand_in = _read(results, "digits")
    if stand_in is not None:
        rows.append(["digits", *["-"] * len(PAPER.columns), *(f"{v:g}" for v in stand_in)])
    remarks = ["STL-10 without its unlabelled images"]
    if scale != "paper":
        remarks.append(f"read at this scale: {', '.join(READ[scale])}; the others are not here")
    return Rendered(tables=[Sheet(header, rows)], verdicts=verdicts, notes=remarks)


def _read(results: Results, data: str) -> list[float] | None:
    result = results.get(PaperJob("image_set", {"data": data}))
    return None if result is None else [float(result.metrics[name] or 0) for name in PAPER.columns]
