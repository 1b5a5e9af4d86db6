"""Temporary views of `session.sql`: each statement reads their tables as they are then.

Spark's own view of that name is a frame, whose snapshots were chosen when it was created. So the
session remembers the text too, and reads it again while Spark's view is still the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

import pyspark.sql.types as st
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from frazil.spark.core.name_matching import quoted
from frazil.spark.parse.sql_tokens import Name
from frazil.spark.reading.view_columns import renamed
from frazil.spark.sql.table_names import SqlSession
from frazil.wire.errors import AlreadyExists

GLOBAL: Final = "global_temp"


@dataclass(frozen=True)
class TemporaryView:
    """A temporary view that reads tables or views of the catalog."""

    name: Name
    text: str
    """The query, with complete names for what the catalog has."""
    fields: Sequence[st.StructField] = ()
    """The columns by other names; empty if the query names them."""

    def __str__(self) -> str:
        return ".".join(self.name)

    def with_columns(self, frame: DataFrame) -> DataFrame:
        """Return the frame of the query with the names of the view's columns."""
        return renamed(frame, self.fields) if self.fields else frame


_remembered: WeakKeyDictionary[SqlSession, dict[Name, tuple[TemporaryView, int]]]
_remembered = WeakKeyDictionary()


def is_temporary(session: SqlSession, name: Name) -> bool:
    """Return whether the name is that of a temporary view."""
    if len(name) > 2 or (len(name) == 2 and name[0].lower() != GLOBAL):
        return False
    try:
        return bool(session.spark.catalog.getTable(quoted(*name)).isTemporary)
    except AnalysisException:
        return False


def is_same(one: Name, other: Name) -> bool:
    """Return whether two names mean the same temporary view."""
    return _key(one) == _key(other)


def create(session: SqlSession, view: TemporaryView, frame: DataFrame, *, replace: bool) -> None:
    """Give the view to Spark, and remember its text."""
    name = view.name[-1]
    if len(view.name) > 1:
        create, or_replace = frame.createGlobalTempView, frame.createOrReplaceGlobalTempView
    else:
        create, or_replace = frame.createTempView, frame.createOrReplaceTempView
    try:
        (or_replace if replace else create)(name)
    except AnalysisException as error:
        raise AlreadyExists(
            f"there is a temporary view {name}: write CREATE OR REPLACE TEMPORARY VIEW"
        ) from error
    views = _remembered.setdefault(session, {})
    views[_key(view.name)] = (view, _fingerprint(session, view.name))


def remembered(session: SqlSession, name: Name) -> TemporaryView | None:
    """Return the view of this name, if Spark's view is still the one that was created here."""
    known = _remembered.get(session, {}).get(_key(name))
    if known is None or known[1] != _fingerprint(session, name):
        return None
    return known[0]


def _key(name: Name) -> Name:
    return tuple(part.lower() for part in name)


def _fingerprint(session: SqlSession, name: Name) -> int:
    return session.spark.table(quoted(*name)).semanticHash()
