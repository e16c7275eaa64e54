"""What every objective of pretraining offers besides its losses."""

from __future__ import annotations

from abc import abstractmethod

from compressor.train.objective import Objective

Measured = dict[str, float]


class PretrainObjective(Objective):
    """An objective that can be measured on held-out text, and that needs no labels."""

    @abstractmethod
    def measure(self) -> Measured:
        """Returns figures on the held-out texts; the same ones whenever it is called with the same weights."""
