from pathlib import Path

import pytest

from compressor.app.convert import convert
from compressor.core.artifact import Artifact
from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import CompressorError, UsageError
from compressor.core.folders import write_json
from compressor.quantize.plan import QuantizationPlan, Rule
from tests.models import SENTENCES, keyword_split


@pytest.fixture
def labelled(tmp_path: Path, trained: Checkpoint) -> Path:
    split = keyword_split(40, seed=2)
    rows = [f"{text}\t{trained.labels[label]}" for text, label in zip(split.texts, split.labels, strict=True)]
    file = tmp_path / "eval.tsv"
    file.write_text("\n".join(("text\tlabel", *rows)) + "\n")
    return file


@pytest.fixture
def sentences(tmp_path: Path) -> Path:
    file = tmp_path / "sentences.txt"
    file.write_text("\n".join(filter(None, SENTENCES)) + "\n")
    return file


@pytest.mark.parametrize(
    ("options", "found", "remedy"),
    [
        ({"precision": "int8", "method": "static"}, "none was given", "--calibrate"),
        ({"precision": "fp16", "method": "dynamic"}, "says how INT8 is made, not fp16", "--precision int8"),
        ({"precision": "int8", "method": "mixed"}, "searches within a limit", "--max-drop-points"),
        ({"precision": "int8", "fastest": True}, "searches within a limit", "--eval"),
        ({"precision": "int8", "max_drop_points": 1.0}, "no labelled text", "--eval"),
        ({"precision": "int8", "device": "snapdragn-865"}, "unknown device", "snapdragon-865"),
    ],
)
def test_wishes_that_cannot_be_met_are_refused_before_any_work(
    tmp_path: Path, options: dict[str, object], found: str, remedy: str
) -> None:
    with pytest.raises(UsageError, match=found) as caught:
        convert("no/such/model", to="onnx", output=tmp_path / "out", **options)  # type: ignore[arg-type]
    assert remedy in caught.value.remedy
    assert not (tmp_path / "out").exists()


def test_static_int8_is_made_on_the_given_sentences(
    trained: Checkpoint, tmp_path: Path, labelled: Path, sentences: Path
) -> None:
    artifact = convert(
        trained.path, to="onnx", precision="int8", method="static", output=tmp_path / "out", lengths=(16,),
        calibrate=sentences, eval_data=labelled, max_drop_points=2.0, threads=1,
    )  # fmt: skip
    manifest = artifact.manifest
    assert (manifest.precision, manifest.method) == ("int8", "static")
    assert [attempt["rung"] for attempt in manifest.attempts] == ["onnx int8 static"]
    assert 0 <= manifest.reference["artifact_ece"] < 0.5
    assert manifest.reference["checkpoint_ece"] == pytest.approx(
        manifest.attempts[0]["expected_calibration_error"], abs=0.1
    )


def test_the_device_gives_the_first_way(trained: Checkpoint, tmp_path: Path) -> None:
    artifact = convert(
        trained.path,
        to="onnx",
        precision="int8",
        device="mobile-cpu",
        output=tmp_path / "out",
        lengths=(16,),
        threads=1,
    )
    assert artifact.manifest.method == "dynamic"


def test_calibration_in_another_language_is_refused_and_nothing_is_written(trained: Checkpoint, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.txt"
    foreign.write_text("куда пропал мой заказ\nя хочу вернуть деньги\n")
    with pytest.raises(CompressorError, match="unknown to the tokenizer"):
        convert(
            trained.path, to="onnx", precision="int8", method="static", output=tmp_path / "out", lengths=(16,),
            calibrate=foreign, threads=1,
        )  # fmt: skip
    assert not (tmp_path / "out").exists()


def test_the_plan_beside_the_weights_is_kept(trained: Checkpoint, tmp_path: Path) -> None:
    import shutil

    base = Path(shutil.copytree(trained.path, tmp_path / "base"))
    policy = (Rule(pattern="*", precision="int8"), Rule(pattern="classifier", precision="fp32"))
    write_json(base / "quantization.json", QuantizationPlan(policy=policy).model_dump(mode="json"))
    made = convert(base, to="onnx", precision="int8", output=tmp_path / "out", lengths=(16,), threads=1)
    types = Artifact.load(made.path).manifest.statistics.gemm_types
    assert types["int8"] > 1
    assert Artifact.load(made.path).manifest.rebuild["plan"]["policy"][1]["pattern"] == "classifier"
