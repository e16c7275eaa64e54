"""What an NVIDIA Jetson tells: power mode, locked clocks, and a line of tegrastats."""

from __future__ import annotations

import re
from typing import Any

from devices.readings.sections import section

_SECONDS = 2
CONDITIONS = (
    section("nvpmodel", "nvpmodel -q || sudo -n nvpmodel -q")
    + section("jetson_clocks", "sudo -n jetson_clocks --show || jetson_clocks --show")
    + section("tegrastats", f"timeout {_SECONDS} tegrastats --interval 500")
)
FINGERPRINT = (
    section("as:l4t", "head -n 1 /etc/nv_tegra_release")
    + section("as:jetpack", "dpkg-query -W -f='${Version}' nvidia-jetpack")
    + section("as:tensorrt", "dpkg-query -W -f='${Version}\\n' libnvinfer10 libnvinfer8 | head -n 1")
)


def conditions(found: dict[str, str]) -> dict[str, Any]:
    """Returns the fields of ``Conditions`` that the answer to ``CONDITIONS`` holds."""
    lines = [line for line in found.get("tegrastats", "").splitlines() if line.strip()]
    stats = tegrastats(lines[-1]) if lines else {}
    return {
        "power_mode": power_mode(found.get("nvpmodel", "")),
        "clocks_locked": clocks_locked(found.get("jetson_clocks", "")),
        **stats,
    }


def power_mode(text: str) -> str | None:
    """Returns the name of the mode that ``nvpmodel -q`` gives."""
    found = re.search(r"NV Power Mode:\s*(\S+)", text)
    return found[1] if found else None


def clocks_locked(text: str) -> bool | None:
    """Returns whether ``jetson_clocks --show`` reports the GPU's lowest clock raised to its highest."""
    found = re.search(r"GPU\s+MinFreq=(\d+)\s+MaxFreq=(\d+)", text)
    return None if found is None else found[1] == found[2]


def tegrastats(line: str) -> dict[str, Any]:
    """Parses one line of tegrastats, of any JetPack: the parts differ by board and version, so each is looked for.

    Returns:
        The fields of ``Conditions`` that it holds: temperatures, GPU clock in MHz and drawn power in mW.
    """
    fields: dict[str, Any] = {}
    temperatures = {name: float(value) for name, value in re.findall(r"(\w+)@(-?[\d.]+)C\b", line)}
    if temperatures:
        # A sensor that is powered down reads -256.
        fields["temperatures_c"] = {name: value for name, value in temperatures.items() if value > -200}
    if gpu := re.search(r"GR3D_FREQ \d+%@\[?(\d+)", line):
        fields["gpu_mhz"] = float(gpu[1])
    # AGX Orin has no sensor of the whole: its VIN_SYS_5V0 stands beside VDD_GPU_SOC and VDD_CPU_CV, not above them.
    if power := re.search(r"(?:VDD_IN|POM_5V_IN|VDD_SYS_IN)\s+(\d+)(?:mW)?/", line):
        fields["power_mw"] = float(power[1])
    return fields
