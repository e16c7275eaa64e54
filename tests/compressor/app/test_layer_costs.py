from types import SimpleNamespace

import pytest

from compressor.app import layer_costs
from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import DeviceError, UsageError
from compressor.models import load_compressed
from compressor.shapes import shape_of


@pytest.fixture
def stand_in(monkeypatch):
    """Files that take 1 ms, and 0.1 ms for each head and 0.01 ms for each neuron; how often one was measured."""
    measured = []

    def convert(model, *, output, **settings):
        return SimpleNamespace(path=model)

    def bench(model, **settings):
        shape = shape_of(load_compressed(Checkpoint.open(model)))
        measured.append(settings["device"])
        applied = shape.applied
        return SimpleNamespace(p50_ms=1 + sum(0.1 * layer.heads + 0.01 * sum(layer.ffn) for layer in applied))

    monkeypatch.setattr(layer_costs, "convert", convert)
    monkeypatch.setattr(layer_costs, "bench", bench)
    return measured


@pytest.mark.parametrize("family", ["bert", "mobilebert"])
def test_the_table_predicts_what_was_measured_between_and_beyond_its_widths(family, checkpoint_of, stand_in):
    source = checkpoint_of(family)
    found = layer_costs.measure_layers(source, device="host", tokens=16)
    networks = len(shape_of(load_compressed(source)).layers[0].ffn)
    assert found.predict_ms(3, 3, 40 * networks) == pytest.approx(1 + 3 * (0.3 + 0.4 * networks), abs=1e-3)
    assert (found.model_type, found.device, found.idle_ms) == (source.config["model_type"], "host@local", 1.0)


def test_a_device_is_measured_once(checkpoint_of, stand_in, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = layer_costs.latency_of("host", checkpoint_of("bert"), 16)
    count = len(stand_in)
    assert layer_costs.latency_of("host", checkpoint_of("bert"), 16) == first
    assert len(stand_in) == count
    assert layer_costs.latency_of("host", checkpoint_of("bert"), 8).tokens == 8
    with pytest.raises(UsageError):
        layer_costs.latency_of("no-such-device", checkpoint_of("bert"), 16)


def test_times_that_say_nothing_are_no_table(checkpoint_of, stand_in, monkeypatch):
    monkeypatch.setattr(layer_costs, "bench", lambda *_, **__: SimpleNamespace(p50_ms=1.0))
    with pytest.raises(DeviceError, match="no layer took measurable time"):
        layer_costs.measure_layers(checkpoint_of("bert"), device="host", tokens=16)
