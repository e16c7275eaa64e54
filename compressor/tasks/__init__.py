"""One file a task: what its outputs mean, how good they are, whether two models give the same answer."""

from __future__ import annotations

from collections.abc import Mapping

from compressor.core.task import Task
from compressor.tasks.base import TaskHead
from compressor.tasks.classification import Classification
from compressor.tasks.embedding import SentenceEmbedding
from compressor.tasks.multi_label import MultiLabel
from compressor.tasks.question_answering import QuestionAnswering
from compressor.tasks.regression import Regression
from compressor.tasks.token_classification import TokenClassification

HEADS: Mapping[Task, TaskHead] = {
    head.task: head
    for head in (
        Classification(),
        MultiLabel(),
        Regression(),
        TokenClassification(),
        QuestionAnswering(),
        SentenceEmbedding(),
    )
}

__all__ = ["HEADS", "TaskHead"]
