"""Which format and precision a device can run, answered before any work is done for it."""

from __future__ import annotations

from collections.abc import Mapping

from compressor.core.artifact import Format, Precision
from compressor.core.device import DeviceProfile, Illegal
from compressor.core.errors import IllegalOnDeviceError


def legality(
    profile: DeviceProfile, format_name: Format, precision: Precision | None = None, *, family: str | None = None
) -> Illegal | None:
    """Returns why ``profile`` cannot run (or should not run) a combination, or None where it can.

    Args:
        profile: the kind of device.
        format_name: the artifact's format.
        precision: the artifact's precision; None asks for the format as a whole.
        family: the model's type, e.g. ``mobilebert``; None asks only for what holds for every family.
    """
    return profile.refusal(format_name, precision, family=family)


def check_legal(
    profile: DeviceProfile, format_name: Format, precision: Precision | None = None, *, family: str | None = None
) -> None:
    """Raises IllegalOnDeviceError, with the reason and what to use instead, for what :func:`legality` refuses."""
    rule = legality(profile, format_name, precision, family=family)
    if rule is not None:
        asked = format_name if precision is None else f"{format_name} {precision}"
        raise IllegalOnDeviceError(f"{asked} on {profile.name}: {rule.reason}", remedy=f"use {rule.instead}")


def other_target(profile: DeviceProfile, target: Mapping[str, str]) -> str | None:
    """Returns why a file does not run on a device's SoC, or None where it does or is tied to none.

    Args:
        profile: the kind of device.
        target: what the artifact's manifest says it was compiled for; empty where it was not.
    """
    if not target or (profile.hexagon is not None and str(profile.hexagon.soc_model) == target["soc_model"]):
        return None
    return (
        f"the file was compiled for {target['device']} (SoC {target['soc_model']}, Hexagon {target['hexagon']}); "
        f"expected one for {profile.name}"
    )


def check_target(profile: DeviceProfile, target: Mapping[str, str]) -> None:
    """Raises IllegalOnDeviceError for a file that :func:`other_target` says was compiled for another SoC."""
    if (reason := other_target(profile, target)) is not None:
        raise IllegalOnDeviceError(reason, remedy=f"convert again with --device {profile.name}")
