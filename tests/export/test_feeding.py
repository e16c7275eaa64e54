import numpy as np
import pytest

from compressor.core.errors import UsageError
from compressor.text import ATTENTION_MASK, INPUT_IDS, TOKEN_TYPE_IDS
from export.feeding import feed

IDS = np.array([[5, 6, 7]])
BATCH = {INPUT_IDS: IDS, ATTENTION_MASK: np.ones_like(IDS)}


def test_types_are_the_file_s_and_missing_token_types_are_zeros():
    fed = feed(BATCH, {INPUT_IDS: "int32", ATTENTION_MASK: "int64", TOKEN_TYPE_IDS: "int32"})
    assert {name: str(array.dtype) for name, array in fed.items()} == {
        INPUT_IDS: "int32", ATTENTION_MASK: "int64", TOKEN_TYPE_IDS: "int32",
    }  # fmt: skip
    assert fed[TOKEN_TYPE_IDS].tolist() == [[0, 0, 0]]


def test_what_is_not_taken_is_left_out():
    assert set(feed({**BATCH, TOKEN_TYPE_IDS: IDS, "position_ids": IDS}, {INPUT_IDS: "int32"})) == {INPUT_IDS}


@pytest.mark.parametrize(("batch", "dtypes", "message"), [
    ({**BATCH, INPUT_IDS: IDS.astype(np.float32)}, {INPUT_IDS: "int32"}, "'input_ids' holds float32; expected whole"),
    ({**BATCH, INPUT_IDS: IDS + 2**40}, {INPUT_IDS: "int32"}, "do not fit int32"),
    ({INPUT_IDS: IDS}, {INPUT_IDS: "int32", ATTENTION_MASK: "int32"}, "holds no 'attention_mask'"),
    ({ATTENTION_MASK: IDS}, {TOKEN_TYPE_IDS: "int32"}, "holds no 'token_type_ids'"),
    (BATCH, {"pixels": "int32"}, "takes 'pixels'"),
])  # fmt: skip
def test_what_cannot_be_fed_is_refused(batch, dtypes, message):
    with pytest.raises(UsageError, match=message):
        feed(batch, dtypes)
