"""Adaptive rounding: on the grid, one step away at most, never worse for what it was chosen on."""

import pytest
import torch

from compressor.models import load_compressed
from compressor.quantize.inputs import linear_modules, quantize_rows
from compressor.quantize.rounding import adaptive, round_adaptively
from tests.models import keyword_split, tiny_checkpoint


@pytest.fixture
def problem():
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(150, 150, generator=generator)
    inputs = torch.randn(600, 150, generator=generator) @ mixing
    return torch.randn(20, 150, generator=generator), inputs


@pytest.mark.parametrize("levels", [127, 63, 7])
def test_outputs_change_less_than_by_rounding_each_weight(problem, levels):
    weight, inputs = problem
    units, step = quantize_rows(weight, levels)
    nearest = units.round() * step
    found = adaptive(weight, inputs.T @ inputs, levels=levels)
    errors = [float((inputs @ (weight - other).T).norm()) for other in (nearest, found)]
    assert errors[1] < 0.75 * errors[0]
    assert ((found - weight).abs() < step).all()


def test_the_result_is_on_the_grid_that_formats_find(problem):
    weight, inputs = problem
    found = adaptive(weight, inputs.T @ inputs, levels=127)
    units, step = quantize_rows(found, 127)
    torch.testing.assert_close(step, quantize_rows(weight, 127)[1])
    assert (units - units.round()).abs().max() < 1e-3
    torch.testing.assert_close(adaptive(found, inputs.T @ inputs, levels=127), found)


@pytest.mark.parametrize("levels", [127, 63])
def test_the_largest_weight_of_every_row_stays(levels):
    """In float32 it is not exactly ``levels`` steps, and one of 128 would move the grid of its whole row."""
    generator = torch.Generator().manual_seed(2)
    weight = torch.randn(2000, 64, generator=generator)
    inputs = torch.randn(500, 64, generator=generator) @ torch.randn(64, 64, generator=generator)
    units, step = quantize_rows(weight, levels)
    assert (units.abs().amax(dim=1) != levels).any(), "a case that divides exactly proves nothing"
    found = adaptive(weight, inputs.T @ inputs, levels=levels)
    assert torch.equal((found / step).round().abs().amax(dim=1), torch.full((2000,), float(levels)))
    again = quantize_rows(found, levels)[0]
    assert (again - again.round()).abs().max() < 1e-3


def test_uncorrelated_inputs_leave_nothing_to_gain():
    weight = torch.randn(5, 12, generator=torch.Generator().manual_seed(1))
    units, step = quantize_rows(weight, 127)
    torch.testing.assert_close(adaptive(weight, torch.eye(12), levels=127), units.round() * step)


def batches_of(checkpoint, count=48):
    from compressor.data.batches import encode_split

    data = encode_split(checkpoint, keyword_split(count, seed=3), max_tokens=32)
    return [data.inputs(range(start, start + 8)) for start in range(0, count, 8)]


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_modules_keep_what_helps_on_text_held_out(tmp_path, family):
    checkpoint = tiny_checkpoint(family, tmp_path)
    model, before = load_compressed(checkpoint.path), load_compressed(checkpoint.path)
    paths = [path for path in linear_modules(model) if path != "classifier"]
    found = round_adaptively(model, paths, batches_of(checkpoint), levels=7)
    assert [item.module for item in found] == paths
    assert all(item.kept == (item.adaptive_error < item.nearest_error) for item in found)
    assert sum(item.kept for item in found) > len(found) / 2
    for path, module in linear_modules(model).items():
        same = torch.equal(module.weight, before.get_submodule(path).weight)
        assert same == (path == "classifier" or not next(item for item in found if item.module == path).kept)
