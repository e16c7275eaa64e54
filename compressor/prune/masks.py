"""Which single weights become zero."""

from __future__ import annotations

import re
from typing import Literal

import torch

from compressor.core.errors import RecipeError

Granularity = Literal["global", "matrix"]
_N_OF_M = re.compile(r"(\d+):(\d+)")
_BLOCK = re.compile(r"(\d+)x(\d+)")


def check_pattern(pattern: str) -> None:
    """Raises RecipeError where a pattern is none of ``unstructured``, ``2:4`` (N of M kept) and ``4x1`` (blocks)."""
    n_of_m, block = _N_OF_M.fullmatch(pattern), _BLOCK.fullmatch(pattern)
    sound = n_of_m is not None and 0 < int(n_of_m[1]) < int(n_of_m[2])
    if pattern != "unstructured" and not sound and not (block and int(block[1]) * int(block[2]) > 1):
        raise RecipeError(
            f"pattern: '{pattern}' is unknown; expected 'unstructured', N:M with N < M, or ROWSxCOLUMNS",
            remedy="write 2:4 for two weights kept of every four in a row, 4x1 for blocks of four rows",
        )


def fixed_ratio(pattern: str) -> float | None:
    """Returns the share of zeros that an N:M pattern means by itself; None for the others."""
    found = _N_OF_M.fullmatch(pattern)
    return None if found is None else 1 - int(found[1]) / int(found[2])


def fits(shape: torch.Size, pattern: str) -> bool:
    """Returns whether a matrix can be divided by a pattern."""
    if found := _N_OF_M.fullmatch(pattern):
        return shape[1] % int(found[2]) == 0
    if found := _BLOCK.fullmatch(pattern):
        return shape[0] % int(found[1]) == 0 and shape[1] % int(found[2]) == 0
    return True


def masks_for(
    scores: dict[str, torch.Tensor], *, pattern: str, ratio: float, granularity: Granularity
) -> dict[str, torch.Tensor]:
    """Returns for each matrix which weights stay (True).

    Args:
        scores: importance of every weight by the matrix's name, shape (rows, columns); a block's is their sum.
        pattern: see :func:`check_pattern`; matrices it does not divide stay whole.
        ratio: share of zeros; an N:M pattern has its own.
        granularity: one ranking over all matrices, or the same share in each; N:M is always within each row.
    """
    fitting = {name: value for name, value in scores.items() if fits(value.shape, pattern)}
    if found := _N_OF_M.fullmatch(pattern):
        masks = {name: _n_of_m(value, int(found[1]), int(found[2])) for name, value in fitting.items()}
    else:
        block = _BLOCK.fullmatch(pattern)
        rows, columns = (int(block[1]), int(block[2])) if block else (1, 1)
        units = {name: _block_sums(value, rows, columns) for name, value in fitting.items()}
        groups = [[*units]] if granularity == "global" else [[name] for name in units]
        masks = {}
        for names in groups:
            if not names:
                continue
            order = torch.cat([units[name].flatten() for name in names])
            kept = _largest(order, round(ratio * order.numel()))
            for name, part in zip(names, torch.split(kept, [units[name].numel() for name in names]), strict=True):
                shaped = part.reshape(units[name].shape)
                masks[name] = shaped.repeat_interleave(rows, dim=0).repeat_interleave(columns, dim=1)
    whole = {name: torch.ones_like(value, dtype=torch.bool) for name, value in scores.items() if name not in masks}
    return {**masks, **whole}


def _n_of_m(scores: torch.Tensor, kept: int, of: int) -> torch.Tensor:
    groups = scores.reshape(-1, of)
    best = groups.argsort(dim=1, descending=True, stable=True)[:, :kept]
    return torch.zeros_like(groups, dtype=torch.bool).scatter_(1, best, True).reshape(scores.shape)


def _largest(scores: torch.Tensor, fewer: int) -> torch.Tensor:
    """Returns True for all but the ``fewer`` smallest; of equal ones the first go. No sort: training asks often."""
    if fewer == 0:
        return torch.ones_like(scores, dtype=torch.bool)
    threshold = scores.kthvalue(fewer).values
    kept = scores > threshold
    ties = (scores == threshold).nonzero().flatten()
    kept[ties[fewer - int((scores < threshold).sum()) :]] = True
    return kept


def _block_sums(scores: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    cut = scores.double().reshape(scores.shape[0] // rows, rows, scores.shape[1] // columns, columns)
    return cut.sum(dim=(1, 3))
