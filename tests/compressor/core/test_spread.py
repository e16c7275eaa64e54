from compressor.core.spread import spread


def test_some_of_many_come_from_all_over():
    assert spread(10, 5) == [0, 2, 4, 6, 8]
    assert spread(250, 128)[-1] == 248
    assert spread(3, 8) == [0, 1, 2]
    assert spread(0, 8) == spread(8, 0) == []
