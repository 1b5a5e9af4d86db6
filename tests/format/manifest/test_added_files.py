"""Adding files together gives the same manifests as adding them one by one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np
import pytest

from frazil.format.avro.avro_files import MANIFEST_LIMITS, open_avro
from frazil.format.manifest.manifest_columns import decode_columns
from frazil.format.manifest.manifest_encoder import ManifestEncoder, manifest_encoder
from frazil.format.manifest.manifest_list import DATA, DELETES
from frazil.format.manifest.manifest_writer import RollingManifestWriter, WrittenManifest
from frazil.format.metadata.content_files import POSITION_DELETES, ContentFile, DataFile, DeleteFile
from frazil.format.metadata.partition_spec import parse_partition_spec
from frazil.format.metadata.schema import parse_schema

SCHEMA = parse_schema(
    json.dumps(
        {
            "type": "struct",
            "fields": [{"id": 1, "name": "c", "required": False, "type": "string"}],
        }
    ).encode()
)
SPEC = parse_partition_spec(
    json.dumps(
        {
            "spec-id": 0,
            "fields": [
                {"source-id": 1, "field-id": 1000, "name": "p", "transform": "identity"},
            ],
        }
    ).encode()
)
WHOLE = 1 << 40


def encoder(version: int, content: int = DATA) -> ManifestEncoder:
    return manifest_encoder(SCHEMA, SPEC, version, content)


def files_of(number: int, bound_bytes: int = 10, content: int = DATA) -> list[ContentFile]:
    def file(at: int) -> ContentFile:
        common: dict[str, Any] = {
            "file_path": f"s3://b/{at}.parquet",
            "file_format": "parquet",
            "partition": (f"p{at % 7}" if at % 5 else None,),
            "record_count": at,
            "file_size_in_bytes": 10 * at,
            "lower_bounds": {1: bytes([at % 256]) * bound_bytes},
        }
        if content == DELETES:
            return DeleteFile(**common, content=POSITION_DELETES, referenced_data_file=f"s3://{at}")
        return DataFile(**common)

    return [file(at) for at in range(number)]


def write(
    files: Sequence[ContentFile],
    encoder: ManifestEncoder,
    *,
    together: bool,
    target: int = WHOLE,
    sequence_number: int | None = None,
) -> tuple[WrittenManifest, ...]:
    names = count()
    writer = RollingManifestWriter(
        encoder,
        new_path=lambda: f"m{next(names)}.avro",
        snapshot_id=5,
        target_size_bytes=target,
    )
    first, rest = files[:1], files[1:]
    # Adding one file first leaves a block that is not full.
    for file in first:
        writer.add(file, sequence_number)
    if together:
        writer.add_all(rest, sequence_number)
    else:
        for file in rest:
            writer.add(file, sequence_number)
    return writer.finish()


def told(manifest: WrittenManifest) -> tuple[Any, ...]:
    return (
        manifest.manifest_path,
        dict(manifest.listed(5, 9)),
        list(open_avro(manifest.file, MANIFEST_LIMITS).blocks()),
        list(manifest.block_starts),
    )


@pytest.mark.parametrize("number", [0, 1, 2, 499, 500, 501, 1_000, 1_750])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_together_is_one_by_one(number: int, version: int) -> None:
    files = files_of(number)
    one_by_one = write(files, encoder(version), together=False)
    together = write(files, encoder(version), together=True)
    assert [told(manifest) for manifest in together] == [told(one) for one in one_by_one]
    for manifest in together:
        check_columns(manifest)


@pytest.mark.parametrize("target", [1, 20_000])
def test_manifests_roll_at_the_same_file(target: int) -> None:
    files = files_of(2_100)
    one_by_one = write(files, encoder(2), together=False, target=target)
    together = write(files, encoder(2), together=True, target=target)
    assert len(together) > 1
    assert [told(manifest) for manifest in together] == [told(one) for one in one_by_one]


def test_large_entries_end_a_block_early() -> None:
    files = files_of(40, bound_bytes=100_000)
    one_by_one = write(files, encoder(2), together=False)
    together = write(files, encoder(2), together=True)
    assert len(together[0].block_starts) > 2
    assert [told(manifest) for manifest in together] == [told(one) for one in one_by_one]
    check_columns(together[0])


def test_delete_files_and_a_sequence_number_of_their_own() -> None:
    files = files_of(700, content=DELETES)
    deletes = encoder(3, DELETES)
    one_by_one = write(files, deletes, together=False, sequence_number=3)
    together = write(files, deletes, together=True, sequence_number=3)
    assert together[0].min_sequence_number == 3
    assert [told(manifest) for manifest in together] == [told(one) for one in one_by_one]
    check_columns(together[0])


def check_columns(manifest: WrittenManifest) -> None:
    known, decoded = manifest.columns(), decode_columns(manifest.file)
    for name in ("status", "record_count", "file_size_in_bytes", "snapshot_id", "sequence_number"):
        assert np.array_equal(getattr(known, name), getattr(decoded, name))
    assert [known.partitions[at] for at in known.partition] == [
        decoded.partitions[at] for at in decoded.partition
    ]
    last = len(known.status) - 1
    assert known.path(last) == decoded.path(last)


def test_the_file_that_does_not_fit_is_named() -> None:
    files = files_of(10)
    wrong = DataFile(
        file_path="s3://b/wrong", file_format="parquet", record_count=-1, file_size_in_bytes=1
    )
    with pytest.raises(ValueError, match="s3://b/wrong"):
        write([*files, wrong], encoder(2), together=True)
    delete = files_of(1, content=DELETES)
    with pytest.raises(ValueError, match="manifest of data files"):
        write([*files, *delete], encoder(2), together=True)
