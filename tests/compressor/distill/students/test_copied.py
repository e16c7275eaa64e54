from dataclasses import replace
from pathlib import Path

import pytest
import torch

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import ModelError
from compressor.data.batches import encode_split
from compressor.data.dataset import Split
from compressor.distill.students import CopiedStudent
from compressor.distill.students.copied import check_copyable
from compressor.distill.teacher import run_model
from compressor.families import ADAPTERS, adapter_for
from compressor.models import load_compressed, load_config, save_checkpoint, unique_parameters
from compressor.prune.surgery import keep_heads
from compressor.shapes import parameters_of, read_shape, shape_of, with_shape
from tests.models import FAMILIES, SENTENCES, tiny_checkpoint


@pytest.mark.parametrize("family", FAMILIES)
def test_a_student_is_its_teachers_layers_and_loads_back(family: str, tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(family, tmp_path / "teacher", layers=4)
    teacher = load_compressed(checkpoint.path)
    settings = CopiedStudent(layers=2)
    layers = settings.copied(teacher.config)
    assert layers == (1, 3)
    student = settings.make(teacher)
    save_checkpoint(student, checkpoint.path, tmp_path / "student")
    loaded = load_compressed(tmp_path / "student")
    adapter = adapter_for(loaded.config)
    stored = [sum(p.numel() for p in layer.parameters()) for layer in adapter.encoder_layers(teacher)]
    dropped = 0 if adapter.shares_layers else stored[0] + stored[2]
    assert unique_parameters(loaded) == unique_parameters(teacher) - dropped
    assert unique_parameters(loaded) == parameters_of(settings.model_config_for(teacher.config))
    assert adapter.num_layers(loaded.config) == 2
    if not adapter.shares_layers:
        copied = adapter.encoder_layers(loaded)
        for position, layer in enumerate(layers):
            ours, theirs = copied[position].state_dict(), adapter.encoder_layers(teacher)[layer].state_dict()
            assert all(torch.equal(ours[name], theirs[name]) for name in theirs)

    data = encode_split(checkpoint, Split(SENTENCES, (0,) * len(SENTENCES)), max_tokens=32)
    inputs = data.inputs(range(len(data)))
    with torch.no_grad():
        found = run_model(loaded, inputs, [0, 1, 2])
        reference = run_model(teacher, inputs, [0])
    assert torch.allclose(found.hidden_states[0], reference.hidden_states[0], atol=1e-5)
    assert found.hidden_states[2].shape[-1] == adapter.hidden_size(loaded.config)
    assert torch.isfinite(found.logits).all()


def test_the_remedy_for_a_family_that_is_not_copied_is_something_a_recipe_can_do() -> None:
    with pytest.raises(ModelError) as error:
        check_copyable(replace(ADAPTERS["bert"], can_copy_layers=False))
    assert "take the distill stage out" in error.value.remedy


def test_a_student_copied_from_an_uneven_teacher_is_as_uneven(tmp_path: Path) -> None:
    source = tiny_checkpoint("bert", tmp_path / "source", layers=3)
    model = load_compressed(source)
    adapter = adapter_for(model.config)
    for place, layer in enumerate(adapter.encoder_layers(model)):
        keep_heads(adapter, layer, range(3 - place), head_size=8)
    save_checkpoint(model, source.path, tmp_path / "teacher")
    teacher = Checkpoint.open(tmp_path / "teacher")
    settings = CopiedStudent(layers=2, map=(0, 2))
    student = settings.make(load_compressed(teacher))
    assert [layer.heads for layer in shape_of(student).layers] == [3, 1]
    foretold = settings.model_config_for(with_shape(load_config(teacher), read_shape(teacher)))
    assert unique_parameters(student) == parameters_of(foretold)
    save_checkpoint(student, teacher.path, tmp_path / "student")
    assert shape_of(load_compressed(tmp_path / "student")) == shape_of(student)
