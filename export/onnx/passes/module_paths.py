"""Node names that carry the path of the module they came from, however often it was applied."""

from __future__ import annotations

import re
from collections.abc import Collection

import onnx_ir as ir

_REPETITION = re.compile(r"_\d+$")


class ModulePathsPass(ir.passes.InPlacePass):
    """Renames nodes to ``/<wrapper>/<module path>/<operator>[_n]``, the n counting within one module.

    The tracer numbers every application of a module as if it were another one (``query``, ``query_1``, …), so a policy
    for ``query`` would only reach the first of ALBERT's layers.

    Args:
        modules: the dotted paths of the model's modules.
    """

    def __init__(self, modules: Collection[str]) -> None:
        self._modules = frozenset(modules)

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Renames nodes in place."""
        taken: set[str] = set()
        modified = False
        for node in model.graph:
            name = self._unique(str(node.name), taken)
            modified = modified or name != node.name
            node.name = name
            taken.add(name)
        return ir.passes.PassResult(model, modified)

    def _unique(self, name: str, taken: set[str]) -> str:
        if name.count("/") < 2 or not name.startswith("/"):
            return _first_free(name, name, taken)
        _, wrapper, *scopes, operator = name.split("/")
        scope = "/".join(["", wrapper, *self._resolve(scopes)])
        return _first_free(f"{scope}/{operator}", f"{scope}/{_REPETITION.sub('', operator)}", taken)

    def _resolve(self, scopes: list[str]) -> list[str]:
        found: list[str] = []
        for scope in scopes:
            stem = _REPETITION.sub("", scope)
            whole = ".".join([*found, scope])
            found.append(stem if whole not in self._modules and ".".join([*found, stem]) in self._modules else scope)
        return found


def _first_free(name: str, stem: str, taken: set[str]) -> str:
    count = 0
    while name in taken:
        count += 1
        name = f"{stem}_{count}"
    return name
