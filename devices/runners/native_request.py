"""What the native runner is given: sentences already tokenised here, since the device has no tokenizer.

One line a thing: a word that says what it is, then its value. Names go to the end of their line, numbers are parted by
spaces; ``devices/runners/native/main.c`` reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compressor.core.errors import ArtifactError
from devices.runners import python_runner

if TYPE_CHECKING:
    from devices.runner import Job

_BYTES = {"int32": 4, "int64": 8}


def request_text(
    job: Job, *, label: str | None = None, logits: bool = False, as_written: bool = False
) -> tuple[str, tuple[int, ...]]:
    """Tokenises a job's sentences and writes the native runner's request.

    Args:
        job: with this machine's path of the tokenizer.
        label: name and version of the runtime, where its library does not tell.
        logits: ask for every sentence's outputs too.
        as_written: run an ONNX graph without the runtime's own rewriting, to compare processors operator by operator.

    Returns:
        The text, and the indices of the sentences that were cut to the most tokens the model takes.

    Raises:
        ArtifactError: a name with a line break in it.
    """
    plain = job.model_dump(mode="json")
    encodings = python_runner.untimed_encodings(plain)
    names = [entry.key or "" for entry in job.signatures]
    names += [feed.name for entry in job.signatures for feed in entry.inputs.values()]
    if any("\n" in name for name in names):
        raise ArtifactError("an input's or signature's name holds a line break", remedy="convert the model again")
    warm = job.warmup
    lines = [
        "version 1",
        f"threads {job.threads}",
        f"pad {job.pad_id}",
        f"logits {int(logits)}",
        f"as_written {int(as_written)}",
        f"warmup {warm.min_runs} {warm.max_runs} {warm.max_seconds * 1e3:.3f} {warm.tolerance:.6f}",
    ]
    if label:
        lines.append(f"label {label}")
    if job.cpus:
        lines.append(f"cpus {','.join(map(str, job.cpus))}")
    lines.append(f"entries {len(job.signatures)}")
    for entry in job.signatures:
        lines.append(f"entry {entry.key or '-'}")
        lines += [
            f"input {python_runner.CANONICAL.index(role)} {_BYTES[feed.dtype]} {feed.name}"
            for role, feed in entry.inputs.items()
        ]
    place = {index: number for number, index in enumerate(encodings)}
    lines.append(f"sentences {len(encodings)}")
    for encoding in encodings.values():
        length = python_runner.length_of(len(encoding.ids), plain)
        entry_number = plain["signatures"].index(python_runner.entry_of(plain["signatures"], length))
        lines.append(f"sentence {entry_number} {length} {len(encoding.ids)}")
        lines.append(f"ids {' '.join(map(str, encoding.ids))}")
        lines.append(f"types {' '.join(map(str, encoding.type_ids))}")
    lines.append(f"order {len(job.order)} {' '.join(str(place[index]) for index in job.order)}")
    cut = tuple(index for index, encoding in encodings.items() if encoding.overflowing)
    return "\n".join(lines) + "\n", cut
