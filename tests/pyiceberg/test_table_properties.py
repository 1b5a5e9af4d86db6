"""The properties of a table that stock PyIceberg obeys count with FrazilCatalog too."""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tests.commit.finegrained.trees import avro_records, local
from tests.pyiceberg.tables import create, rows

PROPERTIES = {
    "write.avro.compression-codec": "null",
    "write.object-storage.enabled": "true",
    "write.parquet.compression-codec": "gzip",
    "write.parquet.row-group-limit": "2",
    "write.metadata.metrics.default": "counts",
    "write.summary.partition-limit": "2",
    "commit.manifest-merge.enabled": "false",
}
METRICS = ("column_sizes", "value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
OWN_KEYS = {"manifests-created", "manifests-kept", "manifests-replaced"}
"""The keys of a summary that PyIceberg does not write."""


def effects(table: Table) -> dict[str, Any]:
    """Return what the properties have changed in the current snapshot and in its last file."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    manifests, header = avro_records(snapshot.manifest_list)
    (entry,), of_manifest = avro_records(manifests[0]["manifest_path"])
    files = sorted(task.file.file_path for task in table.scan().plan_files())
    footer = pq.ParquetFile(local(files[-1])).metadata
    summary = snapshot.summary.additional_properties
    return {
        "codecs": {header["avro.codec"], of_manifest["avro.codec"]},
        "manifests": len(manifests),
        "folders": {len(path.removeprefix(table.location()).split("/")) for path in files},
        "compression": footer.row_group(0).column(0).compression,
        "row groups": footer.num_row_groups,
        "metrics": {name: entry["data_file"][name] is not None for name in METRICS},
        "bounds": {bool(task.file.lower_bounds) for task in table.scan().plan_files()},
        # The parts of a partition's summary have Java's order, which is not PyIceberg's.
        "summary": {key: set(summary[key].split(",")) for key in summary.keys() - OWN_KEYS},
    }


def test_properties_have_the_effect_that_they_have_in_stock_pyiceberg(
    frazil: Catalog, stock: Catalog, namespace: str
) -> None:
    tables = [
        create(catalog, name, "identity", properties=PROPERTIES)
        for catalog, name in ((frazil, f"{namespace}.t"), (stock, "ns.t"))
    ]
    for table in tables:
        for start in range(3):
            table.append(rows(start * 10 + 3, start * 10 + 6, start * 10 + 9))
    ours, theirs = map(effects, tables)
    assert ours == theirs
    assert (ours["codecs"], ours["manifests"], ours["bounds"]) == ({"null"}, 3, {False})
