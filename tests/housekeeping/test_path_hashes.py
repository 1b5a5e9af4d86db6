"""A set of hashes acts like a set."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from frazil.housekeeping.path_hashes import HashSet, path_hashes
from frazil.values.path_keys import PathKeys


def test_spellings_of_a_path_have_one_hash() -> None:
    keys = PathKeys(decode=True)
    one, other, third = path_hashes(keys, ["s3://b/t/a%20b", "s3a://b//t/a b", "s3://b/t/ab"])
    assert one == other != third


@given(st.lists(st.lists(st.integers(0, 40), max_size=30), max_size=8))
def test_a_set_of_hashes_is_a_set(batches: list[list[int]]) -> None:
    hashes, model = HashSet(), set[int]()
    for batch in batches:
        is_new = hashes.add(np.array(batch, np.int64)).tolist()
        expected = [key not in model and key not in batch[:at] for at, key in enumerate(batch)]
        assert is_new == expected
        model.update(batch)
        asked = np.arange(41, dtype=np.int64)
        assert hashes.has(asked).tolist() == [key in model for key in range(41)]
        assert len(hashes) == len(model)
