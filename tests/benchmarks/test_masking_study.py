from benchmarks.studies.masking import study
from tests.compressor.pretrain.tiny import maskable, patterned


def test_both_ways_are_measured_on_the_same_held_out_texts(tmp_path):
    texts = [f"{text} {number}" for number, text in enumerate(patterned(train=40).train.texts)]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    found = study(maskable(tmp_path / "model"), tmp_path / "texts.txt", epochs=2, lr=1e-3, seeds=2, texts=30)
    assert (found["texts"], found["held_out_texts"]) == (27, 3)
    for masking in ("dynamic", "static"):
        assert len(found[masking]["runs"]) == 2
        values = [run["masked_accuracy"] for run in found[masking]["runs"]]
        assert found[masking]["masked_accuracy"]["mean"] == sum(values) / 2
        assert found[masking]["runs"][0]["tokens"] == found["before"][0]["tokens"]
    assert found["dynamic"]["runs"] != found["static"]["runs"]
