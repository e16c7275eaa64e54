"""Word embeddings stored as two thin matrices (ALBERT, Lan et al. 2020, section 3.1)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class FactorizedEmbedding(nn.Embedding):
    """Looks up rows of a (vocabulary, rank) table and widens them with a (rank, width) projection.

    Args:
        num_embeddings: rows of the table.
        rank: its columns.
        width: of the vectors that come out.
        padding_idx: row that is not trained.
        options: device and dtype.
    """

    def __init__(
        self, num_embeddings: int, rank: int, width: int, padding_idx: int | None = None, **options: Any
    ) -> None:
        super().__init__(num_embeddings, rank, padding_idx=padding_idx, **options)
        self.projection = nn.Linear(rank, width, bias=False, **options)

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # the base class names it so
        """Returns vectors of shape (…, width) for ids of shape (…)."""
        widened: torch.Tensor = self.projection(super().forward(input))
        return widened


def factorized(table: nn.Embedding, rank: int) -> tuple[FactorizedEmbedding, float]:
    """Returns the nearest embedding of that rank in the least squares sense (Eckart and Young 1936), and its error.

    The right singular vectors are the eigenvectors of the width x width Gram matrix, so no matrix of the table's size
    is decomposed.

    Returns:
        The embedding; the Frobenius norm of what is lost, as a share of the table's norm.
    """
    weight = table.weight.detach()
    gram = torch.zeros(weight.shape[1], weight.shape[1], dtype=torch.float64)
    for rows in torch.split(weight, 8192):
        gram += rows.double().T @ rows.double()
    values, vectors = torch.linalg.eigh(gram)  # ascending
    basis = vectors.flip(1)[:, :rank].to(weight.dtype)
    made = FactorizedEmbedding(weight.shape[0], rank, weight.shape[1], padding_idx=table.padding_idx)
    with torch.no_grad():
        made.weight.copy_(weight @ basis)
        made.projection.weight.copy_(basis)
    lost = values.clamp(min=0)[: values.numel() - rank].sum() / values.clamp(min=0).sum().clamp(min=1e-300)
    return made.to(weight.dtype), float(lost.sqrt())
