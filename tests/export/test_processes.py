"""Jobs side by side: results in order, errors as they were raised, nothing left running."""

import logging
import os
import time
from pathlib import Path

import pytest

from compressor.core.errors import MissingExtraError, StageError
from export.processes import Job, run_jobs


def double(value, send):
    send(f"got {value}")
    return 2 * value


def note_times(folder, send):
    started = time.time()
    time.sleep(0.5)
    return started, time.time()


def refuse(value, send):
    raise MissingExtraError("some-package", "tflite")


def wait_for_ever(file, send):
    Path(file).write_text(str(os.getpid()))
    send("waiting")
    time.sleep(600)


def refuse_when_told(file, send):
    while not Path(file).exists():
        time.sleep(0.02)
    raise StageError("enough", remedy="none")


def die(value, send):
    os.kill(os.getpid(), 9)


def warn(value, send):
    logging.getLogger("export.build").warning("%s refused", value)


def level_after_torch(name, send):
    import torch  # noqa: F401  sets the level of its own logger

    return logging.getLogger(name).getEffectiveLevel()


def job(target, argument, name="job", memory=1):
    return Job(name=name, target=target, argument=argument, memory_bytes=memory)


def ignore(name, message):
    pass


def test_results_come_in_order_and_messages_with_their_name():
    heard = []
    jobs = [job(double, 1, "one"), job(double, 2, "two")]
    assert run_jobs(jobs, workers=2, memory_bytes=10, listener=lambda *told: heard.append(told)) == [2, 4]
    assert sorted(heard) == [("one", "got 1"), ("two", "got 2")]


def test_what_does_not_fit_beside_another_waits_for_it():
    jobs = [job(note_times, None, memory=6), job(note_times, None, memory=6)]
    first, second = run_jobs(jobs, workers=2, memory_bytes=10, listener=ignore)
    assert second[0] >= first[1]


def test_an_error_arrives_as_the_class_it_was():
    with pytest.raises(MissingExtraError, match="some-package") as caught:
        run_jobs([job(refuse, None)], workers=1, memory_bytes=10, listener=ignore)
    assert caught.value.remedy == "pip install 'compressor[tflite]'"
    assert caught.value.extra == "tflite"


def is_gone(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def test_the_others_are_ended_when_one_fails(tmp_path):
    file = tmp_path / "pid"
    jobs = [job(wait_for_ever, str(file)), job(refuse_when_told, str(file))]
    with pytest.raises(StageError, match="enough"):
        run_jobs(jobs, workers=2, memory_bytes=10, listener=ignore)
    assert is_gone(int(file.read_text()))


def test_all_are_ended_when_the_parent_is_interrupted(tmp_path):
    file = tmp_path / "pid"

    def interrupt(name, message):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs([job(wait_for_ever, str(file))], workers=1, memory_bytes=10, listener=interrupt)
    assert is_gone(int(file.read_text()))


def test_a_process_that_was_killed_is_named():
    with pytest.raises(StageError, match=r"exports onnx .*-9"):
        run_jobs([job(die, None, "onnx")], workers=1, memory_bytes=10, listener=ignore)


def test_what_a_job_logs_reaches_the_parents_handlers(caplog):
    run_jobs([job(warn, "onnx int8")], workers=1, memory_bytes=10, listener=ignore)
    assert [(record.name, record.getMessage()) for record in caplog.records] == [("export.build", "onnx int8 refused")]


def test_what_the_parent_silences_stays_silent_after_torch_is_imported(monkeypatch):
    noisy = logging.getLogger("torch.utils._pytree")
    monkeypatch.setattr(noisy, "level", logging.ERROR)
    levels = run_jobs([job(level_after_torch, noisy.name)], workers=1, memory_bytes=10, listener=ignore)
    assert levels == [logging.ERROR]
