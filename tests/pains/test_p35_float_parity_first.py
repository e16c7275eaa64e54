"""P35: an INT8 file that disagrees may owe it to the conversion or to the quantisation; float parity tells which.

A wrong embedding row shows in the float file already, far above its tolerance; a sound float file leaves only the
quantiser to blame. Ids are integers all the way.
"""

from compressor.quantize.plan import QuantizationPlan
from export.calibration import Calibration
from export.tflite.compact import compact
from export.tflite.flatbuffer import read
from export.tflite.modules import load_modules
from tests.export.tflite.samples import BACKEND, sample
from tests.models import SENTENCES


def test_the_float_file_is_exact_and_the_quantiser_adds_its_own_error():
    made = sample("bert")
    float_error, int8_error = made.error(made.fp32), made.error(made.reduced("int8"))
    assert float_error <= 1e-4
    assert int8_error > 10 * float_error


def test_wrong_embeddings_show_in_the_float_file(tmp_path):
    made = sample("bert")
    converted = read(made.fp32 / "model.tflite")
    modules = load_modules(converted)
    buffer = next(index for index, path in modules.weights.items() if path.endswith("word_embeddings"))
    rows = converted.buffers[buffer].data.view("float32").reshape(made.model.config.vocab_size, -1)
    converted.buffers[buffer].data = rows[::-1].copy().view("uint8").ravel()
    (tmp_path / "model.tflite").write_bytes(compact(converted, modules))
    assert made.error(tmp_path) > 1e-2
    BACKEND.reduce(tmp_path, tmp_path / "int8", "int8", QuantizationPlan())
    assert made.error(tmp_path / "int8") > 1e-2


def test_ids_stay_integers_up_to_the_lookup():
    converted = read(sample("bert").fp32 / "model.tflite")
    from export.tflite.flatbuffer import operator_name, type_names

    for graph in converted.subgraphs:
        lookups = [op for op in graph.operators if operator_name(converted, op) == "EMBEDDING_LOOKUP"]
        assert lookups
        assert {type_names()[graph.tensors[op.inputs[0]].type] for op in lookups} == {"int32"}


def test_ranges_are_found_on_integer_ids(tmp_path, monkeypatch):
    """Float ids would be converted to anything on their way into the lookup; each input keeps the file's own type."""
    from ai_edge_litert.interpreter import Interpreter

    fed = []
    real = Interpreter.get_signature_runner

    def runner(self, key=None):
        inner = real(self, key)

        class Watched:
            def __getattr__(self, name):
                return getattr(inner, name)

            def __call__(self, **inputs):
                fed.extend((name, values.dtype.name) for name, values in inputs.items())
                return inner(**inputs)

        return Watched()

    monkeypatch.setattr(Interpreter, "get_signature_runner", runner)
    made = sample("bert")
    text = Calibration(encoder=made.encoder, texts=SENTENCES, lengths=made.spec.lengths)
    BACKEND.reduce(made.fp32, tmp_path, "int8", QuantizationPlan(method="static", observer="minmax"), text)
    assert {dtype for _, dtype in fed} == {"int32"}
    assert {name for name, _ in fed} == {"input_ids", "attention_mask", "token_type_ids"}
