"""The verbs of the command line as Python functions; ``import compressor`` gives the same names."""

from compressor.app.bundling import bundle
from compressor.app.convert import convert
from compressor.app.inspection import inspect
from compressor.app.judge import compare, evaluate, predict
from compressor.app.latency import bench, gate
from compressor.app.planning import plan
from compressor.app.runs import run
from compressor.models import load_compressed

__all__ = [
    "bench",
    "bundle",
    "compare",
    "convert",
    "evaluate",
    "gate",
    "inspect",
    "load_compressed",
    "plan",
    "predict",
    "run",
]
