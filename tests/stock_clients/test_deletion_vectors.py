"""Iceberg's Java library reads our Puffin files and deletion vectors, and we read Java's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import zstandard
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from frazil.values.deletion_vectors import (
    MAX_POSITION,
    DeletionVector,
    InvalidDeletionVector,
    deletion_vector_blob,
    read_deletion_vector,
)
from frazil.values.puffin import Blob, BlobMetadata, read_footer, write_puffin

ALL_KINDS = [1, 3, 70_000, *range(200_000, 300_000), *((1 << 32) + 9 * n for n in range(9_000))]
"""These positions use array and run containers and, from key 1 on, bitmap containers."""


class JavaVectors:
    """`PositionDeleteIndex` and `Puffin` of the runtime jar."""

    def __init__(self, spark: SparkSession) -> None:
        assert spark._jvm is not None
        self.jvm: Any = spark._jvm
        self.iceberg = self.jvm.org.apache.iceberg

    def read(self, data: bytes, record_count: int) -> Any:
        """Return Java's index of a blob; Java compares both sizes with its delete file."""
        builder = self.iceberg.FileMetadata.deleteFileBuilder(
            self.iceberg.PartitionSpec.unpartitioned()
        )
        builder = builder.ofPositionDeletes().withFormat("puffin").withPath("file:/dv.puffin")
        builder = builder.withReferencedDataFile("file:/data.parquet").withContentOffset(4)
        builder = builder.withContentSizeInBytes(len(data)).withFileSizeInBytes(len(data) + 100)
        file = builder.withRecordCount(record_count).build()
        return self.iceberg.deletes.PositionDeleteIndex.deserialize(data, file)

    def random_index(self, seed: int, count: int, end: int) -> Any:
        numbers = self.jvm.java.util.Random(seed).longs(count, 0, end).boxed().toList()
        nothing_to_close = self.jvm.java.io.StringReader("")
        positions = self.iceberg.io.CloseableIterable.combine(numbers, nothing_to_close)
        return self.iceberg.deletes.Deletes.toPositionIndex(positions)

    def serialized(self, index: Any) -> bytes:
        return bytes(index.serialize().array())

    def blobs(self, path: Path) -> list[tuple[Any, bytes]]:
        """Return the blobs that Java reads from a Puffin file."""
        reader = self.iceberg.puffin.Puffin.read(self.iceberg.Files.localInput(str(path))).build()
        pairs = reader.readAll(reader.fileMetadata().blobs()).iterator()
        found = []
        while pairs.hasNext():
            pair = pairs.next()
            found.append(
                (pair.first(), bytes(self.iceberg.util.ByteBuffers.toByteArray(pair.second())))
            )
        reader.close()
        return found


def blob_in(data: bytes, metadata: BlobMetadata) -> bytes:
    """Return the stored bytes of a blob of a whole file."""
    return data[metadata.offset : metadata.offset + metadata.length]


@pytest.fixture
def vectors(spark: SparkSession) -> JavaVectors:
    return JavaVectors(spark)


def test_java_reads_our_vectors_and_writes_the_same_bytes(vectors: JavaVectors) -> None:
    vector = DeletionVector.from_positions(ALL_KINDS)
    data = vector.serialize()
    index = vectors.read(data, vector.cardinality)
    assert index.cardinality() == len(ALL_KINDS)
    for position in (
        0,
        1,
        2,
        3,
        70_000,
        199_999,
        200_000,
        299_999,
        300_000,
        1 << 32,
        (1 << 32) + 1,
    ):
        assert index.isDeleted(position) == (position in vector.bitmap)
    assert vectors.serialized(index) == data


@pytest.mark.parametrize(("count", "end"), [(50, 1 << 20), (30_000, 200_000), (500, 5 << 32)])
def test_we_read_javas_vectors_and_write_the_same_bytes(
    vectors: JavaVectors, count: int, end: int
) -> None:
    index = vectors.random_index(7, count, end)
    index.delete(40, 5_000)
    data = vectors.serialized(index)
    vector = DeletionVector.deserialize(data)
    assert vector.cardinality == index.cardinality()
    positions = list(vector.bitmap)
    assert list(range(40, 5_000)) == [position for position in positions if 40 <= position < 5_000]
    assert all(index.isDeleted(position) for position in positions[:: count // 20])
    assert vector.serialize() == data


def test_gaps_that_java_fills_with_empty_bitmaps(vectors: JavaVectors) -> None:
    index = vectors.random_index(7, 3, 1 << 10)
    index.delete((3 << 32) + 5)
    vector = DeletionVector.deserialize(vectors.serialized(index))
    assert vector.cardinality == index.cardinality()
    assert (3 << 32) + 5 in vector.bitmap
    ours = vector.serialize()
    assert len(ours) < len(vectors.serialized(index))
    assert vectors.serialized(vectors.read(ours, vector.cardinality)) == vectors.serialized(index)


def test_the_highest_position_is_javas(vectors: JavaVectors) -> None:
    index = vectors.random_index(7, 3, 1 << 10)
    assert not index.isDeleted(MAX_POSITION)
    with pytest.raises(IllegalArgumentException, match=f"<= {MAX_POSITION}"):
        index.isDeleted(MAX_POSITION + 1)
    with pytest.raises(InvalidDeletionVector, match=str(MAX_POSITION)):
        DeletionVector.from_positions([MAX_POSITION + 1])


def test_java_reads_our_puffin_files(vectors: JavaVectors, tmp_path: Path) -> None:
    vector = DeletionVector.from_positions(ALL_KINDS)
    sketch = Blob(
        type="apache-datasketches-theta-v1",
        fields=(1, 2),
        data=b"sketch" * 50,
        snapshot_id=2**62,
        sequence_number=4,
        properties={"ndv": "3"},
    )
    data, written = write_puffin(
        [deletion_vector_blob(vector, "file:/dätä.parquet"), sketch], {"created-by": "frazil"}
    )
    (tmp_path / "ours.puffin").write_bytes(data)
    found = vectors.blobs(tmp_path / "ours.puffin")
    assert [content for _, content in found] == [vector.serialize(), sketch.data]
    for ours, (theirs, _) in zip(written, found, strict=True):
        assert theirs.type() == ours.type
        assert tuple(theirs.inputFields()) == ours.fields
        assert theirs.snapshotId() == ours.snapshot_id
        assert theirs.sequenceNumber() == ours.sequence_number
        assert (theirs.offset(), theirs.length()) == (ours.offset, ours.length)
        assert theirs.compressionCodec() == ours.compression_codec
        assert dict(theirs.properties()) == ours.properties


def test_we_read_javas_puffin_files(vectors: JavaVectors, tmp_path: Path) -> None:
    jvm, puffin = vectors.jvm, vectors.iceberg.puffin
    index = vectors.random_index(7, 1_000, 1 << 20)
    properties = {"referenced-data-file": "f", "cardinality": str(index.cardinality())}
    path = tmp_path / "theirs.puffin"
    output = vectors.iceberg.Files.localOutput(str(path))
    writer = puffin.Puffin.write(output).createdBy("Java").build()
    fields, named = jvm.java.util.ArrayList(), jvm.java.util.HashMap()
    fields.add(2147483645)
    for name, value in properties.items():
        named.put(name, value)
    for type_, content, codec in (
        ("deletion-vector-v1", index.serialize(), None),
        ("other", jvm.java.nio.ByteBuffer.wrap(b"x" * 500), puffin.PuffinCompressionCodec.ZSTD),
    ):
        writer.write(puffin.Blob(type_, fields, -1, -1, content, codec, named))
    writer.close()
    data = path.read_bytes()
    footer = read_footer(data)
    vector_blob, other_blob = footer.blobs
    assert footer.properties == {"created-by": "Java"}
    name, vector = read_deletion_vector(blob_in(data, vector_blob), vector_blob)
    assert name == "f"
    assert vector.serialize() == vectors.serialized(index)
    assert other_blob.compression_codec == "zstd"
    assert zstandard.decompress(blob_in(data, other_blob)) == b"x" * 500
