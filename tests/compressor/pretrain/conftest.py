from collections.abc import Callable

import pytest

from compressor.core.checkpoint import Checkpoint
from tests.compressor.pretrain.tiny import maskable


@pytest.fixture(scope="session")
def maskable_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Checkpoint]:
    """Returns a tiny model with a mask token, made on first use."""
    made: dict[tuple[str, str], Checkpoint] = {}

    def make(family: str = "bert", form: str = "classifier") -> Checkpoint:
        if (family, form) not in made:
            made[family, form] = maskable(tmp_path_factory.mktemp(f"{family}-{form}"), family=family, form=form)
        return made[family, form]

    return make
