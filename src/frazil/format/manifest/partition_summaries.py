"""Summaries of the partition values of a manifest's entries (spec, `field_summary`)."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

from frazil.format.avro.avro_types import (
    Boolean,
    Bytes,
    Field,
    Floating,
    Integer,
    Node,
    String,
    UnreadableAvro,
)
from frazil.format.manifest.manifest_list import PartitionSummary


def summarise(
    fields: Sequence[Field],
    partitions: Sequence[Sequence[Any]],
    wider: Sequence[PartitionSummary] | None,
) -> list[PartitionSummary] | None:
    """Return one summary for each partition field.

    `wider` are correct summaries of a superset of the entries. They are used if Avro's type does
    not define how Iceberg orders and encodes the values (fixed, decimal, UUID).
    """
    if wider is not None and len(wider) != len(fields):
        wider = None
    summaries: list[PartitionSummary] = []
    for position, field in enumerate(fields):
        encode = _encoder(field.value_node)
        if encode is not None:
            try:
                summaries.append(_summary([values[position] for values in partitions], encode))
            except struct.error:
                raise UnreadableAvro(f"a value of {field.name} does not fit its type") from None
        elif wider is not None:
            summaries.append(wider[position])
        else:
            return None
    return summaries


def _summary(values: Sequence[Any], encode: Callable[[Any], bytes]) -> PartitionSummary:
    known = [value for value in values if value is not None and not _is_nan(value)]
    return PartitionSummary(
        contains_null=any(value is None for value in values),
        contains_nan=any(_is_nan(value) for value in values),
        lower_bound=encode(_signed(min(known), -0.0)) if known else None,
        upper_bound=encode(_signed(max(known), 0.0)) if known else None,
    )


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _signed(value: Any, zero: float) -> Any:
    """Return -0.0 for a lower bound of zero and +0.0 for an upper one, whatever the sign of the
    value."""
    return zero if isinstance(value, float) and value == 0 else value


def _encoder(node: Node) -> Callable[[Any], bytes] | None:
    """Return the binary single-value serialization for an Avro type (spec, Appendix D)."""
    if isinstance(node, Boolean):
        return lambda value: b"\x01" if value else b"\x00"
    if isinstance(node, Integer):
        return struct.Struct("<i" if node.layout == "int" else "<q").pack
    if isinstance(node, Floating):
        return node.packing.pack
    if isinstance(node, String):
        return lambda value: str(value).encode("utf-8")
    if isinstance(node, Bytes):
        return bytes
    return None
