"""The kinds of device we know, and how one is named: ``PROFILE``, ``PROFILE@local``, ``PROFILE@ssh:USER@HOST``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

import yaml
from pydantic import ValidationError

from compressor.core.device import DeviceProfile
from compressor.core.errors import UsageError, nearest

Transport = Literal["local", "adb", "ssh", "aihub", "unreached"]
HOST = "host"


@dataclass(frozen=True, kw_only=True)
class DeviceAddress:
    """One device: what it is, and where it is reached."""

    profile: DeviceProfile
    transport: Transport
    """``unreached``: only the kind of device was named, which is enough to plan and to convert for it."""
    where: str = ""
    """Serial for ``adb``, ``user@host`` for ``ssh``; empty for the others."""

    @property
    def name(self) -> str:
        """The address as text, e.g. ``host@local`` or ``jetson-orin-nano@ssh:me@10.0.0.5``."""
        where = f":{self.where}" if self.where else ""
        return f"{self.profile.name}@{self.transport}{where}"


@cache
def profile_names() -> tuple[str, ...]:
    """Returns the names of all profiles, sorted."""
    files = (resources.files("devices") / "profiles").iterdir()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")))


@cache
def load_profile(name: str) -> DeviceProfile:
    """Reads and checks a profile.

    Raises:
        UsageError: no profile of that name (the nearest one is given), or a file that breaks the schema.
    """
    if name not in profile_names():
        raise UsageError(f"unknown device '{name}'; expected a device profile", remedy=nearest(name, profile_names()))
    text = (resources.files("devices") / "profiles" / f"{name}.yaml").read_text(encoding="utf-8")
    try:
        profile = DeviceProfile.model_validate(yaml.safe_load(text))
    except (yaml.YAMLError, ValidationError) as error:
        raise UsageError(f"devices/profiles/{name}.yaml breaks the schema: {error}", remedy="mend the file") from error
    if profile.name != name:
        raise UsageError(
            f"devices/profiles/{name}.yaml calls itself '{profile.name}'; expected '{name}'",
            remedy="rename one of them",
        )
    return profile


def parse_device(text: str) -> DeviceAddress:
    """Parses the name of a device.

    Args:
        text: ``PROFILE`` alone or ``PROFILE@local``, ``PROFILE@adb:SERIAL``, ``PROFILE@ssh:USER@HOST``,
            ``PROFILE@aihub:PHONE``. ``host`` alone is ``host@local``; any other profile alone names a kind of device
            that is not reached.

    Raises:
        UsageError: an unknown profile or transport, or an address with its serial or host missing.
    """
    name, at, address = text.partition("@")
    profile = load_profile(name)
    if not at:
        return DeviceAddress(profile=profile, transport="local" if name == HOST else "unreached")
    scheme, _, where = address.partition(":")
    if scheme == "local" and not where:
        return DeviceAddress(profile=profile, transport="local")
    if scheme == "adb" and where:
        return DeviceAddress(profile=profile, transport="adb", where=where)
    if scheme == "aihub" and where:
        return DeviceAddress(profile=profile, transport="aihub", where=where)
    if scheme == "ssh" and where:
        return DeviceAddress(profile=profile, transport="ssh", where=where)
    meant = _MEANT.get(scheme, scheme)
    raise UsageError(
        f"'{text}' gives no usable address after '@'; expected local, adb:SERIAL, ssh:USER@HOST or aihub:PHONE",
        remedy=f"for example {name}@{_EXAMPLES[meant]}" if meant in _EXAMPLES else nearest(meant, _EXAMPLES),
    )


_MEANT = {"usb": "adb", "serial": "adb", "android": "adb", "ip": "ssh", "tcp": "ssh"}
"""What people write for a transport that no likeness of letters leads to."""
_EXAMPLES = {"local": "local", "adb": "adb:R5CT1234", "ssh": "ssh:me@10.0.0.5", "aihub": "aihub:PHONE"}
