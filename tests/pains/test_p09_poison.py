"""P09: one absurd value must not cost the others their accuracy: it is contained, or refused with its name."""

import dataclasses

import numpy as np
import onnx
import pytest
import torch

from compressor.core.artifact import Precision
from compressor.quantize.plan import QuantizationPlan
from compressor.text import ATTENTION_MASK
from export.build import export_artifacts
from export.onnx.backend import OnnxBackend
from export.onnx.files import load, save
from export.onnx.passes import FiniteMasksPass
from export.source import ExportRequest
from tests.export.onnx.helpers import Source, io_for
from tests.models import SENTENCES, keyword_split

TEXTS = tuple(keyword_split(60, seed=5).texts)
PLANS: dict[str, tuple[Precision, QuantizationPlan]] = {
    "dynamic": ("int8", QuantizationPlan(reduced_range=True)),
    "static": ("int8", QuantizationPlan(method="static", reduced_range=True)),
    "int4": ("int4", QuantizationPlan.uniform("int4")),
    "fp16": ("fp16", QuantizationPlan()),
}


def export(source, folder, name):
    OnnxBackend().convert(source.model, source.spec, folder)
    return reduce(source, folder, name)


def reduce(source, folder, name):
    precision, plan = PLANS[name]
    (folder / name).mkdir()
    OnnxBackend().reduce(folder, folder / name, precision, plan, source.calibration(TEXTS))
    return OnnxBackend().open(folder / name, io_for(source.spec), threads=1)


def signal_to_noise_db(source, predictor):
    encoder = source.calibration().encoder
    batch = encoder.pad(encoder.encode(TEXTS))
    expected, found = source.reference(batch), predictor.logits(batch)
    assert np.isfinite(found).all()
    return 10 * np.log10(np.var(expected) / np.mean((expected - found) ** 2))


@pytest.fixture
def source(trained):
    return Source(trained)


@pytest.mark.parametrize("name", PLANS)
def test_an_unused_row_of_the_vocabulary_with_a_huge_norm(trained, tmp_path, name):
    sound, poisoned = Source(trained), Source(dataclasses.replace(trained))
    with torch.no_grad():
        poisoned.model.bert.embeddings.word_embeddings.weight[-1] = 3e4  # no word of these texts
    (tmp_path / "sound").mkdir()
    (tmp_path / "poisoned").mkdir()
    before = signal_to_noise_db(sound, export(sound, tmp_path / "sound", name))
    after = signal_to_noise_db(poisoned, export(poisoned, tmp_path / "poisoned", name))
    assert after > min(before - 1, 30)


@pytest.mark.parametrize("name", ["dynamic", "static", "fp16"])
def test_a_mask_of_the_lowest_float(source, tmp_path, name):
    """A graph as another exporter leaves it: the mask is made finite before ranges are observed or halves are cast."""
    OnnxBackend().convert(source.model, source.spec, tmp_path)
    model = onnx.load(tmp_path / "model.onnx")
    fills = [x for x in model.graph.initializer if onnx.numpy_helper.to_array(x).size == 1]
    (fill,) = [x for x in fills if float(onnx.numpy_helper.to_array(x).reshape(-1)[0]) == -1e4]
    lowest = np.full(tuple(fill.dims), np.finfo(np.float32).min, np.float32)
    fill.CopyFrom(onnx.numpy_helper.from_array(lowest, fill.name))
    onnx.save(model, tmp_path / "model.onnx")
    graph = load(tmp_path / "model.onnx")
    FiniteMasksPass()(graph)
    save(graph, tmp_path / "model.onnx")
    assert signal_to_noise_db(source, reduce(source, tmp_path, name)) > 15


@pytest.mark.parametrize("name", PLANS)
def test_a_row_that_is_masked_as_a_whole_is_finite(source, tmp_path, name):
    predictor = export(source, tmp_path, name)
    encoder = source.calibration().encoder
    batch = encoder.pad(encoder.encode(SENTENCES), 48)
    expected = predictor.logits(batch)
    batch[ATTENTION_MASK][1] = 0
    found = predictor.logits(batch)
    assert np.isfinite(found).all()
    if name != "dynamic":  # whose range is that of the whole batch
        np.testing.assert_allclose(np.delete(found, 1, 0), np.delete(expected, 1, 0), atol=1e-3)


def outlier(checkpoint):
    """One channel of what enters the pooler reaches 1e5, and nothing there reads it."""
    made = Source(checkpoint)
    with torch.no_grad():
        made.model.bert.encoder.layer[-1].output.LayerNorm.bias[5] = 1e5
        made.model.bert.pooler.dense.weight[:, 5] = 0
    return made


def test_an_activation_outlier_costs_eight_bits_their_accuracy_and_is_never_silent(trained, tmp_path):
    """One range for the tensor cannot hold both; the file is worse by measurement, and by no NaN."""
    source = outlier(trained)
    assert signal_to_noise_db(source, export(source, tmp_path, "dynamic")) < 10
    assert signal_to_noise_db(source, reduce(source, tmp_path, "fp16")) > 30


def test_the_ladder_falls_back_to_a_file_that_holds(trained, tmp_path):
    source = outlier(trained)
    source.model.save_pretrained(tmp_path / "checkpoint")
    for file in trained.path.iterdir():
        if file.suffix == ".json" and not (tmp_path / "checkpoint" / file.name).exists():
            (tmp_path / "checkpoint" / file.name).write_bytes(file.read_bytes())
    from compressor.core.checkpoint import Checkpoint

    split = keyword_split(90, seed=9)
    request = ExportRequest(
        formats=("onnx",), precisions=("int8",), lengths=(16, 32), parity_texts=TEXTS, parity_source="test",
        calibration_texts=TEXTS, selection=split, report=split, name="poisoned",
        plan=QuantizationPlan(method="static", reduced_range=True, max_drop_points=1.0),
    )  # fmt: skip
    made = export_artifacts(Checkpoint.open(tmp_path / "checkpoint"), request, tmp_path / "out")
    (artifact,) = made.artifacts
    reference = artifact.manifest.reference
    assert reference["artifact"] >= reference["checkpoint"] - 0.01
    assert np.isfinite(reference["artifact"])
    assert [attempt["accepted"] for attempt in artifact.manifest.attempts] == [False] * (
        len(artifact.manifest.attempts) - 1
    ) + [True]
    assert len(artifact.manifest.attempts) > 1
