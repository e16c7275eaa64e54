"""What a TFLite or LiteRT log says about a delegate: asked for, applied, how much of the model it runs.

The runtime falls back to the CPU without an error: the only trace is a line or two on stderr (or in logcat), and a time
that looks plausible. So a delegate that was asked for counts as used only where a line of the log says so.

Formats read (all with or without a prefix such as ``INFO:`` or ``I/tflite:``):

- ``Replacing 130 out of 244 node(s) with delegate (TfLiteGpuDelegateV2) node, yielding 2 partitions for subgraph 0.``,
  in older runtimes without ``out of 244``, in some without the partitions;
- ``Explicitly applied GPU delegate, and the model graph will be completely executed by the delegate.`` or
  ``… partially executed by the delegate w/ 3 delegate kernels.`` (``benchmark_model``);
- ``Though NNAPI delegate is explicitly applied, the model graph will not be executed by the delegate.``;
- ``Following operations are not supported by GPU delegate:`` and the operators below it, each with its reason;
- ``Failed to apply NNAPI delegate.``, and the refusal of graphs with tensors of no fixed size.
"""

from __future__ import annotations

import re

from compressor.core.errors import DeviceError
from compressor.core.schema import Record

_REPLACED = re.compile(
    r"Replacing (?P<nodes>\d+)(?: out of (?P<total>\d+))? node\(s\) with delegate \((?P<name>[^)]*)\) node"
    r"(?:, yielding (?P<partitions>\d+) partitions)?"
)
_APPLIED = re.compile(r"Explicitly applied (?P<name>.+?) delegate, and the model graph will be (?P<how>\w+) executed")
_NOT_USED = re.compile(r"Though (?P<name>.+?) delegate is explicitly applied, the model graph will not be executed")
_FAILED = re.compile(r"Failed to apply (?P<name>.+?) delegate", re.IGNORECASE)
_DYNAMIC = re.compile(r"delegate that only supports static-sized tensors with a graph that has dynamic-sized tensors")
_REFUSED = re.compile(r"(?:Following|Next) operations are not supported by (?P<name>.+?) delegate:")
_OPERATOR = re.compile(r"^(?:.*?[:\s])?(?P<operator>[A-Z][A-Z0-9_]+(?: [A-Za-z_.]+)?): (?P<reason>\S.*)$")
_SUMMARY = re.compile(r"operations will run on the")

_KERNELS = {
    "gpu": ("tflitegpudelegatev2", "litert_cl", "litert_opengl", "litert_metal", "litert_webgpu", "gpu"),
    "nnapi": ("tflitennapidelegate", "nnapi"),
    "qnn": ("tfliteqnndelegate", "dispatchdelegate", "qnn"),
    "xnnpack": ("tflitexnnpackdelegate", "xnnpack"),
}
"""The name a delegate is asked for by, to those it has in logs."""
CPU = "xnnpack"


class Replacement(Record):
    """Nodes of one graph that were handed to a delegate."""

    delegate: str
    """``gpu``, ``nnapi``, ``qnn``, ``xnnpack``, or the log's own name in lower case."""
    nodes: int
    total: int | None
    """Nodes there were before; None where the runtime does not say."""
    partitions: int | None


class RefusedOperator(Record):
    """An operator that stays on the CPU, and why."""

    operator: str
    reason: str


class DelegateLog(Record):
    """Everything a log says about delegates."""

    replacements: tuple[Replacement, ...]
    applied: tuple[str, ...]
    """Delegates the benchmark tool says it applied, wholly or in part."""
    not_used: tuple[str, ...]
    """Delegates that were asked for and run nothing, or failed."""
    refused: tuple[RefusedOperator, ...]
    dynamic: bool
    """Whether a delegate refused the graph because tensors have no fixed size."""

    def nodes(self, delegate: str) -> int:
        """Returns how many nodes a delegate runs, over all graphs."""
        return sum(item.nodes for item in self.replacements if item.delegate == delegate)

    def share(self, delegate: str) -> float | None:
        """Returns the share of the nodes it was offered that a delegate runs; None where the log does not say."""
        found = [item for item in self.replacements if item.delegate == delegate and item.total]
        return sum(item.nodes for item in found) / sum(item.total or 0 for item in found) if found else None

    def used(self, delegate: str) -> bool:
        """Returns whether a delegate runs at least one node; silence means no."""
        if self.nodes(delegate) > 0:
            return True
        return delegate in self.applied and delegate not in self.not_used


def parse_delegate_log(text: str) -> DelegateLog:
    """Reads a log of any length; lines that are about something else are passed over.

    Args:
        text: stderr of a TFLite or LiteRT process, or what logcat printed meanwhile.
    """
    replacements, applied, not_used, refused = [], [], [], []
    dynamic = listing = False
    for line in _joined(text):
        if found := _REPLACED.search(line):
            replacements.append(
                Replacement(
                    delegate=_canonical(found["name"]), nodes=int(found["nodes"]),
                    total=None if found["total"] is None else int(found["total"]),
                    partitions=None if found["partitions"] is None else int(found["partitions"]),
                )
            )  # fmt: skip
        elif found := _APPLIED.search(line):
            applied.append(_canonical(found["name"]))
        elif found := _NOT_USED.search(line) or _FAILED.search(line):
            not_used.append(_canonical(found["name"]))
        dynamic = dynamic or bool(_DYNAMIC.search(line))
        if _REFUSED.search(line):
            listing = True
        elif listing and (found := _OPERATOR.match(line.strip())) and not _SUMMARY.search(line):
            refused.append(RefusedOperator(operator=found["operator"], reason=found["reason"]))
        elif listing:
            listing = False
    return DelegateLog(
        replacements=tuple(replacements), applied=tuple(applied), not_used=tuple(not_used), refused=tuple(refused),
        dynamic=dynamic,
    )  # fmt: skip


def require_delegate(text: str, delegate: str, *, least_share: float = 0.0) -> DelegateLog:
    """Proves from a log that the delegate that was asked for ran the model.

    Args:
        text: the log.
        delegate: ``gpu``, ``nnapi``, ``qnn`` or ``xnnpack``.
        least_share: smallest share of the nodes it has to run, where the log gives one.

    Raises:
        DeviceError: the log does not show that it ran a node, or it ran fewer than asked: the time is another
            processor's.
    """
    log = parse_delegate_log(text)
    share = log.share(delegate)
    if log.used(delegate) and (share is None or share >= least_share):
        return log
    others = sorted({item.delegate for item in log.replacements if item.nodes} - {delegate})
    ran = f"; the model ran on {', '.join(others)}" if others else ""
    reasons = {f"{item.operator}: {item.reason}" for item in log.refused}
    if log.dynamic:
        reasons.add("tensors of no fixed size")
    why = f" (refused: {'; '.join(sorted(reasons))})" if reasons else ""
    found = (
        "the log does not show that it ran any node" if not log.used(delegate) else f"it ran {share:.0%} of the nodes"
    )
    raise DeviceError(
        f"the delegate '{delegate}' was asked for and {found}{ran}{why}; expected at least "
        f"{f'{least_share:.0%} of them' if least_share else 'one'}",
        remedy="measure without a delegate, or see with 'compressor inspect' which operators it refuses",
    )


def _canonical(name: str) -> str:
    lower = name.strip().lower()
    return next((own for own, names in _KERNELS.items() if lower in names), lower)


def _joined(text: str) -> list[str]:
    """Returns the lines of a log; a replacement that a narrow terminal broke in two is joined again."""
    lines: list[str] = []
    for line in text.splitlines():
        if lines and "Replacing " in lines[-1] and "node(s)" in lines[-1] and not _REPLACED.search(lines[-1]):
            lines[-1] = f"{lines[-1].rstrip()} {line.strip()}"
        else:
            lines.append(line)
    return lines
