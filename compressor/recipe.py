"""Recipes: strict YAML that names teacher, data, stages and limits; checked whole before anything runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field

from compressor.core.errors import RecipeError
from compressor.core.limits import Limits
from compressor.core.schema import Record
from compressor.core.strict import parse, read_yaml
from compressor.core.task import Task
from compressor.data.reader import DataSpec
from compressor.stage import Stage, StageConfig, stage_names, stage_type

_STAGE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class TeacherSpec(Record):
    """The trained model to start from."""

    model: str
    """A Hugging Face folder, a hub id, or ``demo:minilm-l6`` for the model the demo installs."""


class Accept(Limits):
    """Limits every artifact must keep; those on accuracy are against the trained teacher."""

    artifacts: str = Field(default="*", min_length=1)
    """Which artifact folders the limits are for (a pattern over their names)."""


class RecipeFile(Record):
    """What a recipe file may hold; stages are checked one by one against their own settings."""

    version: Literal[1]
    task: Task = "text-classification"
    teacher: TeacherSpec
    data: DataSpec
    seed: int = 0
    threads: int | None = Field(default=None, ge=1)
    """Threads for training and conversion; default: all cores. Latency has its own setting in ``benchmark``."""
    stages: tuple[dict[str, dict[str, Any] | None] | str, ...] = Field(min_length=1)
    accept: Accept = Accept()


class StageEntry(Record):
    """One stage of a recipe with its settings checked."""

    id: str
    name: str
    config: StageConfig

    def build(self) -> Stage[Any]:
        """Returns the stage, ready to run."""
        return stage_type(self.name)(self.config)


class Recipe(Record):
    """A recipe whose every key was checked."""

    name: str
    teacher: TeacherSpec
    data: DataSpec
    seed: int
    threads: int | None
    stages: tuple[StageEntry, ...]
    accept: Accept
    task: Task = "text-classification"


def load_recipe(path: Path, overrides: tuple[str, ...] = ()) -> Recipe:
    """Reads a recipe.

    Args:
        path: the YAML file.
        overrides: ``key.sub=value`` settings; values are YAML, list items are named by position or by stage name
            (``stages.finetune.epochs=1``).

    Raises:
        RecipeError: an unknown key or stage (the nearest is named), a missing key, or a value of the wrong kind.
    """
    value = read_yaml(path)
    if isinstance(value, dict):
        for override in overrides:
            _apply(value, override)
    file = parse(RecipeFile, value, where=path.name)
    stages = tuple(_entry(index, item, path.name) for index, item in enumerate(file.stages))
    for name in {stage.name for stage in stages if stage_type(stage.name).produces != "checkpoint"}:
        if sum(stage.name == name for stage in stages) > 1:
            raise RecipeError(
                f"{path.name}: two '{name}' stages would write to the same places; expected one",
                remedy="list all formats, precisions and devices in one stage",
            )
    ids = [stage.id for stage in stages]
    if twice := sorted({name for name in ids if ids.count(name) > 1}):
        raise RecipeError(f"{path.name}: stage id '{twice[0]}' is used twice", remedy="give each stage its own id")
    return Recipe(
        name=path.stem, teacher=file.teacher, data=file.data, seed=file.seed, threads=file.threads, stages=stages,
        accept=file.accept, task=file.task,
    )  # fmt: skip


def recipe_schema() -> dict[str, Any]:
    """Returns the JSON Schema of a recipe, for editors; every registered stage's settings are in it."""
    schema = RecipeFile.model_json_schema()
    definitions = schema.setdefault("$defs", {})
    properties: dict[str, Any] = {}
    for name in stage_names():
        stage = stage_type(name).config_type.model_json_schema(ref_template="#/$defs/{model}")
        definitions.update(stage.pop("$defs", {}))
        stage.setdefault("properties", {})["id"] = {"type": "string"}
        definitions[f"stage_{name}"] = stage
        properties[name] = {"anyOf": [{"$ref": f"#/$defs/stage_{name}"}, {"type": "null"}]}
    one_stage = {"type": "object", "properties": properties, "additionalProperties": False, "maxProperties": 1}
    schema["properties"]["stages"]["items"] = {"anyOf": [one_stage, {"enum": list(stage_names())}]}
    return schema


def _entry(index: int, item: dict[str, dict[str, Any] | None] | str, where: str) -> StageEntry:
    pairs = {item: None} if isinstance(item, str) else item
    if len(pairs) != 1:
        raise RecipeError(
            f"{where}: stages[{index}] names {len(pairs)} stages ({', '.join(pairs)}); expected one",
            remedy="start each stage with a dash of its own",
        )
    name, given = next(iter(pairs.items()))
    settings = dict(given or {})
    stage_id = str(settings.pop("id", f"{index + 1:02d}-{name}"))
    if not _STAGE_ID.fullmatch(stage_id):
        raise RecipeError(
            f"{where}: stage id '{stage_id}' cannot name a folder", remedy="use letters, digits, '.', '_' and '-'"
        )
    config = parse(stage_type(name).config_type, settings, where=where, below=f"stages[{index}].{name}")
    return StageEntry(id=stage_id, name=name, config=config)


def _apply(value: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key:
        raise RecipeError(f"--set {override} is not key=value", remedy="write for example --set data.dir=my/data")
    try:
        parsed = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RecipeError(f"--set {override}: the value is not YAML", remedy="quote it") from error
    *parents, last = key.split(".")
    node: Any = value
    for part in parents:
        node = _child(node, part, override)
    if isinstance(node, list):
        node[_position(node, last, override)] = parsed
    else:
        node[last] = parsed


def _child(node: Any, part: str, override: str) -> Any:
    if isinstance(node, list):
        index = _position(node, part, override)
        item = node[index]
        if isinstance(item, str):
            item = node[index] = {item: {}}
        if isinstance(item, dict) and part in item:
            item[part] = item[part] or {}
            return item[part]
        return item
    if isinstance(node, dict):
        child = node.setdefault(part, {})
        if isinstance(child, dict | list):
            return child
    raise RecipeError(f"--set {override}: '{part}' holds no keys", remedy="check the path of the key")


def _position(items: list[Any], part: str, override: str) -> int:
    if part.isdigit() and int(part) < len(items):
        return int(part)
    found = [index for index, item in enumerate(items) if item == part or (isinstance(item, dict) and part in item)]
    if len(found) == 1:
        return found[0]
    state = "is not there" if not found else f"stands there {len(found)} times"
    raise RecipeError(f"--set {override}: '{part}' {state}", remedy="name a list item by its position, from 0")
