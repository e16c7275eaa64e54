"""Which operators of a TFLite file a delegate would refuse, read from the file and judged by rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compressor.core.schema import Record
from export.tflite.delegate_rules import DELEGATES, Delegate, Rule
from export.tflite.flatbuffer import is_constant, operator_name, read, shape_of, type_names


class Refusal(Record):
    """Operators of one kind that are refused for one reason."""

    operator: str
    count: int
    reason: str


class DelegateReport(Record):
    """What one delegate would make of a file, by rule; not run on hardware."""

    device: str
    delegate: str
    title: str
    source: str
    operators: int
    """Operators of the longest entry point."""
    taken: int
    """Of them, those no rule refuses."""
    partitions: int
    """Runs of successive operators that are taken: each is a trip to the accelerator and back."""
    refusals: tuple[Refusal, ...]
    dynamic_tensors: int
    """Tensors whose size is not known before the model runs; one is enough for a delegate to refuse the whole file."""

    @property
    def verdict(self) -> str:
        """The report in one line, without the names of device and delegate."""
        if self.dynamic_tensors:
            return f"refuses the file, {self.dynamic_tensors} tensors have no fixed size"
        reasons: dict[str, list[str]] = {}
        for item in self.refusals:
            reasons.setdefault(item.reason, []).append(f"{item.count} {item.operator}")
        why = "; ".join(f"{', '.join(items)} ({reason})" for reason, items in reasons.items())
        parts = f"{self.partitions} partition{'' if self.partitions == 1 else 's'}"
        return f"takes {self.taken} of {self.operators} operators, {parts}{f'; refuses {why}' if why else ''}"


def delegate_lines(reports: Sequence[DelegateReport]) -> dict[str, str]:
    """Returns {delegate and the devices that have it: verdict}; devices with the same delegate share a line."""
    devices: dict[tuple[str, str], list[str]] = {}
    for report in reports:
        devices.setdefault((report.title, report.verdict), []).append(report.device)
    return {f"{title} on {', '.join(names)}, by rule": verdict for (title, verdict), names in devices.items()}


@dataclass(frozen=True)
class _Tensor:
    type: str
    shape: tuple[int, ...]
    stored: bool


@dataclass(frozen=True)
class _Node:
    name: str
    version: int
    inputs: tuple[_Tensor, ...]
    outputs: tuple[_Tensor, ...]


def delegate_reports(path: Path, devices: Sequence[str] | None = None) -> tuple[DelegateReport, ...]:
    """Returns a report for each delegate of each device profile.

    Args:
        path: a TFLite file of any maker.
        devices: names of profiles; None: every one that offers delegates.

    Raises:
        ArtifactError: no TFLite file, or a damaged one.
    """
    model = read(path)
    graph = max(model.subgraphs, key=_widest)
    nodes = _nodes(model, graph)
    dynamic = sum(_is_dynamic(tensor) for tensor in graph.tensors)
    return tuple(
        _report(device, delegate, nodes, dynamic)
        for device in (DELEGATES if devices is None else devices)
        for delegate in DELEGATES.get(device, ())
    )


def broadcasts(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    """Returns whether the GPU delegate broadcasts two shapes of different rank: from three dimensions, or two that
    are batch and channels, to four."""
    if len(left) <= 1 or len(right) <= 1 or len(left) == len(right):
        return True
    longer, shorter = (left, right) if len(left) > len(right) else (right, left)
    if len(longer) != 4:
        return False
    if len(shorter) == 3:
        return longer[0] == 1
    return (longer[0] == 1 and shorter == (1, 1)) or (longer[0], longer[3]) == shorter


def _report(device: str, delegate: Delegate, nodes: Sequence[_Node], dynamic: int) -> DelegateReport:
    reasons = [_reason(delegate, node) for node in nodes]
    refused = Counter((node.name, reason) for node, reason in zip(nodes, reasons, strict=True) if reason)
    starts = [not reason and (index == 0 or bool(reasons[index - 1])) for index, reason in enumerate(reasons)]
    return DelegateReport(
        device=device, delegate=delegate.name, title=delegate.title, source=delegate.source, operators=len(nodes),
        taken=0 if dynamic else reasons.count(None), partitions=0 if dynamic else sum(starts),
        refusals=tuple(Refusal(operator=name, count=count, reason=reason)
                       for (name, reason), count in sorted(refused.items())),
        dynamic_tensors=dynamic,
    )  # fmt: skip


def _reason(delegate: Delegate, node: _Node) -> str | None:
    if node.name not in delegate.operators:
        return "not an operator it knows"
    broken = (rule.reason for rule in delegate.rules if node.name in rule.operators and not _holds(rule, node))
    return next(broken, None)


def _holds(rule: Rule, node: _Node) -> bool:
    inputs = node.inputs
    checks = (
        rule.max_version is None or node.version <= rule.max_version,
        all(inputs[at].type in allowed for at, allowed in rule.input_types.items() if at < len(inputs)),
        rule.output_types is None or all(output.type in rule.output_types for output in node.outputs),
        rule.conversions is None or (inputs[0].type, node.outputs[0].type) in rule.conversions,
        all(len(inputs[at].shape) in allowed for at, allowed in rule.input_ranks.items() if at < len(inputs)),
        rule.runtime_inputs is None or sum(not item.stored for item in inputs) in rule.runtime_inputs,
        not rule.plain_broadcast or len(inputs) < 2 or broadcasts(inputs[0].shape, inputs[1].shape),
        not rule.no_outer_product or len(inputs) < 2 or not _outer_product(inputs[0].shape, inputs[1].shape),
        not rule.same_kind or len(inputs) < 2 or _same_kind(node),
    )
    return all(checks)


def _outer_product(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    pairs = list(zip(left, right, strict=False)) if len(left) == len(right) else []
    return any(a < b for a, b in pairs) and any(a > b for a, b in pairs)


def _same_kind(node: _Node) -> bool:
    """A table is read as what it holds: what counts there is what comes out."""
    other = node.outputs[0] if node.name == "EMBEDDING_LOOKUP" else node.inputs[0]
    return other.type.startswith("float") == node.inputs[1].type.startswith("float")


def _nodes(model: Any, graph: Any) -> list[_Node]:
    tensors = [
        _Tensor(type_names()[tensor.type], shape_of(tensor), is_constant(model, tensor)) for tensor in graph.tensors
    ]
    return [
        _Node(
            operator_name(model, operator),
            int(model.operatorCodes[operator.opcodeIndex].version),
            tuple(tensors[int(index)] for index in operator.inputs if index >= 0),
            tuple(tensors[int(index)] for index in operator.outputs),
        )
        for operator in graph.operators or ()
    ]


def _is_dynamic(tensor: Any) -> bool:
    signature = tensor.shapeSignature
    return signature is not None and any(int(size) < 0 for size in signature)


def _widest(graph: Any) -> int:
    return max((size for index in graph.inputs for size in shape_of(graph.tensors[int(index)])), default=0)
