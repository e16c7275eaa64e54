"""What an Android phone tells its shell user: thermal status, battery, screen, build."""

from __future__ import annotations

import re
from typing import Any

from devices.readings.sections import number, section

_CHARGING = (2, 5)
"""BatteryManager.BATTERY_STATUS_CHARGING and BATTERY_STATUS_FULL."""
_NO_TEMPERATURE = (6, 7, 8)
"""TemperatureType::BCL_VOLTAGE, BCL_CURRENT and BCL_PERCENTAGE (hardware/interfaces, thermal): the battery's limits."""

CONDITIONS = (
    section("thermal", "dumpsys thermalservice")
    + section("battery", "dumpsys battery")
    + section("power", "dumpsys power | grep -E 'mWakefulness=|Display Power'")
)
FINGERPRINT = (
    section("as:model", 'echo "$(getprop ro.product.manufacturer) $(getprop ro.product.model)"')
    + section("as:soc", 'echo "$(getprop ro.soc.model)" | grep . || getprop ro.board.platform')
    + section("as:android", "getprop ro.build.version.release")
    + section("as:build", "getprop ro.build.fingerprint")
)


def conditions(found: dict[str, str]) -> dict[str, Any]:
    """Returns the fields of ``Conditions`` that the answer to ``CONDITIONS`` holds."""
    battery = dict(re.findall(r"^\s*([\w ]+): (\S+)\s*$", found.get("battery", ""), re.MULTILINE))
    status = number(battery.get("status"))
    level = number(battery.get("level"))
    temperatures = thermal_temperatures(found.get("thermal", ""))
    if (tenths := number(battery.get("temperature"))) is not None:
        temperatures.setdefault("battery", tenths / 10)
    fields: dict[str, Any] = {
        "thermal_status": thermal_status(found.get("thermal", "")),
        "battery_percent": int(level) if level is not None else None,
        "charging": None if status is None else int(status) in _CHARGING,
        "screen_on": screen_on(found.get("power", "")),
    }
    return {**fields, "temperatures_c": temperatures} if temperatures else fields


def thermal_status(text: str) -> int | None:
    """Returns the status of ``dumpsys thermalservice`` (Android 10 and later), or None."""
    found = re.search(r"^\s*Thermal Status:\s*(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else None


def thermal_temperatures(text: str) -> dict[str, float]:
    """Returns {sensor: degrees} as the hardware reports them now, else as last cached."""
    cached, _, current = text.partition("Current temperatures from HAL")
    for part in (current, cached):
        found = re.findall(r"Temperature\{mValue=(-?[\d.]+), mType=(-?\d+), mName=([^,}]+)", part)
        if found:
            return {name: float(value) for value, kind, name in found if int(kind) not in _NO_TEMPERATURE}
    return {}


def screen_on(text: str) -> bool | None:
    """Returns whether the phone is awake, from ``dumpsys power``."""
    found = re.search(r"mWakefulness=(\w+)", text) or re.search(r"Display Power: state=(\w+)", text)
    return None if found is None else found[1].lower() in ("awake", "on", "dreaming")
