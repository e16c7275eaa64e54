import pytest

from compressor.core.errors import DataError
from compressor.data.dataset import Split, TextDataset

DATA = TextDataset(
    ("cancel", "refund", "track"),
    Split(("a", "b", "c"), (0, 1, 2)),
    Split(("d", "e"), (2, 0)),
    Split(("f", "g"), (1, 1)),
    sentences=("h",),
)


def named(data: TextDataset) -> dict[str, list[str]]:
    return {name: [data.label_names[label] for label in split.labels] for name, split in data.splits.items()}


def test_another_label_order_renumbers_every_split_and_changes_no_meaning() -> None:
    moved = DATA.with_label_order(("track", "cancel", "refund"))
    assert moved.label_names == ("track", "cancel", "refund")
    assert {name: split.labels for name, split in moved.splits.items()} == {
        "train": (1, 2, 0),
        "validation": (0, 1),
        "test": (2, 2),
    }
    assert named(moved) == named(DATA)
    assert [split.texts for split in moved.splits.values()] == [split.texts for split in DATA.splits.values()]
    assert moved.sentences == DATA.sentences
    assert moved.hash != DATA.hash
    assert moved.with_label_order(DATA.label_names) == DATA == DATA.with_label_order(DATA.label_names)


@pytest.mark.parametrize("names", [("cancel", "refund"), ("cancel", "refund", "lost"), ("cancel", "refund", "refund")])
def test_an_order_of_other_labels_is_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(DataError, match="cancel, refund, track"):
        DATA.with_label_order(names)
