"""Importing this module makes every stage known to recipes; a new stage's module is added here and nowhere else."""

import compressor.app.benchmark
import compressor.distill.stage
import compressor.finetune
import compressor.pretrain.stage
import compressor.prune.sparsify
import compressor.prune.stage
import compressor.quantize.qat
import compressor.quantize.stage
import compressor.share.factorize
import compressor.share.stage
import compressor.trim.stage
import export.stage

__all__ = ["compressor", "export"]
