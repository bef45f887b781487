"""Which frames are held out."""

from gsslam.keyframes import is_heldout


def test_one_in_every_n_is_held_out_and_never_the_first() -> None:
    assert [i for i in range(25) if is_heldout(i, 8)] == [7, 15, 23]
    assert not any(is_heldout(i, 0) for i in range(25))
