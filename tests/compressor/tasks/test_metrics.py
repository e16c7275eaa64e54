import numpy as np
import pytest

from compressor.tasks.metrics import (
    answer_scores,
    best_constant_micro_f1,
    correlations,
    entities,
    micro_f1,
    sigmoid,
    span_f1,
)


@pytest.mark.parametrize(("tags", "expected"), [
    ("O B-A I-A O B-A", {("A", 1, 3), ("A", 4, 5)}),
    ("B-A B-A I-B", {("A", 0, 1), ("A", 1, 2), ("B", 2, 3)}),
    ("I-A I-A O", {("A", 0, 2)}),
    ("O O", set()),
    ("B-A I-A E-A S-A O S-B", {("A", 0, 3), ("A", 3, 4), ("B", 5, 6)}),
    ("B-A L-A U-A B-B", {("A", 0, 2), ("A", 2, 3), ("B", 3, 4)}),
])  # fmt: skip
def test_entities_of_bio_tags_and_their_kin(tags, expected):
    assert entities(tags.split()) == expected


def test_entity_f1_counts_whole_entities_only():
    truth = [entities(["B-A", "I-A", "O", "B-B"]), entities(["O"])]
    half = [entities(["B-A", "O", "O", "B-B"]), entities(["O"])]
    assert span_f1(truth, truth) == 1.0
    assert span_f1(half, truth) == 0.5
    assert span_f1([set()], [set()]) == 1.0
    assert span_f1([set()], [{("A", 0, 1)}]) == 0.0


def test_micro_f1_against_sklearn_and_the_best_constant_by_trying_all():
    f1_score = pytest.importorskip("sklearn.metrics").f1_score
    random = np.random.default_rng(0)
    truth, answers = random.random((40, 4)) < [0.9, 0.5, 0.2, 0.1], random.random((40, 4)) < 0.5
    assert micro_f1(answers, truth) == pytest.approx(f1_score(truth, answers, average="micro"))
    constants = [np.tile(np.array([bits >> i & 1 for i in range(4)], bool), (40, 1)) for bits in range(1, 16)]
    assert best_constant_micro_f1(truth) == pytest.approx(max(micro_f1(item, truth) for item in constants))
    assert micro_f1(np.zeros((2, 2), bool), np.zeros((2, 2), bool)) == 1.0


@pytest.mark.parametrize(("found", "accepted", "exact", "f1"), [
    ("The Eiffel Tower!", ("eiffel tower",), 1.0, 1.0),
    ("eiffel tower in Paris", ("Eiffel Tower",), 0.0, 2 * 2 / 6),
    ("rome", ("Paris", "Rome"), 1.0, 1.0),
    ("", (), 1.0, 1.0),
    ("rome", (), 0.0, 0.0),
])  # fmt: skip
def test_answers_are_compared_by_words(found, accepted, exact, f1):
    assert answer_scores(found, accepted) == (exact, pytest.approx(f1))


def test_correlations_of_what_never_changes_are_zero():
    assert correlations(np.ones(5), np.arange(5.0)) == (0.0, 0.0)
    assert correlations(np.arange(5.0) ** 3, np.arange(5.0))[1] == pytest.approx(1.0)
    assert correlations(np.array([1.0]), np.array([2.0])) == (0.0, 0.0)


def test_the_sigmoid_stays_finite():
    assert sigmoid(np.array([-1e4, 0.0, 1e4])).tolist() == [0.0, 0.5, 1.0]
