"""Tables of texts, written in every format that isotrope reads."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

TEXTS = [("the kettle sings",), ("rain, on a tin roof",), ('she said "no"',)]


def quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


def write(path: Path, rows: Sequence[tuple[str, ...]], names: Sequence[str]) -> Path:
    """Write rows in the format that the name of ``path`` says."""
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
        pq.write_table(pa.table(columns), sink)
        content = sink.getvalue().to_pybytes()
    elif suffix == ".arrow":
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        table = pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)})
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        content = sink.getvalue().to_pybytes()
    elif suffix == ".json":
        content = json.dumps([dict(zip(names, r, strict=True)) for r in rows], indent=1).encode()
    elif suffix == ".jsonl":
        content = "".join(
            json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows
        ).encode()
    elif suffix == ".csv":
        body = [names, *rows]
        content = "".join(",".join(map(quoted, row)) + "\n" for row in body).encode()
    else:
        content = "".join("\t".join(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path
