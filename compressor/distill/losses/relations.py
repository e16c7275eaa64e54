"""Relations between the tokens of a sentence, head by head: attention scores, and how far two of them are apart.

With d the size of a head, the relation of two projections ``A`` and ``B`` is ``A Bᵀ / √d``: of queries and keys it is
the attention score (Vaswani et al. 2017, equation 1), of values with values MiniLM's value relation (Wang et al. 2020).
"""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from compressor.core.errors import RecipeError
from compressor.distill.losses.base import Pairs
from compressor.distill.outputs import Shape


def relation(left: torch.Tensor, right: torch.Tensor, mask: torch.Tensor, *, heads: int) -> torch.Tensor:
    """Returns the scaled products of every two tokens, before any softmax.

    Args:
        left: shape (batch, tokens, width), the heads side by side.
        right: shape (batch, tokens, width).
        mask: 1 for a token, 0 for padding; shape (batch, tokens).
        heads: number of heads; divides the width.

    Returns:
        Shape (batch, heads, tokens, tokens); 0 in rows and columns of padding.
    """
    rows, columns = _heads(left, mask, heads), _heads(right, mask, heads)
    return torch.matmul(rows, columns.transpose(-1, -2)) / math.sqrt(rows.shape[-1])


def relation_kl(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Returns ``KL(softmax(teacher) ‖ softmax(student))``, the mean over heads and real tokens.

    Args:
        student: relations of shape (batch, heads, tokens, tokens).
        teacher: relations of the same shape.
        mask: 1 for a token, 0 for padding; shape (batch, tokens).
    """
    real = mask.bool()
    padding = ~real[:, None, None, :]
    # The lowest finite number, not -inf: its probability is 0 too, and 0 times a difference of two stays 0.
    lowest = torch.finfo(student.dtype).min
    log_student = functional.log_softmax(student.masked_fill(padding, lowest), dim=-1)
    log_teacher = functional.log_softmax(teacher.masked_fill(padding, lowest), dim=-1)
    each = functional.kl_div(log_student, log_teacher, reduction="none", log_target=True).sum(dim=-1)
    return each.transpose(1, 2)[real].mean()


def relation_mse(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Returns the mean squared difference of two relations over heads and pairs of real tokens.

    Args:
        student: relations of shape (batch, heads, tokens, tokens).
        teacher: relations of the same shape.
        mask: 1 for a token, 0 for padding; shape (batch, tokens).
    """
    real = mask.bool()
    both = (real[:, :, None] & real[:, None, :])[:, None]
    squares = (student - teacher).square().masked_fill(~both, 0)
    return squares.sum() / (both.sum() * student.shape[1])


def check_relations(student: Shape, teacher: Shape) -> None:
    """Raises RecipeError where a model has no queries, keys and values to compare."""
    for role, shape in (("student", student), ("teacher", teacher)):
        if not shape.heads:
            raise RecipeError(
                f"the {role} gives no queries, keys and values; a loss on relations expects them of both models",
                remedy="use the losses 'hidden' and 'logits'",
            )


def check_scores(name: str, pairs: Pairs, student: Shape, teacher: Shape, *, remedy: str) -> None:
    """Refuses two models whose attentions cannot be compared head by head.

    Args:
        name: the loss that compares them.
        pairs: zero-based (student, teacher) layers.
        student: the student's shape.
        teacher: the teacher's.
        remedy: what to do about unequal numbers of heads.

    Raises:
        RecipeError: no attentions, scores with position terms, or another number of heads.
    """
    check_relations(student, teacher)
    for role, shape in (("student", student), ("teacher", teacher)):
        if not shape.plain_scores:
            raise RecipeError(
                f"the {role}'s attention scores hold relative positions, which the loss '{name}' is not given; "
                "expected a model whose scores are the products of queries and keys",
                remedy="use 'minilmv2', which compares queries, keys and values with themselves",
            )
    for ours, theirs in pairs:
        if student.heads[ours] != teacher.heads[theirs]:
            raise RecipeError(
                f"student layer {ours} has {student.heads[ours]} attention heads and teacher layer {theirs} "
                f"{teacher.heads[theirs]}; the loss '{name}' compares head with head and expects equal numbers",
                remedy=remedy,
            )


def _heads(projected: torch.Tensor, mask: torch.Tensor, heads: int) -> torch.Tensor:
    """Cuts (batch, tokens, width) into (batch, heads, tokens, size), 0 in padding."""
    # Filled, not multiplied: a NaN in a padded position must reach neither the loss nor the gradient.
    filled = projected.masked_fill(~mask.bool()[:, :, None], 0)
    return filled.reshape(*filled.shape[:2], heads, -1).transpose(1, 2)


USE_RELATIONS = "use 'minilmv2', whose relation heads do not depend on the models' own"
