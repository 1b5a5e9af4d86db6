"""Every statement gives the rows that stock Spark with Iceberg's runtime gives.

Both start from one snapshot, on two branches of one table. The same statement runs on each
branch, and each side reads what the other wrote. On version 3, rows keep their identity in the
same way.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from frazil.spark.session import Session
from tests.spark.stock_tables import (
    COPY_ON_WRITE,
    MERGE_ON_READ,
    OURS,
    PARTITIONINGS,
    ROWS,
    THEIRS,
    Pair,
    make_pair,
    rows,
)
from tests.support.pairwise import Combination, pairwise_cover

SOURCE = (
    "(SELECT id + 10 AS id, 'c/ 1' AS category, amount + 100 AS amount, at, 'merged' AS note"
    f" FROM ({ROWS.format(start=5, end=15)}))"
)
STATEMENTS = {
    "insert": f"INSERT INTO {{t}} {ROWS.format(start=30, end=36)}",
    "insert_overwrite": f"INSERT OVERWRITE {{t}} {ROWS.format(start=2, end=4)}",
    "delete_some": "DELETE FROM {t} WHERE id % 3 = 1 OR note IS NULL",
    "delete_partition": "DELETE FROM {t} WHERE category = 'c/ 1'",
    "delete_all": "DELETE FROM {t}",
    "delete_none": "DELETE FROM {t} WHERE id > 1000",
    "update": "UPDATE {t} SET note = concat(note, '!'), amount = amount * 2"
    " WHERE id BETWEEN 4 AND 15",
    "update_moves_partitions": "UPDATE {t} SET category = 'c/ 9', at = at + INTERVAL 40 DAYS"
    " WHERE id % 4 = 0",
    "merge_upsert": f"MERGE INTO {{t}} t USING {SOURCE} s ON t.id = s.id"
    " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "merge_every_clause": f"MERGE INTO {{t}} t USING {SOURCE} s ON t.id = s.id AND t.id < 18"
    " WHEN MATCHED AND s.amount > 112 THEN DELETE"
    " WHEN MATCHED AND t.note IS NOT NULL THEN UPDATE SET note = s.note, amount = t.amount + 1"
    " WHEN NOT MATCHED AND s.id > 20 THEN INSERT (id, category, note) VALUES (s.id, 'c/ 2', 'new')"
    " WHEN NOT MATCHED BY SOURCE AND t.id < 3 THEN UPDATE SET note = 'left'"
    " WHEN NOT MATCHED BY SOURCE AND t.id IN (5, 6) THEN DELETE",
    "merge_insert_only": f"MERGE INTO {{t}} t USING {SOURCE} s ON t.id = s.id"
    " WHEN NOT MATCHED THEN INSERT *",
}
"""`{t}` stands for the branch of each side."""

EVERY, CHOSEN = pairwise_cover(
    tuple(STATEMENTS), (1, 2, 3), tuple(PARTITIONINGS), (COPY_ON_WRITE, MERGE_ON_READ)
)


def _case(combination: Combination) -> Any:
    marks = () if combination in CHOSEN else (pytest.mark.full,)
    statement, version, partitioning, mode = combination
    name = f"{statement}-v{version}-{partitioning}-{mode.partition('-')[0]}"
    return pytest.param(*combination, marks=marks, id=name)


@pytest.mark.parametrize(
    ("statement", "version", "partitioning", "mode"), [_case(one) for one in EVERY]
)
def test_a_statement_gives_the_rows_of_stock_spark(
    spark: SparkSession,
    session: Session,
    own_session: Session,
    stock: str,
    namespace: str,
    statement: str,
    version: int,
    partitioning: str,
    mode: str,
) -> None:
    pair = make_pair(
        spark,
        session,
        stock,
        f"{namespace}.t",
        version=version,
        partitioning=partitioning,
        mode=mode,
    )
    text = STATEMENTS[statement]
    stock_error = _error(lambda: spark.sql(text.format(t=pair.theirs)))
    error = _error(lambda: session.sql(text.format(t=pair.ours)))
    assert (error is None) == (stock_error is None), f"ours: {error}; stock: {stock_error}"

    expected = pair.by_stock(THEIRS)
    assert pair.by_stock(OURS) == expected
    assert rows(own_session.table(pair.name).scan(ref=OURS)) == expected
    assert rows(own_session.table(pair.name).scan(ref=THEIRS)) == expected
    if version == 3:
        _same_identities(session, pair)


def _error(run: Any) -> Exception | None:
    try:
        run()
    except Exception as error:
        return error
    return None


def _same_identities(session: Session, pair: Pair) -> None:
    """Check the lineage of rows.

    Existing rows keep their ids and, if they are only copied, their sequence numbers. New rows
    have ids that no row had before.
    """
    before = pair.lineage("main")
    ours, theirs = pair.lineage(OURS), pair.lineage(THEIRS)
    first_new = len(before)
    for key, (row_id, sequence) in theirs.items():
        if row_id in {known for known, _ in before.values()}:
            assert ours[key][0] == row_id, f"row {key}"
            carried = before.get(key) == (row_id, sequence)
            assert (ours[key] == before[key]) == carried, f"row {key}"
        else:
            assert ours[key][0] >= first_new, f"row {key}"
    ids = [row_id for row_id, _ in ours.values()]
    assert len(set(ids)) == len(ids)
