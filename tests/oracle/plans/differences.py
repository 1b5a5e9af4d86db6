"""Lists where we deliberately differ from an oracle: when each entry applies; each has a fixed
case.

The rows of the files also judge every listed difference. No oracle decides whether our plan is
complete.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from frazil.values.types import TypeId
from tests.oracle.plans.columns import leaves
from tests.oracle.plans.compare import LEFT_OUT, PLANNED, Difference
from tests.oracle.plans.files import Doc, is_nan
from tests.oracle.plans.predicates import ColumnTest, Predicate
from tests.oracle.plans.tables import PlannedTable

_ORDERS: Final = ("lt", "lt-eq", "gt", "gt-eq")
_BELOW: Final = ("lt", "lt-eq")
_PREFIXES: Final = ("starts-with", "not-starts-with")


@dataclass(frozen=True)
class Context:
    table: PlannedTable
    predicate: Predicate
    scan: Doc
    other: Doc
    own: Doc
    java_differs: frozenset[tuple[str, str]] = frozenset()
    """Where Java differs from us in the same scan, by kind and path."""

    @property
    def tests(self) -> list[tuple[str, ColumnTest]]:
        return self.predicate.tests()


@dataclass(frozen=True)
class Listed:
    name: str
    oracle: str
    applies: Callable[[Context, Difference], bool]


def _partition_values(context: Context, path: str, test: ColumnTest) -> Iterator[Any]:
    """Return the file's partition values that derive from the tested column."""
    file = context.table.data_file(path)
    spec = context.table.shape.specs[file.spec_id]
    for part, value in zip(spec, file.partition, strict=True):
        if part.source_id == test.leaf.field_id and part.transform != "void":
            yield value


def _message(difference: Difference) -> str:
    return str(difference.other)


# --- Java ---------------------------------------------------------------------------------------


def _order_of_uuids(context: Context, difference: Difference) -> bool:
    if difference.kind == "deletes":
        ids, _ = _more_equality_deletes(context, difference)
        return bool(ids.intersection(_ids_of(context, "uuid")))
    return difference.kind in ("files", "residual") and any(
        test.leaf.type.type_id is TypeId.UUID
        and test.transform is None
        and operation not in ("is-null", "not-null")
        for operation, test in context.tests
    )


def _ids_of(context: Context, *types: str) -> set[int]:
    """Return the columns that had one of the types at any time."""
    return {
        leaf.field_id
        for version in context.table.versions.values()
        for leaf in leaves(version.schema)
        if str(leaf.type) in types
    }


def _order_of_null(context: Context, difference: Difference) -> bool:
    if difference.kind not in ("files", "residual") or difference.own == PLANNED:
        return False
    return any(
        operation in _ORDERS and None in _partition_values(context, difference.what, test)
        for operation, test in context.tests
    )


def _order_of_nan(context: Context, difference: Difference) -> bool:
    if difference.kind not in ("files", "residual") or difference.own == PLANNED:
        return False
    return any(
        operation in ("gt", "gt-eq")
        and any(map(is_nan, _partition_values(context, difference.what, test)))
        for operation, test in context.tests
    )


def _more_equality_deletes(context: Context, difference: Difference) -> tuple[set[int], bool]:
    """Return the columns of equality deletes that one side alone attaches, and whether we do."""
    if difference.kind != "deletes":
        return set(), False
    theirs, ours = set(difference.other), set(difference.own)
    deletes = context.table.delete_files()
    ids = [set(deletes[key].equality_ids) for key in theirs ^ ours]
    return (set.intersection(*ids), theirs < ours) if ids and theirs != ours else (set(), False)


def _ranges_with_nan(context: Context, difference: Difference) -> bool:
    ids, we_have_more = _more_equality_deletes(context, difference)
    return we_have_more and bool(ids.intersection(_ids_of(context, "float", "double")))


def _nulls_in_struct(context: Context, difference: Difference) -> bool:
    ids, we_have_more = _more_equality_deletes(context, difference)
    nested = {
        leaf.field_id
        for version in context.table.versions.values()
        for leaf in leaves(version.schema)
        if "." in leaf.name
    }
    return not we_have_more and bool(ids & nested)


def _greatest_number(context: Context, difference: Difference) -> bool:
    if difference.kind != "residual":
        return False
    file = context.table.data_file(difference.what)
    truncated = {
        part.source_id
        for part in context.table.shape.specs[file.spec_id]
        if part.transform.startswith("truncate")
    }
    return any(
        test.leaf.field_id in truncated and {2**31 - 1, 2**63 - 1}.intersection(_integers(test))
        for _, test in context.tests
    )


def _nanosecond_set(context: Context, difference: Difference) -> bool:
    return difference.kind == "verdict" and "ArithmeticException: long overflow" in _message(
        difference
    )


def _negated_time(context: Context, difference: Difference) -> bool:
    return (
        difference.kind == "residual"
        and _has_negation(context)
        and bool(_by_time(context, difference.what))
    )


def _has_negation(context: Context) -> bool:
    return '"type": "not"' in json.dumps(context.scan["filter"])


def _by_time(context: Context, path: str) -> set[int]:
    """Return the tested columns by whose time the file is partitioned."""
    file = context.table.data_file(path)
    return {
        part.source_id
        for part in context.table.shape.specs[file.spec_id]
        if part.transform in ("year", "month", "day", "hour")
    }.intersection(test.leaf.field_id for _, test in context.tests)


def _order_of_zeros(context: Context, difference: Difference) -> bool:
    return (
        difference.kind == "files"
        and difference.own == PLANNED
        and any(isinstance(value, float) and not value for value in _all_values(context))
    )


def _all_values(context: Context) -> list[Any]:
    return [value for _, test in context.tests for value in test.values]


def _integers(test: ColumnTest) -> set[int]:
    return {value for value in test.values if isinstance(value, int)}


def _prefix_of_null(context: Context, difference: Difference) -> bool:
    return difference.kind == "verdict" and "String.startsWith(String)" in _message(difference)


def _transform_on_identity(context: Context, difference: Difference) -> bool:
    identities = {
        part.source_id
        for spec in context.table.shape.specs.values()
        for part in spec
        if part.transform == "identity"
    }
    refused = "Invalid value for conversion to type" in _message(difference)
    return (refused or difference.kind in ("files", "residual")) and any(
        test.transform is not None and test.leaf.field_id in identities for _, test in context.tests
    )


def _in_with_one_bound(context: Context, difference: Difference) -> bool:
    if difference.kind != "files" or difference.own != LEFT_OUT:
        return False
    doc = context.table.data_file(difference.what).doc
    lower = doc.get("lower-bounds", {"keys": ()})["keys"]
    return any(
        operation == "in" and test.leaf.field_id not in lower for operation, test in context.tests
    )


def _schema_of_head(context: Context, difference: Difference) -> bool:
    head = context.table.current
    return (
        context.scan["use-snapshot-schema"]
        and head is not None
        and context.scan["snapshot-id"] == head.snapshot_id
        and head.schema != context.table.shape.schema
    )


def _large_number(context: Context, difference: Difference) -> bool:
    return difference.kind == "verdict" and "Cannot convert JSON to literal: 10000" in _message(
        difference
    )


def _time_beyond_a_day(context: Context, difference: Difference) -> bool:
    return difference.kind == "verdict" and "Invalid value for NanoOfDay" in _message(difference)


# --- PyIceberg: in all of it Java agrees with us ------------------------------------------------


def _not_equal(context: Context, difference: Difference) -> bool:
    return (
        difference.kind == "files"
        and difference.own == LEFT_OUT
        and any(
            operation in ("not-eq", "not-in", "not-starts-with") for operation, _ in context.tests
        )
    )


def _required_in_struct(context: Context, difference: Difference) -> bool:
    return difference.kind in ("files", "residual") and any(
        operation in ("is-null", "not-null") and "." in test.leaf.name
        for operation, test in context.tests
    )


def _time_before_epoch(context: Context, difference: Difference) -> bool:
    if difference.kind not in ("files", "residual") or difference.own == LEFT_OUT:
        return False
    return bool(_by_time(context, difference.what))


def _negated_partition(context: Context, difference: Difference) -> bool:
    return (
        difference.kind == "residual"
        and _has_negation(context)
        and any(
            value is None or is_nan(value)
            for _, test in context.tests
            for value in _partition_values(context, difference.what, test)
        )
    )


def _both_zeros(context: Context, difference: Difference) -> bool:
    signs = (
        {
            math.copysign(1, value)
            for value in test.values
            if value == 0 and isinstance(value, float)
        }
        for _, test in context.tests
    )
    return difference.kind == "residual" and any(len(found) > 1 for found in signs)


def _scope_of_position_deletes(context: Context, difference: Difference) -> bool:
    if difference.kind != "deletes":
        return False
    deletes = context.table.delete_files()
    unlike = set(difference.other) ^ set(difference.own)
    return all(deletes[key].kind == "position" for key in unlike)


def _order_of_null_refused(context: Context, difference: Difference) -> bool:
    return difference.kind == "verdict" and "not supported between instances of" in _message(
        difference
    )


def _uuid_partition(context: Context, difference: Difference) -> bool:
    return difference.kind in ("files", "residual") and any(
        test.leaf.type.type_id is TypeId.UUID
        and operation in ("eq", "not-eq", "in", "not-in", *_ORDERS)
        and any(_partition_values(context, difference.what, test))
        for operation, test in context.tests
    )


def _two_alike_partitions(context: Context, difference: Difference) -> bool:
    return difference.kind == "verdict" and "Type not recognized: " in _message(difference)


def _nanosecond_partition(context: Context, difference: Difference) -> bool:
    return difference.kind == "verdict" and "'logicalType': 'timestamp-nanos'" in _message(
        difference
    )


LISTED: Final[tuple[Listed, ...]] = (
    Listed("order-of-uuids", "java", _order_of_uuids),
    Listed("order-of-null", "java", _order_of_null),
    Listed("order-of-nan", "java", _order_of_nan),
    Listed("ranges-with-nan", "java", _ranges_with_nan),
    Listed("nulls-in-struct", "java", _nulls_in_struct),
    Listed("prefix-of-null", "java", _prefix_of_null),
    Listed("transform-on-identity", "java", _transform_on_identity),
    Listed("in-with-one-bound", "java", _in_with_one_bound),
    Listed("schema-of-head", "java", _schema_of_head),
    Listed("large-number", "java", _large_number),
    Listed("greatest-number", "java", _greatest_number),
    Listed("nanosecond-set", "java", _nanosecond_set),
    Listed("negated-time", "java", _negated_time),
    Listed("order-of-zeros", "java", _order_of_zeros),
    Listed("time-beyond-a-day", "java", _time_beyond_a_day),
    Listed("not-equal", "pyiceberg", _not_equal),
    Listed("required-in-struct", "pyiceberg", _required_in_struct),
    Listed("time-before-epoch", "pyiceberg", _time_before_epoch),
    Listed("both-zeros", "pyiceberg", _both_zeros),
    Listed("negated-partition", "pyiceberg", _negated_partition),
    Listed("scope-of-position-deletes", "pyiceberg", _scope_of_position_deletes),
    Listed("order-of-null-refused", "pyiceberg", _order_of_null_refused),
    Listed("nanosecond-partition", "pyiceberg", _nanosecond_partition),
    Listed("uuid-partition", "pyiceberg", _uuid_partition),
    Listed("two-alike-partitions", "pyiceberg", _two_alike_partitions),
    # We prune only what both orders prune; each oracle prunes by its own order.
    Listed("order-of-uuids", "pyiceberg", _order_of_uuids),
)


def listed_name(context: Context, difference: Difference) -> str | None:
    """Return the name of the listed difference, or None if none applies and the test must fail."""
    if (difference.kind, difference.what) in context.java_differs:
        return "java-and-pyiceberg"
    return next(
        (
            one.name
            for one in LISTED
            if one.oracle == difference.oracle and one.applies(context, difference)
        ),
        None,
    )
