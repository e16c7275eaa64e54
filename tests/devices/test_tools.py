"""What benchmark programs print, in every form known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compressor.core.errors import DeviceError
from devices.tools import benchmark_model, onnxruntime_perf_test, trtexec

SAMPLES = Path(__file__).parents[3] / "shared" / "samples"


def sample(name: str) -> str:
    if not (SAMPLES / name).exists():
        pytest.skip(f"no recorded logs at {SAMPLES}")
    return (SAMPLES / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "mean", "median", "p95", "count", "cold"),
    [
        ("benchmark_model_old_noINFO.txt", 33.2094, None, None, 50, 49.06),
        ("benchmark_model_tf2.13_INFO.txt", 116.066, None, None, 50, 124.02),
        ("benchmark_model_new_percentiles.txt", 63.7432, 51.891, 68.628, 1000, 1357.602),
        ("benchmark_litert_model.txt", 7430.2, None, None, 10, None),
    ],
)
def test_benchmark_model_in_all_its_forms(
    name: str, mean: float, median: float | None, p95: float | None, count: int, cold: float | None
) -> None:
    found = benchmark_model.parse(sample(name))
    assert (found.mean_ms, found.p50_ms, found.p95_ms, found.count, found.cold_ms) == (mean, median, p95, count, cold)
    assert found.point_estimate
    assert found.confidence == "point estimate, no confidence"


def test_benchmark_model_s_single_run_and_memory() -> None:
    found = benchmark_model.parse("INFO: count=1 curr=1500 p5=1500 median=1500 p95=1500\n")
    assert (found.count, found.mean_ms, found.p50_ms) == (1, 1.5, 1.5)
    old = "count=5 first=900 curr=800 min=800 max=900 avg=850 std=3\nPeak memory footprint (MB): init=0 overall=12.8672"
    assert benchmark_model.parse(old).peak_memory_mb == 12.8672
    with pytest.raises(DeviceError, match="no timings"):
        benchmark_model.parse("ERROR: failed to load model")
    assert "--min_secs=0" in benchmark_model.command("benchmark_model", "m.tflite")


@pytest.mark.parametrize(
    ("name", "version", "figures"),
    [
        ("trtexec_8.x_e2e_xavier_nx.txt", None, {"p50_ms": 0.572998, "p95_ms": None, "p99_ms": 0.587769}),
        ("trtexec_8.4_99only_xavier_agx.txt", "8.4.0", {"p50_ms": 0.401947, "p95_ms": None, "p99_ms": 0.420288}),
        ("trtexec_8.6_orin_agx.txt", None, {"p90_ms": 4.84772, "p95_ms": 4.85034, "p99_ms": 4.85547}),
        ("trtexec_2024-10_warn.txt", None, {"mean_ms": 7.60628, "p95_ms": 10.8698, "p99_ms": 12.9675}),
    ],
)
def test_trtexec_logs_alone_are_point_estimates(name: str, version: str | None, figures: dict[str, float]) -> None:
    text = "\n".join(line for line in sample(name).splitlines() if not line.startswith("#"))
    found = trtexec.parse(text)
    assert found.point_estimate
    assert found.version == version
    assert {key: getattr(found, key) for key in figures} == figures


@pytest.mark.parametrize(
    ("header", "version"),
    [
        ("[TensorRT v8201]", (8, 2, 1)), ("[TensorRT v8400]", (8, 4, 0)), ("[TensorRT v8601]", (8, 6, 1)),
        ("[TensorRT v100300]", (10, 3, 0)), ("[TensorRT v101602] [b10]", (10, 16, 2)),
        ("[TensorRT v110400]", (11, 4, 0)), ("nothing", None),
    ],
)  # fmt: skip
def test_trtexec_versions(header: str, version: tuple[int, ...] | None) -> None:
    assert trtexec.version_of(f"&&&& RUNNING TensorRT.trtexec {header} # trtexec --help") == version


def rows(*latencies: float, start: float = 0.0) -> str:
    made = []
    for latency in latencies:
        made.append({"startComputeMs": start, "endComputeMs": start + latency, "latencyMs": latency})
        start += latency
    return json.dumps(made)


def test_percentiles_come_from_single_times_and_early_versions_warm_up_is_left_out() -> None:
    times = rows(400.0, 200.0, *[1.0] * 94, *[9.0] * 6)
    log = "&&&& RUNNING TensorRT.trtexec [TensorRT v{}] # trtexec\n[I] Latency: min = 3 ms, median = 3 ms\n"
    early = trtexec.parse(log.format("8401"), times, warm_up_ms=500)
    assert early.count == 100
    assert (early.p50_ms, early.p90_ms, early.p95_ms, early.p99_ms) == (1.0, 1.0, 9.0, 9.0)
    assert not early.point_estimate
    late = trtexec.parse(log.format("8501"), times, warm_up_ms=500)
    assert late.count == 102
    assert late.max_ms == 400.0


def test_settings_that_change_the_meaning_are_given_where_the_version_has_them() -> None:
    def command(help_text: str) -> list[str]:
        return trtexec.measure_command(
            "trtexec", "e", help_text=help_text, shapes={"ids": (1, 16)}, inputs={"ids": "f"}, times="t"
        )

    assert not {"--includeDataTransfers", "--noCudaGraph"} & set(command("--fp16 --useCudaGraph --useSpinWait"))
    assert {"--includeDataTransfers", "--noCudaGraph", "--noSpinWait"} <= set(
        command("--includeDataTransfers --noCudaGraph --noSpinWait")
    )
    assert "--loadInputs=ids:f" in command("")


def test_trtexec_failures_and_foreign_files_are_device_errors() -> None:
    with pytest.raises(DeviceError, match="not compatible"):
        trtexec.parse("[E] Error[6]: The engine plan file is not compatible\n&&&& FAILED TensorRT.trtexec")
    with pytest.raises(DeviceError, match="no latency"):
        trtexec.parse("hello")
    for text in ("", "{}", "[{}]", "[1]"):
        with pytest.raises(DeviceError, match="cannot be read"):
            trtexec.parse("[I] Latency: min = 3 ms", text or "x")


def test_onnxruntime_perf_test() -> None:
    found = onnxruntime_perf_test.parse(sample("ort_perf_test.txt"))
    assert (found.mean_ms, found.count) == (58.8053, 1000)
    assert found.p50_ms == pytest.approx(58.7108)
    assert found.p95_ms == pytest.approx(60.5676)
    assert found.point_estimate
    single = "m.onnx,cpu,1.32,0.010,1\nm.onnx,cpu,1.32,0.020,1\n"
    kept = onnxruntime_perf_test.parse("Average inference time cost: 15 ms\n", single)
    assert kept.runs_ms == (10.0, 20.0)
    assert kept.confidence == "2 single runs"
    with pytest.raises(DeviceError, match="no timings"):
        onnxruntime_perf_test.parse("")
