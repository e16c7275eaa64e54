"""The study of distillation methods: equal steps for all, the same student, a table that says the spread."""

import pytest

from benchmarks.studies.distillation import PLAIN, STUDENTS, TEACHER, stages, table

METHODS = [*PLAIN, "distilbert", "tinybert", "minilm", "minilmv2"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("student", ["3x384", "4x312"])
def test_every_method_takes_the_same_steps_on_the_same_student(method: str, student: str) -> None:
    first, *later = stages(method, student, 1.5)
    assert sum(stage.epochs for stage in (first, *later)) == pytest.approx(1.5)
    assert first.student is not None
    assert first.student.model_dump(include=STUDENTS[student].keys()) == STUDENTS[student]
    assert [(stage.student, stage.teacher) for stage in later] == [(None, TEACHER)] * len(later)


def test_a_recipe_may_bring_its_own_student() -> None:
    first, joint = stages("mobilebert", "own", 2.0)
    assert first.student.family == "mobilebert"
    assert joint.teacher == TEACHER


def test_the_table_has_the_mean_the_spread_and_the_share_of_the_teacher() -> None:
    runs = [
        {"student": "3x384", "method": method, "accuracy": score, "teacher_accuracy": 0.9, "parameters": 17_400_000,
         "seconds": 60.0}
        for method, scores in {"labels": (0.80,), "logits": (0.84, 0.86, 0.88)}.items()
        for score in scores
    ]  # fmt: skip
    head, _, best, last = table(runs).splitlines()
    assert [cell.strip() for cell in head.strip("|").split("|")][3:6] == [
        "seeds",
        "test accuracy %",
        "of the teacher %",
    ]
    assert best == "| 3x384 | 17.4 M | logits | 3 | 86.00 ± 2.00 | 95.6 | 60 |"
    assert last == "| 3x384 | 17.4 M | labels | 1 | 80.00 | 88.9 | 60 |"
