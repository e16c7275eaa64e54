"""P28: transformers 5 has neither prune_heads nor head masks nor transformers.onnx, so none of them may be used."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GONE = {"prune_heads", "_prune_heads", "head_mask", "find_pruneable_heads_and_indices", "prune_linear_layer"}


def names(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
            yield str(node.module)


@pytest.mark.parametrize("package", ["compressor", "export"])
def test_nothing_that_upstream_removed_is_used(package):
    used = {
        (str(path.relative_to(ROOT)), name)
        for path in (ROOT / package).rglob("*.py")
        for name in names(ast.parse(path.read_text(encoding="utf-8")))
        if name in GONE or name.startswith(("transformers.onnx", "transformers.pytorch_utils"))
    }
    assert used == set()


def test_a_head_that_is_cut_out_is_a_head_that_says_nothing(checkpoint_of):
    """What a head mask did: the pruned model computes what the whole one does with that head's output at zero."""
    import torch

    from compressor.families import adapter_for
    from compressor.models import load_compressed
    from compressor.prune.surgery import keep_heads
    from tests.shrunk import logits_of

    source = checkpoint_of("deberta-v2")
    masked, pruned = load_compressed(source), load_compressed(source)
    adapter = adapter_for(masked.config)
    silent = masked.get_submodule(f"{adapter.layers}.1.{adapter.layer.attention_output}")
    with torch.no_grad():
        silent.weight[:, 16:24] = 0
    keep_heads(adapter, adapter.encoder_layers(pruned)[1], [0, 1, 3], head_size=8)
    assert not torch.equal(logits_of(load_compressed(source), source), logits_of(masked, source))
    torch.testing.assert_close(logits_of(pruned, source), logits_of(masked, source), atol=1e-5, rtol=1e-5)
