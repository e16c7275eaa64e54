"""``docs/support.md`` from the cells of the support matrix: nothing in it that no cell holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from compressor.core.folders import write_text

TEMPLATE = "support.md.jinja"
Cell = Mapping[str, Any]


def write_document(cells: Sequence[Cell], path: Path) -> None:
    """Writes the document.

    Args:
        cells: what each cell's JSON file holds, in any order.
        path: where to; its folder is made.
    """
    from benchmarks.studies.systems import NAMES

    systems = list(dict.fromkeys(cell["system"] for cell in sorted(cells, key=_order)))
    columns = list(dict.fromkeys(column(cell) for cell in sorted(cells, key=_column_order)))
    found = {(cell["system"], column(cell)): cell for cell in cells}
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True, autoescape=False,
    )  # fmt: skip
    text = environment.get_template(TEMPLATE).render(
        cells=cells,
        systems=systems,
        missing=[name for name in NAMES if name not in systems],
        columns=columns,
        mark=lambda system, name: mark(found.get((system, name)), found),
        rows=[[row(found[system, name], found) for name in columns if (system, name) in found] for system in systems],
        machines=sorted({_machine(cell) for cell in cells}),
        commits=sorted({cell["commit"] for cell in cells}),
        dates=sorted({cell["date"] for cell in cells}),
        threads=sorted({cell["threads"] for cell in cells}),
        versions=sorted({f"{name} {version}" for cell in cells for name, version in cell["versions"].items()}),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)


def column(cell: Cell) -> str:
    """Returns what a column is called, e.g. ``onnx int8 dynamic``."""
    return " ".join(str(cell[key]) for key in ("format", "precision", "method") if cell[key])


def mark(cell: Cell | None, found: Mapping[tuple[str, str], Cell]) -> str:
    """Returns what stands in the overview: the parity that was measured, or that it cannot be had."""
    if cell is None:
        return "not measured"
    if cell["status"] != "ok":
        return str(cell["status"])
    if _twin(cell, found):
        return "as dynamic"
    return (
        f"{cell['signal_to_noise_db']:.0f} dB"
        if cell["precision"] not in ("fp32", "fp16")
        else f"{cell['max_error']:.0e}"
    )


def row(cell: Cell, found: Mapping[tuple[str, str], Cell]) -> dict[str, str]:
    """Returns the figures of one cell as text; ``-`` where there is none."""
    good = cell["status"] == "ok"
    unique = cell["parameters"]["bytes"]
    reason = "" if good else str(cell["reason"])
    if good and _twin(cell, found):
        reason = "the same file as int8 dynamic: this format has no static form of it"
    return {
        "column": column(cell),
        "status": str(cell["status"]),
        "max_error": f"{cell['max_error']:.1e}" if good else "-",
        "snr_db": f"{cell['signal_to_noise_db']:.1f}" if good else "-",
        "size_mb": f"{cell['size_bytes'] / 1e6:.1f}" if good else "-",
        "unique_mb": f"{unique / 1e6:.1f}",
        "share": f"{cell['size_bytes'] / unique:.2f}" if good else "-",
        "seconds": f"{cell['seconds']:.0f}" if "seconds" in cell else "-",
        "peak_gb": f"{cell['peak_bytes'] / 1e9:.1f}" if "peak_bytes" in cell else "-",
        "remarks": "; ".join([*filter(None, [reason]), *cell.get("notes", ())]).replace("|", "/").replace("\n", " "),
    }


def _twin(cell: Cell, found: Mapping[tuple[str, str], Cell]) -> bool:
    """Whether a static file is the dynamic one: the format does not tell the two apart."""
    if cell["method"] != "static":
        return False
    other = found.get((cell["system"], column({**cell, "method": "dynamic"})))
    return other is not None and other.get("model_sha256") == cell.get("model_sha256") is not None


def _machine(cell: Cell) -> str:
    about = cell["machine"]
    return f"{about['cpu']} ({about['architecture']}), {about['cores']} cores, {about['memory_gb']} GB"


def _order(cell: Cell) -> int:
    from benchmarks.studies.systems import NAMES

    return NAMES.index(cell["system"]) if cell["system"] in NAMES else len(NAMES)


def _column_order(cell: Cell) -> tuple[Any, ...]:
    from benchmarks.studies.support_matrix import EVERY_PRECISION
    from compressor.core.artifact import FORMATS

    return (FORMATS.index(cell["format"]), EVERY_PRECISION.index(cell["precision"]), cell["method"] or "")
