from pathlib import Path

import pytest
import torch
from torch.nn import functional
from transformers import AutoModelForSequenceClassification

from compressor.core.errors import ModelError, RecipeError
from compressor.data.batches import encode_split
from compressor.distill.config import DistillConfig
from compressor.distill.stage import Distill
from compressor.distill.students import NewStudent, SlicedStudent
from compressor.families import adapter_for
from compressor.models import load_compressed, save_checkpoint, unique_parameters
from compressor.shapes import parameters_of, plain_shape, shape_of
from tests.compressor.tiny_data import context, run_stage, tiny_dataset
from tests.models import FAMILIES, tiny_checkpoint


def settings(**more) -> SlicedStudent:
    return SlicedStudent.model_validate({"init": "slice", "layers": 2, "hidden_size": 24, **more})


@pytest.mark.parametrize("importance", ["magnitude", "activation"])
@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "mobilebert"])
def test_a_slice_is_a_plain_model_that_transformers_loads_alone(family: str, importance: str, tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(family, tmp_path / "teacher", layers=4)
    teacher = load_compressed(checkpoint)
    text = encode_split(checkpoint, tiny_dataset(train=24).train, max_tokens=32)
    wanted = settings(importance=importance, ffn=40)
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    student = wanted.make(teacher, text)
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items()), "the teacher moved"
    assert unique_parameters(student) == parameters_of(wanted.model_config_for(teacher.config))
    assert shape_of(student) == plain_shape(student.config)
    save_checkpoint(student, checkpoint.path, tmp_path / "student")
    alone, loading = AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "student", attn_implementation="eager", output_loading_info=True
    )
    assert not any(loading.values())
    inputs = text.inputs(range(8))
    with torch.no_grad():
        logits = student(**inputs).logits
        assert torch.equal(alone.eval()(**inputs).logits, logits)
        assert torch.equal(load_compressed(tmp_path / "student")(**inputs).logits, logits)
    assert torch.isfinite(logits).all()
    adapter = adapter_for(alone.config)
    assert (adapter.num_layers(alone.config), adapter.hidden_size(alone.config)) == (2, 24)
    assert (adapter.num_heads(alone.config), adapter.intermediate_size(alone.config)) == (4, 40)
    assert shape_of(alone).head_size == 6


def test_parameters_of_a_bert_by_hand(teacher) -> None:
    student = settings(hidden_size=24, heads=3, ffn=40).make(load_compressed(teacher))
    h, f, vocabulary, positions, types, labels = 24, 40, student.config.vocab_size, 64, 2, 3
    layer = 4 * (h * h + h) + (h * f + f) + (f * h + h) + 2 * 2 * h
    embeddings = (vocabulary + positions + types) * h + 2 * h
    assert unique_parameters(student) == embeddings + 2 * layer + (h * h + h) + (h * labels + labels)
    assert shape_of(student).head_size == 8


def test_one_choice_of_dimensions_runs_through_the_whole_network(teacher) -> None:
    source = load_compressed(teacher)
    dead = [0, 5, 6, 11, 17, 20, 23, 31]
    with torch.no_grad():  # eight dimensions that nothing writes and nothing reads
        for name, parameter in source.named_parameters():
            for axis, size in enumerate(parameter.shape):
                if size == 32 and not (axis == 0 and any(x in name for x in ("query", "key", "value"))) and not (
                    axis == 1 and "attention.output.dense" in name
                ):  # fmt: skip
                    parameter.index_fill_(axis, torch.tensor(dead), 0.0)
    student = settings(ffn=64).make(source)
    alive = [place for place in range(32) if place not in dead]
    theirs, ours = source.state_dict(), student.state_dict()
    for name in ("embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight"):
        assert torch.equal(ours[f"bert.{name}"], theirs[f"bert.{name}"][:, alive])
    for ours_at, theirs_at in ((0, 1), (1, 3)):
        for name in ("output.LayerNorm.weight", "attention.output.LayerNorm.bias", "output.dense.bias"):
            assert torch.equal(
                ours[f"bert.encoder.layer.{ours_at}.{name}"], theirs[f"bert.encoder.layer.{theirs_at}.{name}"][alive]
            )
    assert torch.equal(ours["bert.pooler.dense.weight"], theirs["bert.pooler.dense.weight"][alive][:, alive])
    assert torch.equal(ours["classifier.weight"], theirs["classifier.weight"][:, alive])


def test_dead_dimensions_of_heads_go_first_and_cost_nothing(teacher) -> None:
    """Two dimensions of each head carry no score and two carry no value; without them the answers are the same."""
    source = load_compressed(teacher)
    with torch.no_grad():
        for layer in source.bert.encoder.layer:
            attention = layer.attention.self
            for head in range(4):
                attention.query.weight[head * 8 + 1], attention.query.bias[head * 8 + 1] = 0.0, 0.0
                attention.key.weight[head * 8 + 6], attention.key.bias[head * 8 + 6] = 0.0, 0.0
                layer.attention.output.dense.weight[:, head * 8 + 3] = 0.0
                attention.value.weight[head * 8 + 4], attention.value.bias[head * 8 + 4] = 0.0, 0.0
    from compressor.distill.students.sliced import _slice_attention
    from compressor.prune.sizes import attention_sizes

    text = encode_split(teacher, tiny_dataset(train=16).train, max_tokens=32)
    with torch.no_grad():
        expected = source(**text.inputs(range(16))).logits
        for layer, sizes in zip(source.bert.encoder.layer, attention_sizes(source, None), strict=True):
            _slice_attention(adapter_for(source.config), layer, sizes, [0, 1, 2, 3], 6)
        assert source.bert.encoder.layer[0].attention.self.query.weight.shape == (24, 32)
        assert torch.allclose(source(**text.inputs(range(16))).logits, expected, atol=1e-5)


@pytest.mark.parametrize("importance", ["magnitude", "activation"])
def test_a_slice_starts_nearer_to_its_teacher_than_a_random_student(teacher, importance: str) -> None:
    source = load_compressed(teacher)
    text = encode_split(teacher, tiny_dataset().train, max_tokens=32)
    shape = {"num_hidden_layers": 3, "hidden_size": 28, "intermediate_size": 56, "num_attention_heads": 4}
    torch.manual_seed(0)
    random = NewStudent.model_validate({"init": "new", "family": "bert", "config": shape}).make(source)
    sliced = settings(layers=3, hidden_size=28, importance=importance).make(source, text)
    assert unique_parameters(random) == unique_parameters(sliced)

    def distance(student) -> float:
        inputs = text.inputs(range(len(text)))
        with torch.no_grad():
            theirs, ours = (functional.log_softmax(it(**inputs).logits, dim=-1) for it in (source, student))
        return functional.kl_div(ours, theirs, reduction="batchmean", log_target=True).item()

    assert distance(sliced) < distance(random)


def test_a_sliced_student_learns_in_the_stage(teacher, tmp_path: Path) -> None:
    config = DistillConfig.model_validate({
        "student": {"init": "slice", "layers": 2, "hidden_size": 24, "importance": "activation", "sentences": 16},
        "losses": [{"name": "logits"}, {"name": "hidden"}], "epochs": 6, "lr": 3e-3, "batch_size": 8,
    })  # fmt: skip
    facts = run_stage(Distill(config), context(tmp_path, teacher), tmp_path / "out")
    assert facts["layers_copied"] == [1, 3]
    assert facts["evaluation"]["student"]["test"]["value"] > 0.6


@pytest.mark.parametrize(("asked", "message"), [
    ({"hidden_size": 40}, "hidden_size: 40 cannot be sliced"),
    ({"hidden_size": 26}, "26 in 4 heads"),
    ({"hidden_size": 24, "heads": 2}, "24 in 2 heads"),
    ({"heads": 6}, "heads: 6 cannot be sliced"),
    ({"ffn": 65}, "ffn: 65 cannot be sliced"),
    ({"layers": 5}, "student of 5 layers"),
])  # fmt: skip
def test_slices_that_the_teacher_does_not_hold(teacher, asked, message) -> None:
    with pytest.raises(RecipeError, match=message):
        settings(**asked).model_config_for(load_compressed(teacher).config)


def test_a_bottleneck_is_not_sliced(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("mobilebert", tmp_path, layers=4)
    with pytest.raises(ModelError, match="cannot be sliced"):
        settings().model_config_for(load_compressed(checkpoint).config)
