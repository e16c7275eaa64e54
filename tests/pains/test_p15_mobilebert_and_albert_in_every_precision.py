"""P15: the two architectures that another project switched off in every precision and format, from folder to artifact.

Every other family is converted and reduced in ``tests/export/{onnx,tflite,tensorrt}``; ``make matrix`` does all of it
at real size. Nothing is switched off: a cell that cannot be made would stand here as an expected failure, with why.
"""

import itertools

import pytest

from compressor.quantize.plan import QuantizationPlan
from export.backend import backend_for
from export.build import export_artifacts
from export.cache import ConversionCache
from export.source import ExportRequest
from tests.models import SENTENCES

ARCHITECTURES = ("mobilebert", "albert")
CELLS = {"onnx": ("fp16", "int8"), "tflite": ("int8",), "tensorrt": ("fp16",)}
"""Each is made from the FP32 file, which is proven on the way; the NPU's families are in ``tests/export/qnn``."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return ConversionCache(tmp_path_factory.mktemp("conversions"))


@pytest.mark.parametrize(
    ("family", "kind", "precision"),
    [cell for kind, precisions in CELLS.items() for cell in itertools.product(ARCHITECTURES, (kind,), precisions)],
)
def test_it_converts_and_is_what_was_asked_for(family, kind, precision, checkpoint_of, cache, tmp_path):
    request = ExportRequest(
        formats=(kind,), precisions=(precision,), lengths=(16,), parity_texts=SENTENCES, parity_source="sentences",
        calibration_texts=SENTENCES, plan=QuantizationPlan.uniform(precision), name=family,
    )  # fmt: skip
    (made,) = export_artifacts(checkpoint_of(family), request, tmp_path, cache=cache).artifacts
    assert made.manifest.precision == precision
    assert backend_for(kind).inspect(made.model_path).precision == precision
