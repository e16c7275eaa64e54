"""The verbs of the command line as Python functions; ``import compressor`` gives the same names."""

from compressor.app import bundling, inspection, judge, latency, planning, runs
from compressor.app import convert as conversion
from compressor.app.calls import checked
from compressor.models import load_compressed

bench = checked(latency.bench)
bundle = checked(bundling.bundle)
compare = checked(judge.compare)
convert = checked(conversion.convert)
evaluate = checked(judge.evaluate)
gate = checked(latency.gate)
inspect = checked(inspection.inspect)
plan = checked(planning.plan)
predict = checked(judge.predict)
run = checked(runs.run)

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
