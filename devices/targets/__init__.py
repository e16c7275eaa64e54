"""Ways to reach a device: put files there, run a command within a time limit, bring results back."""

from devices.targets.target import Completed, Target, target_for

__all__ = ["Completed", "Target", "target_for"]
