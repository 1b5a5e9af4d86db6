"""A new manifest list reuses the blocks of the previous one and reads as if written from
scratch."""

from __future__ import annotations

import io
import random
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.format.manifest import manifest_list as listing
from frazil.format.manifest.manifest_list import (
    ListedManifest,
    ManifestList,
    WrittenManifestList,
    empty_list,
    new_listed,
    read_manifest_list,
    write_manifest_list,
)
from tests.support.trees import avro_records, list_bytes, listed

BLOCK = listing._BLOCK_MANIFESTS
LATER = {1: {"content", "sequence_number", "min_sequence_number", "first_row_id"}}
LATER[2] = {"first_row_id"}
LATER[3] = set()


class History:
    """Successive manifest lists, and a model of what each must contain."""

    def __init__(self, version: int, codec: str = "deflate") -> None:
        self.version, self.codec = version, codec
        self.head: ManifestList | None = None
        self.records: list[dict[str, Any]] = []
        self.next_row_id = 100
        self.made = 0

    def new_record(self, **values: Any) -> dict[str, Any]:
        self.made += 1
        name = f"file:///t/metadata/{self.made:06}-m0.avro"
        summary = {
            "contains_null": False,
            "contains_nan": None,
            "lower_bound": self.made.to_bytes(4, "little"),
            "upper_bound": None,
        }
        record = listed(name, self.made, manifest_length=self.made * 10, partitions=[summary])
        record |= {"added_rows_count": 3, "existing_rows_count": 2, **values}
        return {key: value for key, value in record.items() if key not in LATER[self.version]}

    def commit(self, front: list[dict[str, Any]], kept: list[int]) -> WrittenManifestList:
        """Write a list with new manifests before the kept manifests of the head."""
        entries = [new_listed(self._by_id(record), self.version, self.head) for record in front]
        if self.head is not None:
            entries += [
                ListedManifest(self.head.manifests[position], self.head.schema) for position in kept
            ]
        self.records = [*front, *(self.records[position] for position in kept)]
        written = write_manifest_list(
            entries,
            like=self.head or empty_list(self.version, self.codec),
            format_version=self.version,
            snapshot_id=9,
            parent_snapshot_id=None,
            sequence_number=1,
            first_row_id=self.next_row_id if self.version > 2 else None,
            codec=self.codec,
        )
        self._assign_row_ids()
        self.head = written.parsed
        return written

    def prepend(self, **values: Any) -> WrittenManifestList:
        return self.commit([self.new_record(**values)], list(range(len(self.records))))

    def check(self, written: WrittenManifestList) -> None:
        assert avro_records(written.content) == self.records
        again = read_manifest_list(written.content)
        assert again == written.parsed
        counts = [block.num_records for block in fastavro.block_reader(io.BytesIO(written.content))]
        assert counts == [block.count for block in written.parsed.blocks]
        assert sum(counts) == len(self.records)
        # Only the first block may be small, and it is written again.
        assert all(count == BLOCK for count in counts[1:])

    def _assign_row_ids(self) -> None:
        if self.version < 3:
            return
        for number, record in enumerate(self.records):
            if record["content"] == 0 and record["first_row_id"] is None:
                self.records[number] = record | {"first_row_id": self.next_row_id}
                self.next_row_id += record["added_rows_count"] + record["existing_rows_count"]

    def _by_id(self, record: dict[str, Any]) -> dict[int, Any]:
        values = {id_: record.get(name) for id_, name in listing._NAMES.items()}
        summaries = [listing.PartitionSummary(**summary) for summary in record["partitions"]]
        return {**values, listing.PARTITIONS: summaries}


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("codec", ["deflate", "null"])
def test_a_list_that_grows_keeps_its_full_blocks(version: int, codec: str) -> None:
    history = History(version, codec)
    before: ManifestList | None = None
    for number in range(1, 3 * BLOCK + 3):
        written = history.prepend()
        blocks = written.parsed.blocks
        assert [block.count for block in blocks] == [
            (number - 1) % BLOCK + 1,
            *[BLOCK] * ((number - 1) // BLOCK),
        ]
        if before is not None:
            kept = len(blocks) - 1
            # The block is the same bytes object, not compressed again.
            assert kept == 0 or all(
                mine is theirs
                for mine, theirs in zip(blocks[-kept:], before.blocks[-kept:], strict=True)
            )
        before = written.parsed
        if number % 20 == 1:
            history.check(written)
    history.check(history.prepend())


@st.composite
def _steps(draw: st.DrawFn) -> list[tuple[int, float, int]]:
    """Draw steps of (new manifests, fraction of the others to remove, seed for which ones)."""
    step = st.tuples(
        st.sampled_from([0, 1, 1, 2, 40]),
        st.sampled_from([0, 0, 0.02, 0.5, 1]),
        st.integers(0, 1_000),
    )
    return draw(st.lists(step, min_size=1, max_size=12))


@given(_steps(), st.sampled_from([1, 2, 3]), st.booleans())
def test_any_history_of_lists_reads_as_it_was_meant(
    steps: list[tuple[int, float, int]], version: int, from_a_client: bool
) -> None:
    history = History(version)
    if from_a_client:
        # A list that was read from a file has no blocks to reuse.
        history.records = [history.new_record() for _ in range(70)]
        history.head = read_manifest_list(list_bytes(history.records, version))
    for come, part, seed in steps:
        drawn = random.Random(seed)
        front = [history.new_record() for _ in range(come)]
        if version > 1 and front and seed % 3 == 0:
            front[0]["content"] = 1
        kept = [n for n in range(len(history.records)) if drawn.random() >= part]
        history.check(history.commit(front, kept))


def test_blocks_of_another_codec_or_version_are_not_taken_over() -> None:
    history = History(2)
    for _ in range(BLOCK + 5):
        history.prepend()
    history.codec = "null"
    written = history.prepend()
    history.check(written)
    history.codec = "deflate"
    history.version = 3
    history.records = [record | {"first_row_id": None} for record in history.records]
    history.check(history.prepend())


def test_a_manifest_in_the_midst_that_goes_spares_the_blocks_behind_it() -> None:
    history = History(2)
    for _ in range(4 * BLOCK):
        before = history.prepend().parsed
    position = 2 * BLOCK + 3
    kept = [number for number in range(4 * BLOCK) if number != position]
    written = history.commit([], kept)
    history.check(written)
    assert written.parsed.blocks[-1] is before.blocks[-1]
    assert all(block not in before.blocks[:-1] for block in written.parsed.blocks[:-1])


def test_a_list_that_loses_everything_has_no_block() -> None:
    history = History(2)
    for _ in range(BLOCK + 1):
        history.prepend()
    history.check(history.commit([], []))
    history.check(history.prepend())
