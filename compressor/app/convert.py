"""``convert``: one model to one artifact, without training."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from benchmarks.measure import measure
from benchmarks.statistics import summary
from benchmarks.subject import subject_of
from compressor.app.inputs import default_threads, find_model, read_texts
from compressor.core.artifact import Artifact, Format, Precision
from compressor.core.cache import cache_folder
from compressor.core.checkpoint import Checkpoint
from compressor.core.device import CPU_LADDER, LadderStep
from compressor.core.errors import UsageError
from compressor.core.folders import disk_errors, ensure_ours, swap
from compressor.core.schema import Text
from compressor.core.task import Task
from compressor.data.dataset import Split
from compressor.data.reader import read_sentences, read_split
from compressor.families import adapter_for
from compressor.families.heads import find_task
from compressor.models import load_config
from compressor.quantize.levels import saturates
from compressor.quantize.plan import QuantizationPlan
from compressor.stage import Progress, silent
from compressor.text import SentenceEncoder
from devices.legality import check_legal
from devices.profiles import parse_device
from export.buckets import buckets_for
from export.build import export_artifacts
from export.cache import ConversionCache
from export.ladder import first_method
from export.source import ExportRequest
from export.stage import DEFAULT_LENGTHS, PARITY_TEXTS
from export.tensorrt.device.build_engine import Profile
from export.tensorrt.profiles import parse_profiles
from export.texts import texts_for

RUNS, PROCESSES = 200, 4
"""Timed runs of a candidate, and the processes they are spread over."""


def convert(
    model: str | Path,
    *,
    to: Format,
    precision: Precision = "fp32",
    output: Path,
    lengths: Sequence[int] | None = None,
    profiles: str | None = None,
    sentences: Path | None = None,
    calibrate: Path | None = None,
    eval_data: Path | None = None,
    max_drop_points: float | None = None,
    method: Literal["dynamic", "static", "mixed"] | None = None,
    device: str | None = None,
    fastest: bool = False,
    task: Task | None = None,
    tune: bool = False,
    threads: int | None = None,
    cache: bool = True,
    force: bool = False,
    progress: Progress = silent,
) -> Artifact:
    """Converts one model to one artifact.

    Args:
        model: a Hugging Face folder or hub id with a trained head, or a sentence-transformers folder.
        to: ``onnx``, ``tflite``, ``tensorrt`` or ``onnx-qnn``.
        precision: ``fp32``, ``fp16``, ``int8`` or ``int4``, for an NPU ``fp16``, ``mixed``, ``w8a16`` or ``w8a8``; the
            manifest says what was found in the file.
        output: the artifact's folder.
        lengths: length buckets in tokens; default 16, 32, 64 and 128, as far as the model takes them.
        profiles: TensorRT's optimisation profiles instead, as ``min:opt:max`` tokens joined by commas; each is a bucket
            that ends at its max.
        sentences: a file of sentences from which the buckets are chosen instead
            (:func:`export.buckets.buckets_for`).
        calibrate: sentences (or pairs, for a model of two texts) for parity and for observed ranges; built-in ones
            serve parity where neither this nor ``eval_data`` is given.
        eval_data: labelled text on which the converted file is judged: a file, or a folder whose validation split
            selects and whose test split is reported.
        max_drop_points: largest fall in accuracy (percentage points); the next safer precision is tried above it.
        method: the way of INT8 to begin with; None: what the checkpoint's own plan or the device's profile names first.
        device: the device it is for; what that cannot run is refused before any work, and its profile gives the order
            in which precisions are tried.
        fastest: measure every candidate within the limit on ``device`` (default: this machine) and take the fastest,
            the untouched FP32 file among them, instead of the first one.
        task: what the head answers; found from the checkpoint where None.
        tune: try an ONNX file with ONNX Runtime's fused operators too, and take the faster as measured here.
        threads: threads for conversion and evaluation; default: all cores.
        cache: take the FP32 conversion from ``$COMPRESSOR_CACHE`` (``~/.cache/compressor``) and keep it there; what is
            taken is proven like any other.
        force: replace an output folder that is not an artifact.
        progress: where progress is told.

    Raises:
        CompressorError: see :func:`export.build.export_artifacts`; nothing is left in ``output`` then.
    """
    if max_drop_points is not None and not 0 <= max_drop_points < math.inf:
        raise UsageError(
            f"--max-drop-points is {max_drop_points:g}; expected a number of percentage points, 0 or more",
            remedy="pass e.g. --max-drop-points 1.0, or leave it out for no limit",
        )
    if max_drop_points is not None and eval_data is None:
        raise UsageError(
            "a limit on the accuracy was given and no labelled text to measure it on", remedy="add --eval FILE"
        )
    if method is not None and precision != "int8":
        raise UsageError(f"--method {method} says how INT8 is made, not {precision}", remedy="add --precision int8")
    if method == "static" and calibrate is None:
        raise UsageError(
            "static INT8 needs text to find ranges on, and none was given",
            remedy="add --calibrate FILE with sentences like those the model will read",
        )
    if max_drop_points is None and (method == "mixed" or fastest):
        raise UsageError(
            f"{'mixed precision' if method == 'mixed' else '--fastest'} searches within a limit, and none was given",
            remedy="add --max-drop-points and --eval",
        )
    if tune and to != "onnx":
        raise UsageError(f"--tune was given for {to}; only onnx has a tuned variant", remedy="leave --tune out")
    output = Path(output).resolve()
    ensure_ours(output, "artifact", force=force)
    target = parse_device(device).profile if device is not None else None
    if target is not None:
        check_legal(target, to, precision)
    if to == "tensorrt" and precision == "int8" and calibrate is None:
        raise UsageError(
            "INT8 for TensorRT takes fixed ranges of activations, and there is no text to observe them on",
            remedy="add --calibrate FILE with a few hundred real sentences",
        )
    ladder = CPU_LADDER if target is None else target.ladder
    reduced_range = None
    if target is not None and target.architecture != "any":  # the host's own profile: decided where the file is made
        reduced_range = saturates(target.architecture, target.cpu_features)
    checkpoint = find_model(model)
    if target is not None:
        check_legal(target, to, precision, family=load_config(checkpoint).model_type)
    wanted = _profiles(profiles, to)
    buckets = _buckets(lengths, wanted, sentences, checkpoint)
    task = task or find_task(checkpoint)
    selection, report = _splits(eval_data, checkpoint, task)
    if calibrate is None and report is not None:
        texts, source = tuple(report.texts), "evaluation texts"
    else:
        texts, source = read_texts(calibrate)
    request = ExportRequest(
        formats=(to,),
        precisions=(precision,),
        lengths=buckets,
        profiles=wanted,
        tensorrt=None if target is None else target.tensorrt,
        plan=_plan(checkpoint, method, ladder, max_drop_points=max_drop_points, reduced_range=reduced_range),
        parity_texts=texts[:PARITY_TEXTS],
        parity_source=source,
        calibration_texts=texts_for(task, 1, texts) if calibrate is not None else (),
        selection=selection,
        report=report,
        tune=tune,
        name=Path(model).name,
        threads=threads or default_threads(),
        ladder=ladder,
        start="int8-mixed" if method == "mixed" else None,
        device=target,
        measure=_stopwatch(device or "host", texts) if fastest else None,
        cache=cache_folder("sensitivity"),
        task=task,
    )
    with disk_errors(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as work:
            kept = ConversionCache.default() if cache else None
            made = export_artifacts(checkpoint, request, Path(work), cache=kept, progress=progress)
            swap(made.artifacts[-1].path, output)
    return Artifact.load(output)


def _profiles(text: str | None, to: Format) -> tuple[Profile, ...]:
    """Returns the profiles of ``--profiles``; none where it is not given."""
    if text is None:
        return ()
    if to != "tensorrt":
        raise UsageError(f"--profiles is for TensorRT, not for {to}", remedy="pass --lengths")
    return parse_profiles(text)


def _buckets(
    lengths: Sequence[int] | None, profiles: Sequence[Profile], sentences: Path | None, checkpoint: Checkpoint
) -> tuple[int, ...]:
    """Returns the length buckets by the one option that is given."""
    given = [
        option
        for option, value in (("--lengths", lengths), ("--profiles", profiles), ("--sentences", sentences))
        if value
    ]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} both say the lengths", remedy=f"pass {given[0]} alone")
    config = load_config(checkpoint)
    most = adapter_for(config).max_tokens(config)
    if sentences is None:
        usual = tuple(length for length in DEFAULT_LENGTHS if length <= most) or (most,)
        return tuple(profile.max_tokens for profile in profiles) or tuple(lengths or usual)
    encoder = SentenceEncoder.load(checkpoint.path, max_tokens=most)
    return buckets_for([len(item) for item in encoder.encode(read_sentences(sentences))], max_tokens=most)


def _plan(checkpoint: Checkpoint, method: str | None, ladder: Sequence[LadderStep], **changes: Any) -> QuantizationPlan:
    """Returns the plan a quantize stage left beside the weights, or a new one, with this call's own wishes."""
    if checkpoint.quantization is None or method in ("dynamic", "static"):
        changes["method"] = first_method(ladder) if method in (None, "mixed") else method
    wishes = {name: value for name, value in changes.items() if value is not None}
    return QuantizationPlan.beside(checkpoint).model_copy(update=wishes)


def _stopwatch(device: str, texts: Sequence[Text]) -> Callable[[Artifact], float]:
    """Returns what times a candidate on a device: the p95 of one sentence in milliseconds."""
    address = parse_device(device)

    def time(artifact: Artifact) -> float:
        (found,) = measure([subject_of(artifact)], texts, device=address, threads=1, runs=RUNS, processes=PROCESSES)
        return summary(found).p95_ms

    return time


def _splits(data: Path | None, checkpoint: Checkpoint, task: Task) -> tuple[Split | None, Split | None]:
    """Returns what the ladder selects on and what is reported: of a folder its validation and test, else one file."""
    if data is None:
        return None, None
    if data.is_dir():
        validation = read_split(data, checkpoint.labels, task=task, split="validation")
        return validation, read_split(data, checkpoint.labels, task=task, split="test")
    split = read_split(data, checkpoint.labels, task=task)
    return split, split
