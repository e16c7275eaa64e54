import pytest

from compressor.core.errors import RecipeError
from compressor.distill.layer_map import resolve_map, resolve_pairs


@pytest.mark.parametrize(
    ("layer_map", "student", "teacher", "expected"),
    [
        ("uniform", 3, 6, (1, 3, 5)),
        ("uniform", 4, 12, (2, 5, 8, 11)),
        ("uniform", 4, 6, (0, 2, 3, 5)),
        ("uniform", 6, 6, (0, 1, 2, 3, 4, 5)),
        ("uniform", 1, 6, (5,)),
        ("last", 3, 6, (3, 4, 5)),
        ("tinybert", 3, 6, (1, 3, 5)),
        ("tinybert", 4, 12, (2, 5, 8, 11)),
        ((0, 2, 5), 3, 6, (0, 2, 5)),
    ],
)
def test_maps(layer_map, student: int, teacher: int, expected: tuple[int, ...]) -> None:
    assert resolve_map(layer_map, student_layers=student, teacher_layers=teacher) == expected


@pytest.mark.parametrize(
    ("layer_map", "student", "message"),
    [
        ("uniform", 7, "student of 7 layers"),
        ((0, 1), 3, "expected 3"),
        ((0, 1, 6), 3, "expected 0 to 5"),
        ((-1, 1, 2), 3, "expected 0 to 5"),
        ((3, 1, 5), 3, "backwards"),
    ],
)
def test_maps_that_do_not_fit(layer_map, student: int, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        resolve_map(layer_map, student_layers=student, teacher_layers=6)


def test_a_deeper_student_is_compared_where_its_teacher_has_layers() -> None:
    assert resolve_pairs("uniform", student_layers=3, teacher_layers=6) == ((0, 1), (1, 3), (2, 5))
    assert resolve_pairs("uniform", student_layers=12, teacher_layers=3) == ((3, 0), (7, 1), (11, 2))
    assert resolve_pairs("last", student_layers=4, teacher_layers=2) == ((2, 0), (3, 1))
    with pytest.raises(RecipeError, match="deeper than its teacher"):
        resolve_pairs((0, 1, 1), student_layers=3, teacher_layers=2)


def test_tinyberts_formula_is_uniform_where_the_depths_divide_and_refused_elsewhere() -> None:
    for teacher in range(1, 25):
        for student in range(1, teacher + 1):
            if teacher % student:
                with pytest.raises(RecipeError, match="no whole layer"):
                    resolve_map("tinybert", student_layers=student, teacher_layers=teacher)
            else:
                found = resolve_map("tinybert", student_layers=student, teacher_layers=teacher)
                assert found == tuple(m * teacher // student - 1 for m in range(1, student + 1))
                assert found == resolve_map("uniform", student_layers=student, teacher_layers=teacher)
    assert resolve_pairs("tinybert", student_layers=12, teacher_layers=6) == tuple((2 * n + 1, n) for n in range(6))
