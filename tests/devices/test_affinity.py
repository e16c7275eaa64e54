import pytest

from compressor.core.errors import UsageError
from devices.affinity import check_cpus, core_numbers, resolve_cpus
from devices.conditions import Cluster, Conditions
from devices.profiles import load_profile, parse_device

PHONE = parse_device("snapdragon-865@adb:1")
CLUSTERS = (Cluster(cpus="0 1 2 3", top_mhz=1804), Cluster(cpus="4-6", top_mhz=2419), Cluster(cpus="7", top_mhz=2841))
READ = Conditions(clock_s=1.0, cores=8, clusters=CLUSTERS)


@pytest.mark.parametrize(
    ("text", "cores"),
    [("4-7", (4, 5, 6, 7)), ("0,2", (0, 2)), ("prime", (7,)), ("big", (4, 5, 6)), ("little", (0, 1, 2, 3)),
     ("Big, 7", (4, 5, 6, 7)), ("cortex-a77", (4, 5, 6, 7)), ("cortex-a55", (0, 1, 2, 3))],
)  # fmt: skip
def test_cores_are_named_by_number_or_kind(text, cores):
    assert resolve_cpus(text, PHONE, READ, threads=1) == cores


def test_kinds_go_by_what_the_device_tells():
    two = READ.model_copy(update={"clusters": (Cluster(cpus="0-5", top_mhz=1700), Cluster(cpus="6-7", top_mhz=2200))})
    assert resolve_cpus("big", PHONE, two, threads=2) == (6, 7)
    for text in ("prime", "cortex-a55"):  # not of this device, whatever the profile lists
        with pytest.raises(UsageError, match=r"tells no cores called.*big \(6, 7\), little \(0, 1, 2, 3, 4, 5\)"):
            resolve_cpus(text, PHONE, two, threads=1)
    silent = READ.model_copy(update={"clusters": ()})
    with pytest.raises(UsageError, match="it tells no kinds of cores"):
        resolve_cpus("big", PHONE, silent, threads=1)
    assert resolve_cpus("4", PHONE, silent, threads=1) == (4,)


def test_clusters_of_one_clock_are_one_kind():
    orin = parse_device("jetson-orin-nano@ssh:board")
    alike = READ.model_copy(
        update={"clusters": (Cluster(cpus="0-3", top_mhz=1510.4), Cluster(cpus="4 5", top_mhz=1510.4))}
    )
    for text in ("big", "cortex-a78ae"):
        assert resolve_cpus(text, orin, alike, threads=6) == (0, 1, 2, 3, 4, 5)
    with pytest.raises(UsageError, match="tells no cores called 'little'"):
        resolve_cpus("little", orin, alike, threads=1)


@pytest.mark.parametrize(
    ("text", "says", "remedy"),
    [
        ("bigg", "'bigg' names no cores of snapdragon-865", "big"),
        ("7-4", "expected numbers as in 4-7", "lower number first"),
        ("-1", "names no cores of", "lower number first"),
        ("", "names no cores; expected for example", "name some"),
        ("4,,5", "names no cores; expected for example", "name some"),
        ("6-9", "has no core 8, 9 for us; expected some of 0, 1, 2, 3, 4, 5, 6, 7", "cores that are there"),
        ("prime", "names 1 core(s) for 2 threads", "--threads 1"),
    ],
)
def test_bad_values_are_refused_with_what_is_there(text, says, remedy):
    with pytest.raises(UsageError) as caught:
        resolve_cpus(text, PHONE, READ, threads=2)
    assert says in caught.value.message
    assert remedy in str(caught.value.remedy)


def test_what_can_be_no_core_is_known_before_the_device_is_reached():
    check_cpus("cortex-a77,0-3", load_profile("snapdragon-865"))
    with pytest.raises(UsageError):
        check_cpus("cortex-a77", load_profile("jetson-orin-nano"))


def test_the_kernel_s_lists_are_read():
    assert core_numbers("0-3,6") == (0, 1, 2, 3, 6)
    assert core_numbers("3 1 2") == (1, 2, 3)
