"""Long histories: what a commit shares with its base, and the compressed form."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.format.metadata.segments import (
    LARGE_SEGMENT,
    SMALL_SEGMENT,
    gzip_member,
    pack,
)
from frazil.format.metadata.snapshots import SnapshotList, parse_snapshot, parse_snapshots
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.format.metadata.table_metadata_json import (
    encode_gzip,
    encode_table_metadata,
    parse_table_metadata,
)
from tests.support.tables import (
    NOW_MS,
    apply,
    commit,
    document,
    history,
    log_ids,
    parse,
    snapshot,
    table,
    update,
)

LONG = 10_000


def long_history(length: int) -> TableMetadata:
    """Return a table as another writer stores it: one document with all its snapshots."""
    value = document(table()) | {
        "last-sequence-number": length,
        "last-updated-ms": NOW_MS + length,
        "current-snapshot-id": length,
        "snapshots": [snapshot(i, i - 1 or None) for i in range(1, length + 1)],
        "snapshot-log": [
            {"timestamp-ms": NOW_MS + i, "snapshot-id": i} for i in range(1, length + 1)
        ],
    }
    return parse(value)


@pytest.fixture(scope="module")
def ten_thousand() -> TableMetadata:
    return long_history(LONG)


class TestSharing:
    def test_a_commit_shares_all_full_segments(self, ten_thousand: TableMetadata) -> None:
        after = commit(ten_thousand, snapshot(LONG + 1, LONG))
        for before_list, after_list in (
            (ten_thousand.snapshots, after.snapshots),
            (ten_thousand.snapshot_log, after.snapshot_log),
        ):
            before, now = before_list.segments, after_list.segments
            assert len(now) >= len(before) > LONG // LARGE_SEGMENT
            assert all(a is b for a, b in zip(before[:-1], now, strict=False))
            assert all(len(segment) <= SMALL_SEGMENT for segment in now[LONG // LARGE_SEGMENT :])
        assert len(after.snapshots) == LONG + 1
        assert len(ten_thousand.snapshots) == LONG

    def test_chunks_are_the_segments_own_bytes(self, ten_thousand: TableMetadata) -> None:
        after = commit(ten_thousand, snapshot(LONG + 1, LONG))
        shared = {id(segment.json) for segment in ten_thousand.snapshots.segments[:-1]}
        written = {id(chunk) for chunk in encode_table_metadata(after)}
        assert shared <= written

    def test_compressed_segments_are_kept(self, ten_thousand: TableMetadata) -> None:
        first = encode_gzip(ten_thousand)
        after = commit(ten_thousand, snapshot(LONG + 1, LONG))
        second = encode_gzip(after)
        kept = {id(chunk) for chunk in first} & {id(chunk) for chunk in second}
        assert len(kept) >= 2 * (LONG // LARGE_SEGMENT)

    def test_snapshots_are_found_by_id(self, ten_thousand: TableMetadata) -> None:
        for snapshot_id in (1, 255, 256, 257, 5_000, LONG - 1, LONG):
            found = ten_thousand.snapshot(snapshot_id)
            assert found is not None
            assert found.snapshot_id == snapshot_id
            assert json.loads(found.raw) == snapshot(snapshot_id, snapshot_id - 1 or None)
        assert ten_thousand.snapshot(0) is None
        assert ten_thousand.snapshot(LONG + 1) is None
        assert ten_thousand.is_ancestor(1, LONG)

    def test_expiry_makes_only_the_touched_segments_anew(self, ten_thousand: TableMetadata) -> None:
        gone = list(range(1, 1_001))
        after = apply(ten_thousand, update("remove-snapshots", snapshot_ids=gone))
        assert len(after.snapshots) == LONG - 1_000
        assert log_ids(after)[0] == 1_001
        untouched = ten_thousand.snapshots.segments[1_000 // LARGE_SEGMENT + 1 :]
        assert all(a is b for a, b in zip(untouched, after.snapshots.segments[1:], strict=True))
        untouched_log = ten_thousand.snapshot_log.segments[1_000 // LARGE_SEGMENT + 1 :]
        pairs = zip(untouched_log, after.snapshot_log.segments[1:], strict=True)
        assert all(a is b for a, b in pairs)

    def test_a_round_trip_of_the_whole(self, ten_thousand: TableMetadata) -> None:
        data = b"".join(encode_table_metadata(ten_thousand))
        assert parse_table_metadata(data) == ten_thousand
        assert gzip.decompress(b"".join(encode_gzip(ten_thousand))) == data

    def test_small_segments_become_large_ones(self) -> None:
        items = [snapshot(i) for i in range(1, 2 * LARGE_SEGMENT + 2)]
        snapshots = SnapshotList()
        for item in items:
            snapshots = snapshots.append(parse_snapshot(json.dumps(item).encode()))
        sizes = [len(segment) for segment in snapshots.segments]
        assert sizes == [LARGE_SEGMENT, LARGE_SEGMENT, 1]
        assert [found.snapshot_id for found in snapshots] == list(range(1, len(items) + 1))
        assert json.loads(b"[" + b"".join(snapshots.chunks()) + b"]") == items


@st.composite
def edits(draw: st.DrawFn) -> list[tuple[str, Any]]:
    kinds = st.one_of(
        st.tuples(st.just("append"), st.integers(1, 40)),
        st.tuples(st.just("remove"), st.sets(st.integers(1, 120), max_size=60)),
        st.tuples(st.just("drop"), st.integers(0, 50)),
        st.tuples(st.just("reload"), st.none()),
    )
    return draw(st.lists(kinds, max_size=8))


class TestLists:
    @given(edits())
    def test_a_segmented_list_is_a_list(self, steps: list[tuple[str, Any]]) -> None:
        """After any operations it has the same elements as a plain list."""
        snapshots, model, next_id = SnapshotList(), list[dict[str, Any]](), 1
        for kind, argument in steps:
            if kind == "append":
                for _ in range(argument):
                    item = snapshot(next_id)
                    snapshots = snapshots.append(parse_snapshot(json.dumps(item).encode()))
                    model.append(item)
                    next_id += 1
            elif kind == "remove":
                snapshots = snapshots.without(argument)
                model = [item for item in model if item["snapshot-id"] not in argument]
            elif kind == "drop":
                snapshots = snapshots.drop_first(argument)
                model = model[argument:]
            else:
                array = b"[" + b"".join(snapshots.chunks()) + b"]"
                again = parse_snapshots(array)
                assert again == snapshots
                snapshots = again
        assert [json.loads(found.raw) for found in snapshots] == model
        assert len(snapshots) == len(model)
        assert json.loads(b"[" + b"".join(snapshots.chunks()) + b"]") == model
        assert snapshots.ids() == {item["snapshot-id"] for item in model}
        for position, item in enumerate(model):
            assert snapshots[position].snapshot_id == item["snapshot-id"]
            assert item["snapshot-id"] in snapshots
        inflated = zlib.decompress(b"".join(gzip_member(snapshots.packed())), 31)
        assert inflated == b"".join(snapshots.chunks())

    def test_positions(self) -> None:
        snapshots = history(40).snapshots
        assert snapshots[-1].snapshot_id == 40
        assert snapshots[17].snapshot_id == 18
        for position in (40, -41):
            with pytest.raises(IndexError):
                _ = snapshots[position]

    def test_removing_what_is_not_there_gives_the_same_list(self) -> None:
        snapshots = history(3).snapshots
        assert snapshots.without([9]) is snapshots
        assert snapshots.drop_first(0) is snapshots


class TestGzipMember:
    @given(st.lists(st.binary(max_size=400), max_size=6))
    def test_pieces_make_one_member(self, pieces: list[bytes]) -> None:
        member = b"".join(gzip_member([pack(piece) for piece in pieces]))
        assert gzip.decompress(member) == b"".join(pieces)
        # A reader that stops after the first gzip member gets the whole document.
        inflater = zlib.decompressobj(31)
        plain = b"".join(inflater.decompress(member[i : i + 7]) for i in range(0, len(member), 7))
        assert plain == b"".join(pieces)
        assert inflater.eof
        assert inflater.unused_data == b""

    @pytest.mark.parametrize("length", [0, 1, 40, 300])
    def test_metadata(self, length: int) -> None:
        metadata = history(length)
        member = b"".join(encode_gzip(metadata))
        plain = b"".join(encode_table_metadata(metadata))
        assert gzip.decompress(member) == plain
        inflater = zlib.decompressobj(31)
        assert inflater.decompress(member) == plain
        assert (inflater.eof, inflater.unused_data) == (True, b"")
        shorter = apply(metadata, update("remove-snapshots", snapshot_ids=[1]))
        again = gzip.decompress(b"".join(encode_gzip(shorter)))
        assert again == b"".join(encode_table_metadata(shorter))
