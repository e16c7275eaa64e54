import pytest

from compressor.core.checkpoint import Checkpoint
from compressor.finetune import Finetune, FinetuneConfig
from tests.compressor.tiny_data import context, run_stage
from tests.models import tiny_checkpoint


@pytest.fixture(scope="session")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("teacher")
    base = tiny_checkpoint("bert", folder / "base", layers=4)
    config = FinetuneConfig(epochs=10, lr=2e-3, batch_size=8)
    run_stage(Finetune(config), context(folder, base), folder / "tuned")
    return Checkpoint.open(folder / "tuned")
