"""The training loop: bucketed batches, clipping, a stop at the first non-finite loss, resume to the same curve.

A step's batch is the same whatever the number of processes and of parts it is run in (``accumulate``): each takes its
share, losses and gradients are weighted by how much of each loss's mean the share holds, and so the curve stays the
same, but for rounding and for dropout, which every process draws by itself.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.utils import DataLoaderConfiguration

from compressor.core.errors import DataError, StageError
from compressor.data.batches import EncodedSplit, shuffled_batches
from compressor.processes import on_cpu, training_device
from compressor.stage import Progress, silent
from compressor.train.objective import Objective
from compressor.train.optimizer import make_optimizer, make_schedule
from compressor.train.runtime import computes_bf16
from compressor.train.settings import TrainSettings
from compressor.train.state import Curves, load_state, save_last_good, save_state

logger = logging.getLogger(__name__)


def train(
    objective: Objective,
    data: EncodedSplit,
    settings: TrainSettings,
    *,
    seed: int,
    scratch: Path,
    progress: Progress = silent,
    before_step: Callable[[int, int], None] | None = None,
) -> Curves:
    """Minimises an objective over a split, in place, and returns the loss curves.

    With the same seed, threads and machine a run repeats exactly; one that was killed goes on from its last checkpoint
    in ``scratch`` and gives the curve of an unbroken run. Call it inside :func:`compressor.train.runtime.reproducible`,
    in every process of the run.

    Args:
        objective: owns the model; left on the CPU in evaluation mode.
        data: the training split.
        settings: epochs, rate, batch size and so on.
        seed: fixes the order of batches; dropout follows torch's own stream.
        scratch: folder for checkpoints within training; the same one in every process.
        progress: told after every step.
        before_step: called with the step, from 0, and the number of all steps: for what changes in training by plan.
            What it changes has to be in the objective's state, or follow from the step, for a run to resume.

    Raises:
        StageError: a loss or the gradient is not finite; the weights of the step before are kept in ``scratch``, and a
            second run goes on from the checkpoint before it, as if the failed step had never been tried.
    """
    training_device()  # connects the processes, with their patience
    accelerator = Accelerator(
        cpu=on_cpu(),
        mixed_precision="no",  # settings.bf16 is the only say
        # The whole batch is split over the processes: the schedule takes one step for it, not one a process.
        dataloader_config=DataLoaderConfiguration(split_batches=True),
        # A loss on one layer leaves others without gradients.
        kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)],
    )
    bf16 = settings.bf16 and computes_bf16(accelerator.device)
    if bf16 != settings.bf16:
        logger.warning("this processor does not compute in bfloat16: training in float32")
    progress = progress if accelerator.is_main_process else silent
    total = settings.total_steps(len(data))
    objective.to(accelerator.device)
    optimizer = make_optimizer(objective, settings)
    prepared, optimizer, schedule = accelerator.prepare(objective, optimizer, make_schedule(optimizer, settings, total))
    if accelerator.num_processes > 1:
        torch.manual_seed(seed + accelerator.process_index)  # each process draws dropout of its own
    done, curves = load_state(accelerator, scratch)
    objective.train()
    for step, indices in planned_batches(data, settings, seed, start=done):
        objective.progress = step / total
        objective.epoch = step // settings.steps_per_epoch(len(data))
        if before_step is not None:
            before_step(step, total)
        values = _accumulate(accelerator, prepared, objective, data, indices, parts=settings.accumulate, bf16=bf16)
        broken = _not_finite(values)
        if broken is None:
            norm = accelerator.clip_grad_norm_(objective.parameters(), settings.max_grad_norm)
            broken = None if math.isfinite(float(norm)) else "gradient"
        if broken is not None:
            batch = {"step": step + 1, "sentences": indices, "losses": values}
            kept = save_last_good(accelerator, objective, scratch, batch)
            shown = ", ".join(map(str, indices[:8])) + (", …" if len(indices) > 8 else "")
            raise StageError(
                f"the {broken} is not finite at step {step + 1} of {total}, in the batch of training sentences {shown} "
                f"(counted from 0); the last good weights are in {kept}, with the whole batch in batch.json",
                remedy="look at those sentences; lower lr, raise warmup_ratio, or set bf16: false",
            )
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        for name in (*objective.weights, "total"):
            curves.setdefault(name, []).append(values.get(name))
        if (step + 1) % settings.checkpoint_steps == 0 and step + 1 < total:
            save_state(accelerator, scratch, step=step + 1, curves=curves)
        progress(step + 1, total, f"loss {values['total']:.3f}")
    objective.to("cpu").eval()
    return curves


def _accumulate(
    accelerator: Accelerator,
    prepared: Any,
    objective: Objective,
    data: EncodedSplit,
    indices: Sequence[int],
    *,
    parts: int,
    bf16: bool,
) -> dict[str, float]:
    """Adds up the gradients of one batch, in every process its share, and returns the losses of the whole batch."""
    # Every second (third, …) sentence of a batch sorted by length, so that no process has the longest ones.
    mine = list(indices[accelerator.process_index :: accelerator.num_processes])
    count = min(parts, math.ceil(len(indices) / accelerator.num_processes))
    sums: dict[str, torch.Tensor] = {}
    for number in range(count):
        part = mine[number * len(mine) // count : (number + 1) * len(mine) // count]
        # A process without a sentence still takes part in the sum of gradients, with a weight of 0.
        run = part or list(indices[:1])
        labels = torch.tensor([data.labels[index] for index in run], device=accelerator.device)
        with accelerator.no_sync(prepared) if number + 1 < count else nullcontext():
            with torch.autocast(accelerator.device.type, dtype=torch.bfloat16, enabled=bf16):
                losses = prepared(data.inputs(run, accelerator.device), labels, run)
                share = _shares(objective, data, part, indices)
                shares = {name: loss * share[name] for name, loss in losses.items()}
                loss = objective.total(shares) * accelerator.num_processes  # gradients are averaged, not summed
            accelerator.backward(loss)
        for name, value in shares.items():
            sums[name] = sums[name] + value.detach() if name in sums else value.detach()
    found = accelerator.reduce(torch.stack([*sums.values()]).float(), reduction="sum")
    together = dict(zip(sums, found, strict=True))
    return {name: value.item() for name, value in together.items()} | {"total": objective.total(together).item()}


def _shares(objective: Objective, data: EncodedSplit, part: Sequence[int], whole: Sequence[int]) -> Mapping[str, float]:
    """Returns how much of each loss of a batch, a mean, is that of a part of its sentences."""
    if not part or len(part) == len(whole):
        return dict.fromkeys(objective.weights, float(bool(part)))
    ours, all_of_it = (objective.units(rows, [data.lengths[row] for row in rows]) for rows in (part, whole))
    return {name: units / all_of_it[name] if all_of_it[name] else 0.0 for name, units in ours.items()}


def planned_batches(
    data: EncodedSplit, settings: TrainSettings, seed: int, *, start: int = 0
) -> Iterator[tuple[int, list[int]]]:
    """Yields (step, positions in ``data``) of every step from ``start`` on: what a run will visit, in order.

    Raises:
        DataError: an empty split.
    """
    if not len(data):
        raise DataError("there is nothing to train on: the training split is empty", remedy="give it labelled rows")
    step, epoch, total = 0, 0, settings.total_steps(len(data))
    while step < total:
        for indices in shuffled_batches(data.lengths, settings.batch_size, seed=seed, epoch=epoch):
            if start <= step < total:
                yield step, indices
            step += 1
        epoch += 1


def _not_finite(values: Mapping[str, float]) -> str | None:
    """Returns the name of the first loss that is NaN or infinite."""
    return next((f"loss '{name}'" for name, value in values.items() if not math.isfinite(value)), None)


def visited(data: EncodedSplit, settings: TrainSettings, seed: int) -> np.ndarray:
    """Returns the positions in ``data``, ascending, that a run will visit: all, unless it is shorter than an epoch."""
    if settings.epochs >= 1:
        return np.arange(len(data))
    seen = np.zeros(len(data), dtype=bool)
    for _, indices in planned_batches(data, settings, seed):
        seen[indices] = True
    return np.flatnonzero(seen)
