import numpy as np
import pytest

from compressor.core.errors import ArtifactError, UsageError
from export.backend import Backend, backend_for
from tests.export.tflite.samples import BACKEND, open_folder, sample


def test_the_backend_keeps_the_protocol():
    assert isinstance(backend_for("tflite"), Backend)
    assert BACKEND.model_file == "model.tflite"
    assert not BACKEND.dynamic_lengths


def test_rows_are_independent_and_extra_inputs_are_left_out():
    made = sample("distilbert")
    predictor = open_folder(made.fp32, made.spec)
    batch = made.batches()[1]
    together = predictor.logits(batch)
    assert together.dtype == np.float32
    assert together.shape == (len(batch["input_ids"]), made.spec.num_labels)
    for row in range(len(together)):
        alone = predictor.logits({name: values[row : row + 1] for name, values in batch.items()})
        np.testing.assert_array_equal(alone[0], together[row])


def test_the_runtime_writes_nothing_to_the_terminal(capfd):
    made = sample("bert")
    capfd.readouterr()
    predictor = open_folder(made.fp32, made.spec)
    for batch in made.batches():
        predictor.logits(batch)
    assert capfd.readouterr() == ("", "")


def test_missing_token_types_are_zero():
    made = sample("bert")
    predictor = open_folder(made.fp32, made.spec)
    batch = made.batches()[0]
    without = {name: values for name, values in batch.items() if name != "token_type_ids"}
    np.testing.assert_array_equal(predictor.logits(without), predictor.logits(batch))


def test_another_width_is_refused_with_the_lengths_there_are():
    made = sample("bert")
    batch = {name: values[:, :7] for name, values in made.batches()[0].items()}
    with pytest.raises(ArtifactError, match="7 tokens; it has 8, 16"):
        open_folder(made.fp32, made.spec).logits(batch)


def test_lengths_the_model_cannot_take_are_refused_before_any_work(tmp_path):
    made = sample("bert")
    for lengths in ((8, 100), (0,), ()):
        with pytest.raises(UsageError, match="from 1 to 64"):
            BACKEND.convert(made.model, made.spec.model_copy(update={"lengths": lengths}), tmp_path)
    assert not list(tmp_path.iterdir())


def test_int8_facts_warn_of_the_old_runtime():
    made = sample("bert")
    assert "tflite-runtime 2.14" in str(BACKEND.finish(made.reduced("int8"), made.spec, "int8"))
    assert "tflite-runtime" not in str(BACKEND.finish(made.fp32, made.spec, "fp32"))


def test_conversion_leaves_the_model_as_it_was():
    made = sample("bert")
    assert all(parameter.requires_grad for parameter in made.model.parameters())
