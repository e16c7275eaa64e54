import pytest

from compressor.core.errors import ArtifactError, StageError, UsageError
from compressor.quantize.plan import QuantizationPlan, Rule
from export.tflite.flatbuffer import LOOKUPS, read, type_names, weight_uses
from export.tflite.modules import load_modules
from tests.export.tflite.samples import BACKEND, sample


def types_by_module(folder):
    converted = read(folder / "model.tflite")
    modules = load_modules(converted)
    return {modules.weights[use.buffer]: type_names()[use.tensor.type] for use in weight_uses(converted)}


@pytest.mark.parametrize(("precision", "largest_error"), [("fp16", 1e-2), ("int8", 0.15)])
def test_a_child_holds_what_it_is_called_and_still_computes(precision, largest_error):
    made = sample("bert")
    child = made.reduced(precision)
    before, after = (BACKEND.inspect(folder / "model.tflite") for folder in (made.fp32, child))
    assert after.precision == precision
    assert set(after.gemm_types) == {precision}
    assert after.parameters == before.parameters
    assert after.size_bytes < before.size_bytes
    assert 0 < made.error(child) <= largest_error


def test_int8_weights_are_symmetric_with_a_scale_per_output_channel():
    converted = read(sample("bert").reduced("int8") / "model.tflite")
    for use in weight_uses(converted):
        table = use.tensor.quantization
        assert len(table.scale) == use.tensor.shape[0]
        assert table.quantizedDimension == 0
        assert not table.zeroPoint.any()


def test_all_lengths_read_the_same_weights():
    for precision in ("fp16", "int8"):
        converted = read(sample("bert").reduced(precision) / "model.tflite")
        buffers = [{use.buffer for use in weight_uses(converted) if use.subgraph == index} for index in (0, 1)]
        assert buffers[0] == buffers[1]


def test_fp32_is_a_plain_copy(tmp_path):
    made = sample("bert")
    BACKEND.reduce(made.fp32, tmp_path, "fp32", QuantizationPlan())
    assert (tmp_path / "model.tflite").read_bytes() == (made.fp32 / "model.tflite").read_bytes()


def test_the_last_matching_rule_decides(tmp_path):
    policy = (
        Rule(pattern="*", precision="int8"),
        Rule(pattern="classifier", precision="fp32"),
        Rule(pattern="bert.encoder.layer.0.attention.*", precision="fp16"),
        Rule(pattern="bert.encoder.layer.0.attention.self.value", precision="int8"),
    )
    made = sample("bert")
    types = types_by_module(made.reduced("int8", tmp_path, QuantizationPlan(policy=policy)))
    assert types["classifier"] == "float32"
    assert types["bert.encoder.layer.0.attention.self.query"] == "float16"
    assert types["bert.encoder.layer.0.attention.self.value"] == "int8"
    assert types["bert.encoder.layer.0.output.dense"] == "int8"
    assert made.error(tmp_path) <= 0.15
    assert BACKEND.inspect(tmp_path / "model.tflite").precision == "mixed"


def test_embeddings_can_stay_as_they_are(tmp_path):
    folder = sample("bert").reduced("int8", tmp_path, QuantizationPlan(quantize_embeddings=False))
    converted = read(folder / "model.tflite")
    found = {(use.name in LOOKUPS, type_names()[use.tensor.type]) for use in weight_uses(converted)}
    assert found == {(True, "float32"), (False, "int8")}


def test_a_rule_that_matches_nothing_names_the_nearest_module(tmp_path):
    plan = QuantizationPlan(policy=(Rule(pattern="bert.pooler.dens", precision="fp32"),))
    with pytest.raises(UsageError, match=r"did you mean 'bert.pooler.dense'"):
        BACKEND.reduce(sample("bert").fp32, tmp_path, "int8", plan)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("pattern", ["bert.embeddings.LayerNorm", "bert.pooler"])
def test_a_rule_for_a_module_without_weights_is_refused(tmp_path, pattern):
    plan = QuantizationPlan(policy=(Rule(pattern="*", precision="int8"), Rule(pattern=pattern, precision="fp32")))
    with pytest.raises(UsageError, match="matches no module with weights"):
        BACKEND.reduce(sample("bert").fp32, tmp_path, "int8", plan)


def test_a_failing_quantizer_is_a_named_error(tmp_path, monkeypatch):
    from ai_edge_quantizer import quantizer

    def fail(self, *arguments, **options):
        raise ValueError("Unsupported op: FOO\nsecond line")

    monkeypatch.setattr(quantizer.Quantizer, "quantize", fail)
    with pytest.raises(StageError, match="could not quantise this model: Unsupported op: FOO "):
        BACKEND.reduce(sample("bert").fp32, tmp_path, "int8", QuantizationPlan())
    assert not list(tmp_path.iterdir())


def test_a_plan_that_reduces_nothing_is_refused(tmp_path):
    with pytest.raises(UsageError, match="nothing to store as int8"):
        BACKEND.reduce(
            sample("bert").fp32, tmp_path, "int8", QuantizationPlan(policy=(Rule(pattern="*", precision="fp32"),))
        )


def test_a_foreign_file_is_not_reduced(tmp_path):
    from export.tflite.compact import compact

    (tmp_path / "model.tflite").write_bytes(compact(read(sample("bert").fp32 / "model.tflite")))
    with pytest.raises(ArtifactError, match="which module"):
        BACKEND.reduce(tmp_path, tmp_path / "out", "int8", QuantizationPlan())


def test_a_weight_beyond_half_precision_is_named(tmp_path):
    from export.tflite.compact import compact

    converted = read(sample("bert").fp32 / "model.tflite")
    modules = load_modules(converted)
    buffer = next(index for index, path in modules.weights.items() if path == "classifier")
    values = converted.buffers[buffer].data.view("float32").copy()
    values[0] = 1e5
    converted.buffers[buffer].data = values.view("uint8")
    (tmp_path / "model.tflite").write_bytes(compact(converted, modules))
    with pytest.raises(StageError, match="'classifier' is 100000"):
        BACKEND.reduce(tmp_path, tmp_path / "out", "fp16", QuantizationPlan())
