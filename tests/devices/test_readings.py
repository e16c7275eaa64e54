"""What remote devices tell of their state, and what is made of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from devices.conditions import Cluster, Conditions, judge
from devices.cooldown import cool_down
from devices.prepare import prepared
from devices.profiles import parse_device
from devices.readings import android, jetson, linux, read_conditions
from devices.readings.sections import MARK, section, sections
from devices.targets import Completed, target_for
from tests.devices.phones import Device, adb_server, needs_adb, phone, program

THERMAL = (
    "IsStatusOverride: false\nThermal Status: {status}\nCached temperatures:\n"
    "\tTemperature{{mValue=38.0, mType=3, mName=SKIN, mStatus=1}}\nHAL Ready: true\n"
    "Current temperatures from HAL:\n\tTemperature{{mValue=44.8, mType=0, mName=AP, mStatus=0}}\n"
)
BATTERY = "Current Battery Service state:\n  USB powered: true\n  status: 2\n  level: 87\n  temperature: 301\n"
SAMPLES = Path(__file__).parents[3] / "shared" / "samples"


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    root = tmp_path / "phone"
    with adb_server(monkeypatch, tmp_path), phone(root, "pixel-4") as found:
        for number, (top, limit) in enumerate(((1785600, 1785600), (2419200, 2419200), (2841600, 2841600))):
            policy = root / f"sys/devices/system/cpu/cpufreq/policy{number * 4}"
            policy.mkdir(parents=True)
            values = {"related_cpus": f"{number * 4}", "scaling_governor": "schedutil", "scaling_cur_freq": "1000000",
                      "scaling_max_freq": str(limit), "cpuinfo_max_freq": str(top)}  # fmt: skip
            for name, value in values.items():
                (policy / name).write_text(f"{value}\n", encoding="utf-8")
        program(
            root / "bin", "dumpsys",
            f"case $1 in thermalservice) cat {root}/thermal;; battery) cat {root}/battery;; "
            "power) echo '  mWakefulness=Asleep';; esac",
        )  # fmt: skip
        program(root / "bin", "getprop", 'case $1 in *model) echo "Pixel $(echo 4)";; *release) echo 13;; esac')
        program(root / "bin", "cmd", f'echo "$@" >> {root}/commands; [ "$2" != help ] || echo fixed-performance')
        (root / "thermal").write_text(THERMAL.format(status=0), encoding="utf-8")
        (root / "battery").write_text(BATTERY, encoding="utf-8")
        yield found


@needs_adb
def test_a_phone_tells_heat_battery_screen_and_the_clocks_of_each_cluster(device: Device) -> None:
    with target_for(device.address) as target:
        found, who = target.conditions(), target.fingerprint()
    assert (found.thermal_status, found.battery_percent, found.charging, found.screen_on) == (0, 87, True, False)
    assert found.temperatures_c == {"AP": 44.8, "battery": 30.1}
    assert [cluster.top_mhz for cluster in found.clusters] == [1785.6, 2419.2, 2841.6]
    assert found.governor == "schedutil"
    assert who["android"] == "13"
    assert who["architecture"] == "aarch64"
    assert "Pixel 4" in who["model"]
    quiet = found.model_copy(update={"load_average": 0.5, "stolen_s": None})
    assert judge(quiet, quiet, threads=1).invalid_reason is None


class Answering:
    """A device that gives one answer to whatever it is asked."""

    def __init__(self, answer: str) -> None:
        self.address = parse_device("raspberry-pi-5@ssh:board")
        self._answer = answer

    def ask(self, script: str, *, time_limit_s: float = 60) -> Completed:
        return Completed(0, self._answer, "", 0.1)


def test_the_time_of_a_reading_is_the_device_s_own_so_that_a_restart_shows() -> None:
    before, after = (
        read_conditions(Answering(f"{MARK}uptime\n{uptime}\n")) for uptime in ("500.25 900.10", "20.00 3.10")
    )
    assert (before.clock_s, after.clock_s) == (500.25, 20.0)
    silent = [read_conditions(Answering(f"{MARK}uptime\n")).clock_s for _ in range(2)]
    assert silent[0] <= silent[1]


@needs_adb
def test_a_phone_s_own_uptime_is_read(device: Device) -> None:
    with target_for(device.address) as target:
        uptime = float(Path("/proc/uptime").read_text(encoding="utf-8").split()[0])
        assert abs(target.conditions().clock_s - uptime) < 30


@needs_adb
def test_a_throttling_phone_makes_the_run_invalid_with_what_to_do(device: Device) -> None:
    with target_for(device.address) as target:
        before = target.conditions()
        (device.root / "thermal").write_text(THERMAL.format(status=3), encoding="utf-8")
        hot = target.conditions()
    found = judge(before, before, threads=1, during=[hot])
    assert found.invalid_reason is not None
    assert "thermal status 3, severe" in found.invalid_reason
    assert "let it cool" in found.invalid_reason


@needs_adb
def test_nothing_on_a_phone_changes_without_prepare_and_prepare_puts_it_back(device: Device) -> None:
    with target_for(device.address) as target:
        target.conditions()
        assert not (device.root / "commands").exists()
        with pytest.raises(KeyboardInterrupt), prepared(target) as changed:
            assert changed == ("fixed performance mode",)
            raise KeyboardInterrupt
    said = (device.root / "commands").read_text(encoding="utf-8").splitlines()
    assert [line.split()[-1] for line in said[-2:]] == ["true", "false"]


def test_an_old_phone_without_thermal_service_and_a_broken_one_tell_nothing() -> None:
    assert android.conditions({}) == {
        "thermal_status": None, "battery_percent": None, "charging": None, "screen_on": None,
    }  # fmt: skip
    assert android.thermal_status("Can't find service: thermalservice") is None
    assert linux.conditions({})["clusters"] == ()
    assert jetson.conditions({}) == {"power_mode": None, "clocks_locked": None}


def test_recorded_thermal_service_and_tegrastats() -> None:
    if not SAMPLES.is_dir():
        pytest.skip(f"no recorded logs at {SAMPLES}")
    text = (SAMPLES / "dumpsys_thermalservice.txt").read_text(encoding="utf-8")
    assert android.thermal_status(text) == 1
    assert android.thermal_temperatures(text) == {"AP": 44.8}
    lines = (SAMPLES / "tegrastats.txt").read_text(encoding="utf-8").splitlines()
    orin, tx2 = (jetson.tegrastats(line) for line in lines if not line.startswith("#"))
    assert (orin["gpu_mhz"], orin["power_mw"], orin["temperatures_c"]["tj"]) == (713, 17946, 65.562)
    assert tx2["temperatures_c"]["GPU"] == 50
    assert "gpu_mhz" not in tx2


def test_a_battery_s_current_voltage_and_charge_are_no_temperatures() -> None:
    service = "Current temperatures from HAL:\n" + "".join(
        f"\tTemperature{{mValue={value}, mType={kind}, mName={name}, mStatus=0}}\n"
        for value, kind, name in [(34.5, 0, "CPU"), (4.06, 6, "vbat"), (1200.0, 7, "ibat"), (75.0, 8, "soc")]
    )
    assert android.thermal_temperatures(service) == {"CPU": 34.5}
    zones = "cpu-1-0-usr 31900\npm8150_tz 29801\npm8150b-ibat-lvl0 546\npm8150b-vbat-lvl1 3986\nvbat 3986\nsoc 72\n"
    found = linux.conditions({"zones": f"{zones}pm8350b-bcl-lvl0 60\nsocd 28\nsoc-thermal 41000\n"})
    assert found["temperatures_c"] == {"cpu-1-0-usr": 31.9, "pm8150_tz": 29.801, "soc-thermal": 41.0}


@pytest.mark.parametrize(
    ("text", "mhz"), [("GR3D_FREQ 84%@[713]", 713), ("GR3D_FREQ 84%@713", 713), ("GR3D_FREQ 0%", None)]
)
def test_gpu_clocks_in_all_their_forms(text: str, mhz: float | None) -> None:
    assert jetson.tegrastats(text).get("gpu_mhz") == mhz


@pytest.mark.parametrize(
    ("rails", "power_mw"),
    [("VDD_IN 5000mW/4900mW VDD_SOC 900mW/900mW", 5000), ("POM_5V_IN 2100/2000 POM_5V_GPU 300/300", 2100),
     ("VDD_GPU_SOC 20000mW/20000mW VDD_CPU_CV 900mW/900mW VIN_SYS_5V0 4000mW/4000mW", None)],
)  # fmt: skip
def test_drawn_power_is_the_whole_device_s_or_none(rails: str, power_mw: float | None) -> None:
    assert jetson.tegrastats(f"RAM 1/2MB GR3D_FREQ 0% {rails}").get("power_mw") == power_mw


@pytest.mark.parametrize(
    ("line", "limits"),
    [("throttled=0x0", ()), ("throttled=0x50000", ()), ("throttled=0x50005", ("under-voltage", "throttled")), ("", ())],
)
def test_a_raspberry_pi_s_firmware_tells_what_limits_it_now(line: str, limits: tuple[str, ...]) -> None:
    found = linux.conditions({"pi": line})
    assert found["limits"] == limits
    reading = Conditions(clock_s=0, cores=4, limits=limits)
    assert (judge(reading, reading, threads=1).invalid_reason is not None) == bool(limits)


def reading(**values) -> Conditions:
    return Conditions(clock_s=0, cores=4, **values)


def test_lowered_limits_and_changed_modes_are_invalid_and_standing_limits_a_note() -> None:
    def capped(limit: float) -> Conditions:
        return reading(clusters=(Cluster(cpus="4-7", limit_mhz=limit, top_mhz=2400),))

    assert "fell from 2400 to 1800" in str(judge(capped(2400), capped(1800), threads=1).invalid_reason)
    standing = judge(capped(1800), capped(1800), threads=1)
    assert standing.invalid_reason is None
    assert any("limited to 1800 of 2400" in note for note in standing.notes)
    modes = judge(reading(power_mode="15W"), reading(power_mode="7W"), threads=1)
    assert "from 15W to 7W" in str(modes.invalid_reason)


def test_a_warm_device_rests_until_it_is_cool_or_time_is_up() -> None:
    heat = iter([70.0, 60.0, 54.0, 50.0])
    waited: list[float] = []
    first = reading(temperatures_c={"cpu": 50.0})

    def read() -> Conditions:
        return reading(temperatures_c={"cpu": next(heat)})

    found = cool_down(read, first, limit_s=60, sleep=waited.append, clock=lambda: sum(waited))
    assert [one.temperatures_c for one in found] == [{"cpu": 70.0}, {"cpu": 54.0}]
    assert len(waited) == 2

    hot = reading(temperatures_c={"cpu": 90.0}, thermal_status=3)
    waited.clear()
    found = cool_down(lambda: hot, first, limit_s=20, sleep=waited.append, clock=lambda: sum(waited))
    assert found[-1] is hot
    assert sum(waited) == 20
    waited.clear()
    assert len(cool_down(reading, reading(), limit_s=20, sleep=waited.append, clock=lambda: 0.0)) == 1
    assert waited == []


def test_answers_are_parted_by_name_whatever_they_hold() -> None:
    assert "2>/dev/null" in section("a", "cat x")
    found = sections("login banner\n=====compressor a\nx\r\ny\n=====compressor b\n")
    assert found == {"a": "x\ny\n", "b": ""}


def test_prepare_is_not_for_the_machine_itself() -> None:
    from compressor.core.errors import DeviceError

    with target_for(parse_device("host")) as target, pytest.raises(DeviceError, match="over adb or ssh"):
        prepared(target).__enter__()
