"""What a command names, found and read: models, data, sentences, and the demo's built-in ones."""

from __future__ import annotations

import os
from pathlib import Path

from compressor.core.checkpoint import Checkpoint
from compressor.core.device import DeviceProfile
from compressor.core.latency import LatencyModel
from compressor.core.schema import Text
from compressor.data.demo_model import demo_teacher
from compressor.data.intents import write_intents
from compressor.data.reader import DataSpec, read_dataset, read_sentences
from compressor.pipeline import Inputs
from compressor.recipe import Recipe
from devices.profiles import parse_device

DEMO_MODEL = "demo:minilm-l6"
DEMO_DATA = "demo:intents"


def find_model(name: str | Path) -> Checkpoint:
    """Returns the checkpoint of a folder, a hub id, or ``demo:minilm-l6``."""
    if str(name) == DEMO_MODEL:
        return Checkpoint.open(demo_teacher())
    from compressor.models import resolve  # with PyTorch, which most commands on artifacts do without

    return resolve(name)


def find_data(spec: DataSpec, demo_folder: Path) -> DataSpec:
    """Returns ``spec``; ``dir: demo:intents`` becomes ``demo_folder``, where the demo's texts are written."""
    if str(spec.dir) != DEMO_DATA:
        return spec
    demo_folder.mkdir(parents=True, exist_ok=True)
    write_intents(demo_folder)
    return spec.model_copy(update={"dir": demo_folder})


def read_inputs(recipe: Recipe, demo_folder: Path) -> Inputs:
    """Reads teacher and data of a recipe; a teacher that knows the data's labels keeps its own order of them.

    Raises:
        UsageError: a stage names a device that is not known.
    """
    from compressor.families.heads import find_task

    teacher = find_model(recipe.teacher.model)
    # A head that was trained for the recipe's task has an order of labels; any other is replaced by a finetune stage.
    trained = recipe.task != "text-classification" and find_task(teacher) == recipe.task
    names = teacher.labels if trained else ()
    data = read_dataset(find_data(recipe.data, demo_folder), task=recipe.task, label_names=names)
    if recipe.task == "text-classification" and set(teacher.labels) == set(data.label_names):
        data = data.with_label_order(teacher.labels)
    for entry in recipe.stages:
        if device := getattr(entry.config, "device", None):
            profile_of(device)
    threads = recipe.threads or default_threads()
    return Inputs(teacher=teacher, data=data, threads=threads, profiles=profile_of, latency=_latency)


def profile_of(device: str) -> DeviceProfile:
    """Returns the profile of a named device, reached or not.

    Raises:
        UsageError: no such profile.
    """
    return parse_device(device).profile


def _latency(device: str, source: Checkpoint, tokens: int) -> LatencyModel:
    from compressor.app.layer_costs import latency_of  # it measures, and so imports what reads inputs

    return latency_of(device, source, tokens)


def default_threads() -> int:
    """Returns the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_texts(path: Path | None) -> tuple[tuple[Text, ...], str]:
    """Returns sentences and a word on where they come from; the demo's sentences where no file is named."""
    if path is not None:
        return tuple(read_sentences(path)), path.name
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        write_intents(Path(folder))
        return tuple(read_sentences(Path(folder) / "test.tsv")), "built-in sentences"
