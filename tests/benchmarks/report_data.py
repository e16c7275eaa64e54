"""A report with every part filled in; the figures are made up."""

from __future__ import annotations

from benchmarks.report import ArtifactRow, BaselineRow, ReportData, SpeedUp, StageRow
from compressor.core.verdict import Check


def sample_report() -> ReportData:
    lengths = (16, 32, 64, 128)

    def by_length(first: float) -> dict[int, float]:
        return {length: first * (length / 16) ** 0.75 for length in lengths}

    def artifact(name: str, size: float, accuracy: float, p50: float, **changes) -> ArtifactRow:
        format_name, precision = name.split("-")
        values = {
            "name": name,
            "format": format_name,
            "precision": precision,
            "compute_precision": "int8" if precision == "int8" else "fp32",
            "size_mb": size,
            "accuracy": accuracy,
            "drop_points": 100 * (0.9857 - accuracy),
            "parity_max_error": 3.2e-6 if precision == "fp32" else 4.1e-3,
            "label_agreement": 1.0 if precision != "int8" else 0.9957,
            "p50_ms": p50,
            "p95_ms": 1.6 * p50,
            "total_p95_ms": 1.6 * p50 + 0.2,
            "by_length": by_length(0.8 * p50),
            "status": "pass",
        }
        return ArtifactRow.model_validate({**values, **changes})

    return ReportData(
        title="SNIPS intents on MiniLM-L6",
        created="2026-01-31T12:00:00",
        recipe="recipes/snips.yaml",
        runs=200,
        stages=(
            StageRow(
                id="01-finetune",
                stage="finetune",
                status="cached",
                seconds=61.2,
                parameters=22_716_295,
                size_mb=90.9,
                metric=0.9857,
                note="2 epochs",
                curves={"cross entropy": tuple(2.0 * 0.985**step + 0.05 for step in range(300))},
            ),
            StageRow(
                id="02-distill",
                stage="distill",
                status="ran",
                seconds=48.7,
                parameters=17_391_367,
                size_mb=69.6,
                metric=0.98,
                note="3 layers, teacher layers 1, 3, 5",
                curves={
                    "logits": tuple(3.0 * 0.99**step + 0.1 for step in range(400)),
                    "hidden": tuple(1.2 * 0.995**step + 0.2 for step in range(400)),
                },
            ),
            StageRow(id="03-quantize", stage="quantize", status="ran", seconds=3.4, note="dynamic, per channel"),
            StageRow(id="04-export", stage="export", status="ran", seconds=74.0, note="7 artifacts"),
        ),
        baselines=(
            BaselineRow(
                name="teacher-torch-fp32-padded-128",
                runtime="torch 2.13.0",
                size_mb=90.9,
                accuracy=0.9857,
                p50_ms=38.9,
                p95_ms=44.0,
                total_p95_ms=44.3,
            ),
            BaselineRow(
                name="teacher-onnx-int8",
                runtime="onnxruntime 1.32.0",
                size_mb=23.1,
                accuracy=0.9843,
                p50_ms=3.4,
                p95_ms=5.0,
                total_p95_ms=5.2,
                by_length=by_length(3.1),
            ),
        ),
        artifacts=(
            artifact("onnx-fp32", 69.8, 0.98, 4.2),
            artifact("onnx-fp16", 35.0, 0.98, 4.4),
            artifact("onnx-int8", 17.7, 0.9786, 1.7),
            artifact("tflite-fp32", 69.9, 0.98, 5.6),
            artifact("tflite-fp16", 35.1, 0.98, 5.5),
            artifact("tflite-int8", 18.3, 0.9786, 1.02),
            artifact(
                "tensorrt-fp16",
                35.3,
                0.98,
                1.0,
                p50_ms=None,
                p95_ms=None,
                total_p95_ms=None,
                by_length={},
                compute_precision="fp16",
                status="not run on hardware",
            ),
        ),
        speed_ups=(
            SpeedUp(artifact="tflite-int8", baseline="teacher-torch-fp32-padded-128", ratio=38.14, low=35, high=41.6),
            SpeedUp(artifact="tflite-int8", baseline="teacher-onnx-int8", ratio=3.33, low=2.9, high=3.8),
        ),
        verdict="over_budget",
        checks=(
            Check(
                name="p95_ms",
                device="host",
                artifact="tflite-int8",
                budget=5.0,
                value=1.632,
                verdict="pass",
                runs=200,
                over_budget_runs=0,
                detail="0 of 200 runs over; error at most 5% each way",
            ),
            Check(
                name="p99_ms",
                device="host",
                artifact="tflite-int8",
                budget=5.0,
                value=2.1,
                verdict="inconclusive",
                runs=200,
                over_budget_runs=0,
                detail="0 of 200 runs over; p99 needs at least 299 independent runs",
            ),
            Check(
                name="size_mb",
                device="host",
                artifact="tflite-fp32",
                budget=20.0,
                value=69.9,
                verdict="over_budget",
                detail="model files, from the manifest",
            ),
        ),
        machine={"cpu": "A CPU <model>", "cores": "2", "memory_gb": "24"},
        versions={"python": "3.11.7", "onnxruntime": "1.32.0", "ai-edge-litert": "2.3.0"},
        not_run=("snapdragon-865", "jetson-orin-nano"),
        notes=("load average 2.6 on 2 cores before the run: other work ran",),
    )
