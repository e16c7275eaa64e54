"""Which teacher layer each student layer learns from, or is copied from."""

from __future__ import annotations

from typing import Literal

from compressor.core.errors import RecipeError

LayerMap = Literal["uniform", "last", "tinybert"] | tuple[int, ...]
"""``uniform``, ``last``, ``tinybert``, or one zero-based teacher layer for each student layer."""


def resolve_pairs(layer_map: LayerMap, *, student_layers: int, teacher_layers: int) -> tuple[tuple[int, int], ...]:
    """Returns zero-based (student layer, teacher layer) pairs to compare.

    A student no deeper than its teacher has one pair a student layer (:func:`resolve_map`). A deeper one (the many thin
    layers of MobileBERT) is compared where the teacher has layers, the map turned round: ``uniform`` pairs each teacher
    layer with the last of an equal part of the student's, ``last`` with the student's last layers.

    The embeddings are no layer here: a loss that compares them pairs state 0 with state 0, TinyBERT's ``g(0) = 0``.

    Raises:
        RecipeError: see :func:`resolve_map`; a list for a deeper student.
    """
    if student_layers <= teacher_layers:
        return tuple(enumerate(resolve_map(layer_map, student_layers=student_layers, teacher_layers=teacher_layers)))
    if not isinstance(layer_map, str):
        raise RecipeError(
            f"found a list of teacher layers for a student of {student_layers} layers, deeper than its teacher's "
            f"{teacher_layers}",
            remedy="use 'uniform', 'last' or 'tinybert'",
        )
    ours = resolve_map(layer_map, student_layers=teacher_layers, teacher_layers=student_layers)
    return tuple(zip(ours, range(teacher_layers), strict=True))


def resolve_map(layer_map: LayerMap, *, student_layers: int, teacher_layers: int) -> tuple[int, ...]:
    """Returns the zero-based teacher layer of each student layer.

    ``uniform`` takes the last layer of each of ``student_layers`` parts, equal up to rounding (6 to 3: layers 1, 3, 5;
    6 to 4: 0, 2, 3, 5). ``last`` takes the teacher's last layers (6 to 3: layers 3, 4, 5), the PKD-Last of Sun et al.
    (2019). ``tinybert`` is the formula of Jiao et al. (2020, section 4.1), ``g(m) = m · N / M`` for student layer ``m``
    of ``M`` and a teacher of ``N``, both counted from 1. Where ``M`` divides ``N`` it is the same as ``uniform``;
    elsewhere the formula names no layer and is refused: who asks for the paper's map should not get a rounded one.

    Raises:
        RecipeError: a student deeper than its teacher, a list that does not fit the two depths, or ``tinybert`` where
            the student's depth does not divide the teacher's.
    """
    if not 1 <= student_layers <= teacher_layers:
        raise RecipeError(
            f"found a student of {student_layers} layers; expected 1 to {teacher_layers}, the teacher's depth",
            remedy="set student.layers to no more than the teacher has",
        )
    if layer_map == "tinybert" and teacher_layers % student_layers:
        raise RecipeError(
            f"TinyBERT's map m · {teacher_layers} / {student_layers} names no whole layer; expected depths that divide",
            remedy="use 'uniform', its rounded form, list the teacher layers, or choose another depth",
        )
    if layer_map == "uniform" or layer_map == "tinybert":
        return tuple((index + 1) * teacher_layers // student_layers - 1 for index in range(student_layers))
    if layer_map == "last":
        return tuple(range(teacher_layers - student_layers, teacher_layers))
    if len(layer_map) != student_layers:
        raise RecipeError(
            f"the map {list(layer_map)} names {len(layer_map)} layers; expected {student_layers}, one a student layer",
            remedy="name one teacher layer for each student layer, or use 'uniform'",
        )
    if any(not 0 <= layer < teacher_layers for layer in layer_map):
        raise RecipeError(
            f"the map {list(layer_map)} names a layer that the teacher lacks; expected 0 to {teacher_layers - 1}",
            remedy="count the teacher's layers from 0",
        )
    if list(layer_map) != sorted(layer_map):
        raise RecipeError(
            f"the map {list(layer_map)} goes backwards; expected ascending teacher layers",
            remedy="list the teacher layers in ascending order",
        )
    return tuple(layer_map)
