from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

import benchmarks.measure as module
from benchmarks.comparison import check_comparable
from benchmarks.measure import measure, measurement_name
from benchmarks.sentences import sample
from benchmarks.statistics import summary
from benchmarks.subject import Subject, subject_of, torch_subject
from compressor.core.artifact import Artifact
from compressor.core.errors import ArtifactError, DeviceError, IllegalOnDeviceError, UsageError
from compressor.core.measurement import Measurement
from devices import cooldown
from devices.conditions import Conditions
from devices.profiles import parse_device
from devices.runner import WarmUp
from devices.targets.local import LocalTarget
from tests.benchmarks.artifacts import tiny_artifact
from tests.benchmarks.measurements import measurement as by_hand
from tests.models import SENTENCES, tiny_checkpoint

HOST = parse_device("host")
QUICK = WarmUp(min_runs=1, max_runs=3, max_seconds=1.0)
TEXTS = (*SENTENCES, "where is my card " * 20)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return tiny_artifact(tmp_path_factory.mktemp("measure") / "onnx-fp32")


@pytest.fixture(scope="module")
def measured(artifact: Artifact) -> tuple[list[Subject], list[str], list[Measurement]]:
    """Two subjects in three rounds, with the order in which their processes ran."""
    subjects = [subject_of(artifact), subject_of(artifact, pad_to=32)]
    ran: list[str] = []
    original = module.run_job

    def recording(target, job, *, time_limit_s):
        ran.append("padded" if job.pad_to else "own")
        return original(target, job, time_limit_s=time_limit_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "run_job", recording)
        found = measure(subjects, TEXTS, device=HOST, runs=20, processes=3, seed=7, warmup=QUICK)
    return subjects, ran, found


def test_subjects_are_interleaved_one_process_each_a_round(measured) -> None:
    _, ran, _ = measured
    assert len(ran) == 6
    assert all(set(ran[start : start + 2]) == {"own", "padded"} for start in (0, 2, 4))


def test_every_run_is_kept_with_sentence_and_process(measured) -> None:
    subjects, _, found = measured
    for subject, item in zip(subjects, found, strict=True):
        assert (item.subject, item.subject_hash) == (subject.name, subject.hash)
        assert item.runs.sentence == sample(TEXTS, 20, seed=7)
        assert item.runs.process == (0,) * 7 + (1,) * 7 + (2,) * 6
        assert len(item.cold_ms) == len(item.load_ms) == item.processes == 3
        assert item.truncated_sentences == 1
        assert item.device == "host@local"
        assert item.threads == 1
        assert item.fingerprint["cpu"]
        assert item.conditions_before["cores"] >= 1


def test_subjects_see_the_same_sentences_and_differ_in_length_alone(measured) -> None:
    _, _, (own, padded) = measured
    assert own.runs.sentence == padded.runs.sentence
    assert own.runs.tokens == padded.runs.tokens
    assert set(own.runs.length) == {8, 32}
    assert set(padded.runs.length) == {32}
    assert padded.subject == "onnx-fp32-padded-32"


def test_a_measurement_survives_the_disk(measured, tmp_path: Path) -> None:
    _, _, found = measured
    found[0].save(tmp_path / "m.json")
    assert Measurement.load(tmp_path / "m.json") == found[0]


def test_a_torch_subject_takes_pad_id_and_hash_from_its_checkpoint(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("roberta", tmp_path / "teacher")
    subject = torch_subject(checkpoint, name="teacher-torch-fp32-padded-64", max_tokens=64, pad_to=64)
    assert (subject.pad_id, subject.hash, subject.runtime) == (1, checkpoint.hash, "torch")


def test_tensorrt_has_no_host_runtime(artifact: Artifact) -> None:
    manifest = artifact.manifest.model_copy(update={"format": "tensorrt"})
    with pytest.raises(IllegalOnDeviceError, match="NVIDIA GPU"):
        measure([subject_of(replace(artifact, manifest=manifest))], TEXTS, device=HOST)


def test_what_the_device_cannot_run_is_refused_before_any_process(artifact: Artifact) -> None:
    with pytest.raises(IllegalOnDeviceError):
        measure([replace(subject_of(artifact), format="tensorrt", precision="fp16")], TEXTS, device=HOST)


def test_a_device_that_is_not_reached_has_exit_code_4(artifact: Artifact) -> None:
    with pytest.raises(DeviceError) as caught:
        measure([subject_of(artifact)], TEXTS, device=parse_device("mobile-cpu@adb:X"))
    assert caught.value.exit_code == 4


def test_wrong_use_is_named(artifact: Artifact, tmp_path: Path) -> None:
    subject = subject_of(artifact)
    for subjects, options in (
        ([], {}),
        ([subject, subject], {}),
        ([subject], {"runs": 0}),
        ([subject], {"threads": 0}),
    ):
        with pytest.raises(UsageError):
            measure(subjects, TEXTS, device=HOST, **options)
    with pytest.raises(UsageError):
        measure([subject], (), device=HOST)
    with pytest.raises(ArtifactError, match=r"tokenizer\.json"):
        measure([replace(subject, tokenizer=tmp_path)], TEXTS, device=HOST)


def test_a_measurement_s_name_keeps_two_devices_of_one_kind_apart() -> None:
    devices = ["host@local", "snapdragon-865@adb:R5CT12", "snapdragon-865@adb:10.0.0.7:5555", "jetson@ssh:me@10.0.0.5"]
    names = [measurement_name(by_hand([1.0], subject="onnx-int8", device=device)) for device in devices]
    assert names[0] == "host-onnx-int8"
    assert len(set(names)) == len(devices)
    for device, name in zip(devices, names, strict=True):
        assert name.startswith(device.partition("@")[0])
        assert name.endswith("onnx-int8")
        assert re.fullmatch(r"[A-Za-z0-9._-]+", name)


def test_a_subject_that_is_slow_to_start_may_take_fewer_processes(artifact) -> None:
    subjects = [subject_of(artifact), replace(subject_of(artifact, pad_to=32), processes=2)]
    one, other = measure(subjects, TEXTS, device=HOST, runs=12, processes=4, warmup=QUICK)
    assert (one.processes, other.processes) == (4, 2)
    assert one.runs.sentence == other.runs.sentence
    assert set(one.runs.process) == {0, 1, 2, 3}
    assert set(other.runs.process) == {0, 1}


@pytest.mark.parametrize("where", ["a b", "$(x)", "../../etc", "new\nline", "10.0.0.5:5555", "ünï", "-rf", ";"])
def test_a_measurement_s_file_name_is_safe_for_any_address(where: str) -> None:
    item = Measurement.model_construct(device=f"mobile-cpu@adb:{where}", subject="onnx-fp32")
    name = measurement_name(item)
    assert re.fullmatch(r"mobile-cpu-[A-Za-z0-9._-]+-onnx-fp32", name)
    assert "/" not in name


def test_processes_are_pinned_to_the_named_cores_and_the_measurement_says_so(artifact: Artifact) -> None:
    core = max(os.sched_getaffinity(0))
    (found,) = measure([subject_of(artifact)], TEXTS, device=HOST, runs=4, processes=2, warmup=QUICK, cpus=str(core))
    assert found.fingerprint["cpus"] == str(core)
    assert summary(found).cpus == str(core)
    (free,) = measure([subject_of(artifact)], TEXTS, device=HOST, runs=4, processes=2, warmup=QUICK)
    assert "cpus" not in free.fingerprint
    with pytest.raises(UsageError, match="cpus None instead of"):
        check_comparable(found, free)


def test_a_process_seen_outside_its_cores_is_invalid(artifact: Artifact, monkeypatch) -> None:
    original = module.run_job

    def elsewhere(target, job, *, time_limit_s):
        assert job.cpus == (min(os.sched_getaffinity(0)),)
        return original(target, job, time_limit_s=time_limit_s).model_copy(update={"cores": (1000,)})

    monkeypatch.setattr(module, "run_job", elsewhere)
    core = str(min(os.sched_getaffinity(0)))
    (found,) = measure([subject_of(artifact)], TEXTS, device=HOST, runs=2, processes=1, warmup=QUICK, cpus=core)
    assert f"process 1 ran on core 1000, though it was pinned to {core}" in str(found.invalid_reason)


def measured_while(readings: list[Conditions], artifact: Artifact, monkeypatch) -> Measurement:
    """Measures two processes on a device that tells these readings: before, before each process, after."""

    class Told(LocalTarget):
        def conditions(self) -> Conditions:
            return readings.pop(0)

    monkeypatch.setattr(module, "target_for", Told)
    monkeypatch.setattr(cooldown, "POLL_S", 0.0)
    device = parse_device("host@ssh:board")
    (found,) = measure([subject_of(artifact)], TEXTS, device=device, runs=2, processes=2, warmup=QUICK)
    assert not readings
    return found


def reading(**values) -> Conditions:
    return Conditions(**{"clock_s": 0.0, "cores": 4, **values})


def test_a_device_that_throttled_is_invalid_however_cool_it_is_before_the_next_process(
    artifact: Artifact, monkeypatch
) -> None:
    hot = reading(thermal_status=3, temperatures_c={"cpu": 90.0})
    cool = reading(thermal_status=0, temperatures_c={"cpu": 40.0})
    found = measured_while([cool, cool, hot, cool, cool], artifact, monkeypatch)
    assert "thermal status 3" in str(found.invalid_reason)
    assert found.conditions_after["hottest_c_during"] == 90.0
    assert measured_while([cool] * 4, artifact, monkeypatch).invalid_reason is None


@pytest.mark.parametrize(("cpus", "threads"), [("bigg", 1), ("4000", 1), ("0-0", 2)])
def test_cores_that_are_not_there_are_refused_before_anything_runs(
    artifact: Artifact, monkeypatch, cpus, threads
) -> None:
    monkeypatch.setattr(module, "run_job", lambda *_, **__: pytest.fail("it ran"))
    with pytest.raises(UsageError, match="cpus"):
        measure([subject_of(artifact)], TEXTS, device=HOST, runs=2, processes=1, threads=threads, cpus=cpus)
