"""The contract every pass keeps, and the registry through which the pipeline finds passes by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from compressor.core.artifact import Artifact
from compressor.core.checkpoint import Checkpoint
from compressor.core.device import DeviceProfile
from compressor.core.errors import RecipeError, nearest
from compressor.core.latency import LatencyModel, LatencySource
from compressor.core.measurement import Measurement
from compressor.data.dataset import TextDataset


class StageConfig(BaseModel):
    """Base of every stage's settings: typed, frozen, keyword-only; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class Progress(Protocol):
    """Where a stage says how far it is; a bar on a terminal, plain lines elsewhere."""

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Reports that ``done`` of ``total`` steps are done."""
        ...


def silent(done: int, total: int, note: str = "") -> None:
    """A Progress that says nothing."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a stage may look at. Values only; a stage changes none of them."""

    teacher: Checkpoint
    """The model the recipe names, before any stage."""
    current: Checkpoint
    """The result of the last stage that made a checkpoint."""
    checkpoints: Mapping[str, Checkpoint] = field(default_factory=dict)
    """Earlier results by stage id."""
    untrained: bool = True
    """Whether ``current`` is still the teacher, at most prepared for a training that makes it the reference."""
    reference: Checkpoint | None = None
    """The teacher as this run trained it; None where the recipe trains none."""
    data: TextDataset
    seed: int = 0
    threads: int = 1
    artifacts: tuple[Artifact, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    workdir: Path
    """The run's folder."""
    scratch: Path
    """A folder of this stage and cache key alone; it outlives a killed run, so that training can resume from it."""
    progress: Progress = silent
    profiles: Callable[[str], DeviceProfile] | None = None
    """Returns the profile of a named device; None where no devices are known."""
    latency: LatencySource | None = None
    """Measures (or has measured) a device's time per layer; None where no device can be asked."""

    def device(self, name: str) -> DeviceProfile:
        """Returns the profile of a named device.

        Raises:
            RecipeError: no devices are known here.
            UsageError: no device of that name.
        """
        if self.profiles is None:
            raise RecipeError(f"the device '{name}' is not known here", remedy="run the recipe through compressor.run")
        return self.profiles(name)

    def latency_model(self, device: str, tokens: int) -> LatencyModel:
        """Returns a device's time per layer of the current checkpoint.

        Raises:
            RecipeError: no device can be asked here.
            DeviceError: the device is not reached, or is in no measurable condition.
        """
        if self.latency is None:
            raise RecipeError(f"'{device}' cannot be measured here", remedy="name a file with its latency model")
        return self.latency(device, self.current, tokens)

    @property
    def trained_teacher(self) -> Checkpoint:
        """The trained teacher that ``accept`` compares with."""
        return self.reference or self.teacher


ConfigT = TypeVar("ConfigT", bound=StageConfig)
Produces = Literal["checkpoint", "artifacts", "measurements"]


class Stage(ABC, Generic[ConfigT]):
    """One pass. Subclasses set ``name``, ``config_type`` and ``produces``, and :func:`register` makes them known."""

    name: ClassVar[str]
    config_type: ClassVar[type[StageConfig]]
    produces: ClassVar[Produces]
    makes_reference: ClassVar[bool] = False
    """True where the first result is the trained teacher that ``accept`` compares with."""
    prepares_reference: ClassVar[bool] = False
    """True where a result made of the teacher is still the teacher, for a later stage to train."""
    trains: ClassVar[bool] = False
    """True where every process of a run does the stage, each a share of the training; else the main one alone does."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Distributions whose version is part of the cache key."""

    def __init__(self, config: ConfigT) -> None:
        self.config = config

    def files(self) -> tuple[Path, ...]:
        """Returns files and folders, besides model and data, whose content is part of the cache key."""
        return ()

    def forecast(self, model_config: Any) -> Any:
        """Returns the transformers config that a model of ``model_config`` has after this stage, for a dry run."""
        return model_config

    def check(self, teacher: Checkpoint, earlier: tuple[str, ...]) -> None:
        """Raises a named error for what can be known before the first stage runs: packages, devices, names, limits.

        Args:
            teacher: the model the recipe names.
            earlier: ids of the stages before this one.
        """

    @abstractmethod
    def requires(self, context: Context) -> None:
        """Raises a named error, before any work, when the stage cannot do what it is asked for."""

    @abstractmethod
    def run(self, context: Context, output: Path) -> dict[str, Any]:
        """Does the work, writing only into ``output`` (an empty folder that becomes the result when this returns).

        A ``checkpoint`` stage writes a Hugging Face folder there; an ``artifacts`` stage one sub-folder an artifact; a
        ``measurements`` stage one JSON file a measurement.

        Returns:
            Facts for the report, JSON-serialisable: figures, curves, per-loss values.
        """

    @abstractmethod
    def ensures(self, context: Context, output: Path) -> None:
        """Proves what the stage promises of the files in ``output``; raises StageError where it does not hold."""


_REGISTRY: dict[str, type[Stage[Any]]] = {}


def register(stage: type[Stage[Any]]) -> type[Stage[Any]]:
    """Class decorator: makes the stage known to recipes under ``stage.name``."""
    _REGISTRY[stage.name] = stage
    return stage


def stage_type(name: str) -> type[Stage[Any]]:
    """Returns the stage class of that name.

    Raises:
        RecipeError: no such stage; the nearest name is given.
    """
    if name not in _REGISTRY:
        raise RecipeError(f"unknown stage '{name}'", remedy=nearest(name, _REGISTRY))
    return _REGISTRY[name]


def stage_names() -> tuple[str, ...]:
    """Returns the registered names, sorted."""
    return tuple(sorted(_REGISTRY))
