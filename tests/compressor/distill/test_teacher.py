"""The teacher's answers: computed once, kept by content, exact enough, and never in half precision."""

from pathlib import Path

import numpy as np
import pytest
import torch

from compressor.core.checkpoint import Checkpoint
from compressor.data.batches import EncodedSplit, encode_split
from compressor.distill.capture import run_model
from compressor.distill.outputs import Needs
from compressor.distill.teacher import TeacherOutputs
from compressor.models import load_compressed
from tests.compressor.tiny_data import tiny_dataset
from tests.models import tiny_checkpoint

INDICES = [3, 50, 7]
EXACT = ("bert", "roberta", "electra", "albert", "distilbert")


class Forwards:
    """Counts the forward passes of a model."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.count = 0
        model.register_forward_pre_hook(self._one)

    def _one(self, *_: object) -> None:
        self.count += 1


def split(checkpoint: Checkpoint) -> EncodedSplit:
    return encode_split(checkpoint, tiny_dataset().train, max_tokens=32)


def answers(model, data, scratch: Path, **more) -> TeacherOutputs:
    values = {"needed": range(len(data)), "states": (), "width": 32, "folder": scratch, "cache_mb": 10, **more}
    return TeacherOutputs(model, data, **values)


def exact(model, data, states=(), layers=()):
    with torch.no_grad():
        return run_model(model, data.inputs(INDICES), states, layers)


def test_cached_and_recomputed_states_agree(teacher: Checkpoint, tmp_path: Path) -> None:
    data, model = split(teacher), load_compressed(teacher.path)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    cached = answers(model, data, tmp_path / "a", states=[4, 0])
    fresh = answers(model, data, tmp_path / "b", states=[4, 0], cache_mb=0)
    assert (cached.caches_hidden, fresh.caches_hidden) == (True, False)
    expected, forwards = exact(model, data, [0, 4]), Forwards(model)
    found = cached.batch(INDICES)
    assert forwards.count == 0, "a cached batch ran the teacher"
    real = data.inputs(INDICES)["attention_mask"].bool()
    for state in (0, 4):
        assert torch.allclose(found.hidden_states[state][real], expected.hidden_states[state][real], atol=5e-3)
        assert torch.equal(fresh.batch(INDICES).hidden_states[state], expected.hidden_states[state])
    assert torch.allclose(found.logits, expected.logits, atol=1e-4)
    forwards.count = 0
    answers(model, data, tmp_path / "a", states=[4, 0])
    assert forwards.count == 0, "a resumed run filled the cache again"


@pytest.mark.parametrize("family", [*EXACT, "mobilebert", "deberta-v2"])
def test_queries_keys_and_values_need_no_further_forward(family: str, tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(family, tmp_path / "teacher", layers=3)
    data, model = split(checkpoint), load_compressed(checkpoint.path)
    kept = answers(model, data, tmp_path, states=[3], layers=[0, 2])
    assert kept.caches_hidden == (family in EXACT)
    expected, forwards = exact(model, data, [3], [0, 2]), Forwards(model)
    found = kept.batch(INDICES)
    assert forwards.count == (0 if family in EXACT else 1)
    assert (set(found.hidden_states), set(found.projections)) == ({3}, {0, 2})
    real = data.inputs(INDICES)["attention_mask"].bool()
    for layer in (0, 2):
        for ours, theirs in zip(found.projections[layer], expected.projections[layer], strict=True):
            assert torch.allclose(ours[real], theirs[real], rtol=1e-2, atol=1e-2 * theirs.abs().max().item())


def test_a_batch_gets_what_it_asks_for_and_no_more(teacher: Checkpoint, tmp_path: Path) -> None:
    data, model = split(teacher), load_compressed(teacher.path)
    kept = answers(model, data, tmp_path, states=[1, 4], layers=[3], cache_mb=0)
    forwards = Forwards(model)
    logits = kept.batch(INDICES, Needs())
    assert (forwards.count, logits.hidden_states, logits.projections) == (0, {}, {})
    some = kept.batch(INDICES, Needs(states=(4,)))
    assert (forwards.count, set(some.hidden_states), some.projections) == (1, {4}, {})


def test_files_are_found_by_their_content(teacher: Checkpoint, tmp_path: Path) -> None:
    data, model = split(teacher), load_compressed(teacher.path)
    forwards = Forwards(model)
    first = answers(model, data, tmp_path, states=[2])
    passes = forwards.count
    assert passes > 0
    again = answers(load_compressed(teacher.path), data, tmp_path, states=[2])
    assert torch.equal(again.batch(INDICES).hidden_states[2], first.batch(INDICES).hidden_states[2])
    answers(model, data, tmp_path)
    answers(model, data, tmp_path, states=[1, 2])
    assert forwards.count == 2 * passes, "only a state that is not there is asked for"
    answers(model, data, tmp_path, states=[1])
    assert forwards.count == 2 * passes, "what is there was computed again"
    passes = forwards.count
    for change in ({"states": [0]}, {"needed": range(50, 60)}):
        answers(model, data, tmp_path, **{"states": [2], **change})
        assert forwards.count > passes, f"{change} found the answers to something else"
        passes = forwards.count
    with torch.no_grad():
        model.classifier.bias += 1
    other = answers(model, data, tmp_path, states=[2])
    assert torch.allclose(other.batch(INDICES).logits, first.batch(INDICES).logits + 1, atol=1e-4)
    shorter = encode_split(teacher, tiny_dataset().train, max_tokens=5)
    assert answers(model, shorter, tmp_path, states=[2]).batch(INDICES).hidden_states[2].shape[1] == 5


def test_an_unfinished_file_is_made_again(teacher: Checkpoint, tmp_path: Path) -> None:
    data, model = split(teacher), load_compressed(teacher.path)

    def stop(done: int, total: int, note: str = "") -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        answers(model, data, tmp_path, states=[2], progress=stop)
    found = answers(model, data, tmp_path, states=[2]).batch(INDICES).hidden_states[2]
    real = data.inputs(INDICES)["attention_mask"].bool()
    assert torch.allclose(found[real], exact(model, data, [2]).hidden_states[2][real], atol=5e-3)


def test_a_teacher_that_is_run_again_keeps_float32_and_the_kept_logits(teacher: Checkpoint, tmp_path: Path) -> None:
    data, model = split(teacher), load_compressed(teacher.path)
    fresh = answers(model, data, tmp_path, states=[2], cache_mb=0)
    (file,) = tmp_path.glob("*-logits.npy")
    expected = exact(model, data, [2])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = fresh.batch(INDICES)
    assert torch.equal(found.hidden_states[2], expected.hidden_states[2])
    assert np.array_equal(found.logits.numpy(), np.load(file)[INDICES])


def test_states_beyond_float16_are_not_cached(
    teacher: Checkpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, model = split(teacher), load_compressed(teacher.path)
    with torch.no_grad():
        model.bert.encoder.layer[1].output.LayerNorm.weight.mul_(1e5)
    expected = exact(model, data, [2])
    assert expected.hidden_states[2].abs().max() > 65504
    with caplog.at_level("INFO"):
        found = answers(model, data, tmp_path, states=[2])
    assert "range of float16" in caplog.text
    assert not found.caches_hidden
    assert torch.equal(found.batch(INDICES).hidden_states[2], expected.hidden_states[2])
    assert torch.allclose(found.batch(INDICES).logits, expected.logits, atol=1e-4)
    assert [file.name for file in tmp_path.iterdir() if "logits" not in file.name] == []
