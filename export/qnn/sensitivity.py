"""Which modules lose most by quantisation, judged from their weights and the ranges observed around them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from export.onnx.policy import module_path, weight_nodes
from export.qnn.ranges import Histogram

SHARE = 0.25
"""Share of the modules with a weight matrix that ``mixed`` leaves in float."""
_WEAKEST = 0.1
"""Share of a weight's channels that may be weaker than what it is judged by."""
_WEIGHT_STEPS, _ACTIVATION_STEPS = 2**8, 2**16


def sensitive_modules(model: ir.Model, observed: Mapping[str, Histogram]) -> frozenset[str]:
    """Returns the modules with the lowest signal-to-noise ratio after quantisation, at least one.

    A module's ratio is the lowest of its weight's (8 bits) and of its input's and output's (16 bits): the variance of
    the values over the variance ``step² / 12`` that rounding to equal steps adds. A weight counts with its weakest
    channels, because a few large ones, which set the step, are what makes the others vanish.
    """
    ratios: dict[str, float] = {}
    for node in weight_nodes(model, embeddings=False):
        found = [_weight(value) for value in node.inputs if value is not None and value.const_value is not None]
        around = [value for value in (*node.inputs, *node.outputs) if value is not None and value.name in observed]
        found += [_activation(observed[str(value.name)]) for value in around]
        path = module_path(node)
        ratios[path] = min([ratios.get(path, np.inf), *found])
    count = max(1, round(SHARE * len(ratios)))
    return frozenset(sorted(ratios, key=lambda path: (ratios[path], path))[:count])


def _weight(value: ir.Value) -> float:
    array = np.asarray(value.const_value.numpy(), dtype=np.float64) if value.const_value is not None else np.zeros(1)
    if array.ndim != 2:
        return np.inf
    weakest = min(float(np.quantile(array.var(axis=axis), _WEAKEST, method="lower")) for axis in (0, 1))
    return _ratio(weakest, float(array.max() - array.min()), _WEIGHT_STEPS)


def _activation(found: Histogram) -> float:
    if not found.counts.any():
        return np.inf
    return _ratio(found.variance, found.high - found.low, _ACTIVATION_STEPS)


def _ratio(variance: float, width: float, steps: int) -> float:
    noise = (width / (steps - 1)) ** 2 / 12
    return variance / noise if noise > 0 else np.inf
