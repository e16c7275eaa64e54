"""How settings, readings and facts are written for people: units after figures, no Python notation."""

from __future__ import annotations

from collections.abc import Mapping

_UNITS = {"mb": "MB", "gb": "GB", "mhz": "MHz", "mw": "mW", "ms": "ms", "s": "s", "c": "°C", "percent": "%"}
_NAMES = {
    "cpu": "CPU", "cpus": "CPUs", "cpu_features": "CPU features", "cpu_limit": "CPU limit, cores",
    "gpu_mhz": "GPU clock", "frequency_mhz": "clock", "load_average": "load average, 1 minute",
    "throttled_s": "stopped by the CPU limit so far", "stolen_s": "taken by the hypervisor so far",
}  # fmt: skip
_THOUSANDS_FROM = 10_000


def words(name: str) -> str:
    """Returns a key as words."""
    return name.replace("_", " ")


def threads(count: int) -> str:
    """Returns a number of threads."""
    return f"{count} thread{'' if count == 1 else 's'}"


def reading(name: str, value: object) -> tuple[str, str]:
    """Returns a reading's name without its unit, and its value with it: ``memory_gb`` 25 is memory 25 GB."""
    stem, _, suffix = name.rpartition("_")
    unit = _UNITS.get(suffix) if stem else None
    label = _NAMES.get(name, words(stem if unit else name))
    if isinstance(value, float):
        value = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return label, f"{plain(value)} {unit}" if unit and not isinstance(value, Mapping) else plain(value)


def plain(value: object) -> str:
    """Returns a value as a recipe would write it; two states of a thing with an arrow between them."""
    if isinstance(value, Mapping):
        if set(value) == {"before", "after"}:
            return f"{plain(value['before'])} → {plain(value['after'])}"
        return "{" + ", ".join(f"{name}: {plain(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(plain, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and abs(value) >= _THOUSANDS_FROM:
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def step(facts: Mapping[str, object]) -> str:
    """Returns a stage of a checkpoint's history: its name, then what it noted."""
    noted = "; ".join(f"{words(name)} {plain(value)}" for name, value in facts.items() if name != "stage")
    return ": ".join(filter(None, (str(facts.get("stage", "")), noted)))


def paragraphs(lines: Mapping[str, str]) -> str:
    """Returns {what: text}, one a line."""
    return "\n".join(f"{name}: {text}" for name, text in lines.items())
