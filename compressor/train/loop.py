"""The training loop: bucketed batches, clipping, a stop at the first non-finite loss, resume to the same curve."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from accelerate import Accelerator

from compressor.core.errors import StageError
from compressor.data.batches import EncodedSplit, shuffled_batches
from compressor.stage import Progress, silent
from compressor.train.objective import Objective
from compressor.train.optimizer import make_optimizer, make_schedule
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
    in ``scratch`` and gives the curve of an unbroken run. Call it inside :func:`compressor.train.runtime.reproducible`.

    Args:
        objective: owns the model; left on the CPU in evaluation mode.
        data: the training split.
        settings: epochs, rate, batch size and so on.
        seed: fixes the order of batches; dropout follows torch's own stream.
        scratch: folder for checkpoints within training.
        progress: told after every step.
        before_step: called with the step, from 0, and the number of all steps: for what changes in training by plan.
            What it changes has to be in the objective's state, or follow from the step, for a run to resume.

    Raises:
        StageError: a loss or the gradient is not finite; the weights of the step before are kept in ``scratch``, and a
            second run goes on from the checkpoint before it, as if the failed step had never been tried.
    """
    # CPU on purpose: Apple's and CUDA's kernels are not deterministic, and a student of this size needs neither.
    accelerator = Accelerator(cpu=True)
    total = settings.total_steps(len(data))
    optimizer = make_optimizer(objective, settings)
    prepared, optimizer, schedule = accelerator.prepare(objective, optimizer, make_schedule(optimizer, settings, total))
    done, curves = load_state(accelerator, scratch)
    objective.train()
    for step, indices in planned_batches(data, settings, seed, start=done):
        objective.progress = step / total
        objective.epoch = step // settings.steps_per_epoch(len(data))
        if before_step is not None:
            before_step(step, total)
        labels = torch.tensor([data.labels[index] for index in indices])
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=settings.bf16):
            losses: dict[str, torch.Tensor] = prepared(data.inputs(indices), labels, indices)
            loss = objective.total(losses)
        values = {name: value.item() for name, value in losses.items()} | {"total": loss.item()}
        broken = _not_finite(values)
        if broken is None:
            accelerator.backward(loss)
            norm = accelerator.clip_grad_norm_(objective.parameters(), settings.max_grad_norm)
            broken = None if math.isfinite(float(norm)) else "gradient"
        if broken is not None:
            kept = save_last_good(accelerator, objective, scratch)
            raise StageError(
                f"the {broken} is not finite at step {step + 1} of {total}; the last good weights are in {kept}",
                remedy="lower lr, raise warmup_ratio, or set bf16: false",
            )
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        for name in (*objective.weights, "total"):
            curves.setdefault(name, []).append(values.get(name))
        if (step + 1) % settings.checkpoint_steps == 0 and step + 1 < total:
            save_state(accelerator, scratch, step=step + 1, curves=curves)
        progress(step + 1, total, f"loss {values['total']:.3f}")
    objective.eval()
    return curves


def planned_batches(
    data: EncodedSplit, settings: TrainSettings, seed: int, *, start: int = 0
) -> Iterator[tuple[int, list[int]]]:
    """Yields (step, positions in ``data``) of every step from ``start`` on: what a run will visit, in order."""
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
