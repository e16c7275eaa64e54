"""What each task makes of given outputs: metrics, answers, agreement."""

import numpy as np
import pytest

from compressor.core.errors import DataError, ModelError
from compressor.core.task import TASKS
from compressor.data.dataset import Split
from compressor.tasks import HEADS
from compressor.tasks.base import TextOutputs
from compressor.text import SentenceEncoder
from tests.models import TAGS, tiny_tokenizer


@pytest.fixture(scope="module")
def encoder():
    return SentenceEncoder(tiny_tokenizer().backend_tokenizer, max_tokens=12, pad_id=0)


def one_hot(rows, width, scale=4.0):
    return scale * np.eye(width, dtype=np.float32)[list(rows)]


def tagged(encoder, text, tags):
    """Logits that give the first token of each word its tag, and every other token a tag that would be wrong."""
    (spans,) = encoder.spans([text])
    starts = {sum(len(word) + 1 for word in text.split()[:index]): tag for index, tag in enumerate(tags)}
    rows = [
        TAGS.index(starts[start]) if source is not None and start in starts else TAGS.index("B-TIME")
        for (start, _), source in zip(spans.offsets, spans.sources, strict=True)
    ]
    return one_hot(rows, len(TAGS))


def test_every_task_has_a_head():
    assert set(HEADS) == set(TASKS)


def test_a_word_is_tagged_by_its_first_token(encoder):
    text, tags = "my xyz order arrive late", ["O", "B-ITEM", "I-ITEM", "O", "B-TIME"]
    assert len(encoder.encode([text])[0]) > 7  # xyz is three tokens
    found = TextOutputs({"logits": [tagged(encoder, text, tags)]})
    head = HEADS["token-classification"]
    split = Split((text,), (tuple(map(TAGS.index, tags)),))
    evaluation = head.evaluate(found, split, encoder, TAGS)
    assert (evaluation.metric, evaluation.value, evaluation.details["token_accuracy"]) == ("entity_f1", 1.0, 1.0)
    (answer,) = head.answers(found, [text], encoder, TAGS)
    pieces = [(item.label, item.text, text[item.start : item.end]) for item in answer.entities]
    assert pieces == [("ITEM", "xyz order", "xyz order"), ("TIME", "late", "late")]


def test_words_beyond_the_longest_text_count_as_outside(encoder):
    words = ["order"] * 14
    text, tags = " ".join(words), ["B-ITEM"] * 14
    found = TextOutputs({"logits": [tagged(encoder, text, tags)]}, truncated=1)
    split = Split((text,), (tuple(map(TAGS.index, tags)),))
    evaluation = HEADS["token-classification"].evaluate(found, split, encoder, TAGS)
    assert evaluation.details["token_accuracy"] == pytest.approx(10 / 14)
    assert evaluation.truncated == 1


def test_tags_that_are_no_entities_are_judged_by_their_share(encoder):
    labels = ("NOUN", "VERB")
    (spans,) = encoder.spans(["my order arrive"])
    rows = [{3: 0, 9: 1}.get(start, 0) for start, _ in spans.offsets]
    split = Split(("my order arrive",), ((1, 0, 1),))
    evaluation = HEADS["token-classification"].evaluate(
        TextOutputs({"logits": [one_hot(rows, 2)]}), split, encoder, labels
    )
    assert evaluation.metric == "token_accuracy"
    assert (evaluation.value, evaluation.majority_class) == (pytest.approx(2 / 3), pytest.approx(2 / 3))


QUESTION = ("where is it", "my order is late")


def span_outputs(encoder, start, end):
    tokens = len(encoder.encode([QUESTION])[0])
    return TextOutputs({
        "start_logits": [one_hot([start], tokens)[0]], "end_logits": [one_hot([end], tokens)[0]],
    })  # fmt: skip


def test_an_answer_is_a_span_of_the_context(encoder):
    (spans,) = encoder.spans([QUESTION])
    order = next(i for i, (o, s) in enumerate(zip(spans.offsets, spans.sources, strict=True)) if (s, o[0]) == (1, 3))
    head = HEADS["question-answering"]
    (answer,) = head.answers(span_outputs(encoder, order, order + 1), [QUESTION], encoder, ())
    assert answer.answer == QUESTION[1][answer.start : answer.end] == "order is"
    # The likeliest tokens stand in the question, and the end before the start: neither makes an answer.
    (answer,) = head.answers(span_outputs(encoder, 1, 2), [QUESTION], encoder, ())
    assert answer.answer in QUESTION[1]
    (answer,) = head.answers(span_outputs(encoder, order + 1, order), [QUESTION], encoder, ())
    assert answer.start < answer.end
    evaluation = head.evaluate(
        span_outputs(encoder, order, order + 1), Split((QUESTION,), (("order is late", "order"),)), encoder, ()
    )
    assert (evaluation.metric, evaluation.correct) == ("f1", 0)
    assert evaluation.value == pytest.approx(0.8)


def test_no_answer_is_one_where_the_data_knows_of_it(encoder):
    nothing = span_outputs(encoder, 0, 0)
    head = HEADS["question-answering"]
    both = Split((QUESTION, QUESTION), ((), ("late",)))
    twice = TextOutputs({name: [*rows, *rows] for name, rows in nothing.rows.items()})
    assert head.evaluate(twice, both, encoder, ()).details["exact_match"] == 0.5
    (answer,) = head.answers(nothing, [QUESTION], encoder, ())
    assert answer.answer


def test_labels_are_those_with_a_positive_logit(encoder):
    head, labels = HEADS["multi-label-classification"], ("a", "b", "c")
    found = TextOutputs({"logits": [np.array([2.0, -1.0, 0.5]), np.array([-1.0, -2.0, -3.0])]})
    first, second = head.answers(found, ["x", "y"], encoder, labels)
    assert (first.labels, second.labels) == (("a", "c"), ())
    assert sum(first.scores.values()) > 1
    evaluation = head.evaluate(found, Split(("x", "y"), ((1.0, 0.0, 0.0), (0.0, 0.0, 0.0))), encoder, labels)
    assert (evaluation.metric, evaluation.correct, evaluation.value) == ("micro_f1", 1, pytest.approx(2 / 3))


def test_a_regression_is_judged_by_order(encoder):
    found = TextOutputs({"logits": [np.array([value]) for value in (0.1, 0.2, 5.0)]})
    split = Split(("x", "y", "z"), (1.0, 2.0, 3.0))
    evaluation = HEADS["regression"].evaluate(found, split, encoder, ("score",))
    assert evaluation.value == pytest.approx(1.0)
    assert 0 < evaluation.details["pearson"] < 1
    with pytest.raises(ModelError, match="one number each"):
        HEADS["regression"].evaluate(TextOutputs({"logits": [np.zeros(2)] * 3}), split, encoder, ())


def test_embeddings_are_judged_pair_by_pair(encoder):
    head = HEADS["sentence-embedding"]
    split = Split((("a", "b"), ("c", "d"), ("e", "f")), (1.0, 0.5, 0.0))
    assert head.texts(split) == ("a", "b", "c", "d", "e", "f")
    rows = [[1, 0], [1, 0], [1, 0], [1, 1], [1, 0], [0, 1]]
    evaluation = head.evaluate(TextOutputs({"embedding": [np.array(row, float) for row in rows]}), split, encoder, ())
    assert (evaluation.value, evaluation.examples) == (pytest.approx(1.0), 3)


@pytest.mark.parametrize("task", TASKS)
def test_no_examples_and_broken_outputs_are_refused(encoder, task):
    head = HEADS[task]
    with pytest.raises(DataError, match="no examples"):
        head.evaluate(TextOutputs({"logits": []}), Split((), ()), encoder, ())
    with pytest.raises(ModelError, match="not finite"):
        head.evaluate(TextOutputs({"logits": [np.array([np.nan])]}), Split(("x",), (0,)), encoder, ())


def test_agreement_looks_at_real_tokens_only():
    mask = np.array([[1, 1, 0], [1, 1, 1]])
    tags = np.zeros((2, 3, 2))
    other = tags.copy()
    other[0, 2, 1] = 1.0  # padding
    other[1, 0, 1] = 1.0
    agreement = HEADS["token-classification"].agreement({"logits": other}, {"logits": tags}, mask)
    assert agreement.tolist() == [1, 1, 0, 1, 1]
    start = np.array([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    padded = np.array([[0.0, 1.0, 9.0], [2.0, 1.0, 0.0]])
    spans = HEADS["question-answering"].agreement(
        {"start_logits": padded, "end_logits": start}, {"start_logits": start, "end_logits": start}, mask
    )
    assert spans.tolist() == [1, 0]


def test_agreement_of_the_other_tasks():
    mask = np.ones((3, 2))
    ours, theirs = np.array([[1.0], [2.0], [3.0]]), np.array([[1.0], [3.0], [2.0]])
    assert HEADS["regression"].agreement({"logits": ours}, {"logits": theirs}, mask).tolist() == [1, 1, 0]
    assert HEADS["regression"].agreement({"logits": ours[:1]}, {"logits": ours[:1]}, mask[:1]).tolist() == [1]
    left, right = np.array([[1.0, -1.0], [1.0, 1.0]]), np.array([[2.0, -3.0], [1.0, -1.0]])
    multi = HEADS["multi-label-classification"].agreement({"logits": left}, {"logits": right}, mask)
    assert multi.tolist() == [1, 0]
    vectors = {"embedding": np.array([[3.0, 4.0], [1.0, 0.0]])}
    turned = {"embedding": np.array([[6.0, 8.0], [0.0, 2.0]])}
    assert HEADS["sentence-embedding"].agreement(vectors, turned, mask).tolist() == pytest.approx([1, 0])
