"""`frazil.commit.verify-files`: the server verifies declared files if the table requires it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commit.finegrained.conftest import NAMESPACE
from tests.commit.finegrained.requests import Json, append, overwrite
from tests.commit.finegrained.trees import local
from tests.commit.finegrained.world import World
from tests.stock_clients.declared import BY_PART, FLAT, SCHEMA, RealTable


@pytest.fixture
def checked(world: World) -> Callable[..., RealTable]:
    """Return a function that creates tables that verify their files."""

    def make(how: str, spec: Json = FLAT, **fields: Any) -> RealTable:
        table = RealTable(
            world,
            namespace=NAMESPACE,
            schema=SCHEMA,
            spec=spec,
            properties={"frazil.commit.verify-files": how},
            **fields,
        )
        table.create()
        return table

    return make


LIES: list[tuple[str, str, Callable[[Json], Json]]] = [
    ("exists", "file-path", lambda file: {"file-path": file["file-path"] + "x"}),
    ("exists", "file-size-in-bytes", lambda file: {"file-size-in-bytes": 1}),
    ("footer", "record-count", lambda file: {"record-count": 2}),
]


@pytest.mark.parametrize("how", ["none", "exists", "footer"])
@pytest.mark.parametrize(("from_level", "named", "lie"), LIES, ids=[lie[1] for lie in LIES])
def test_what_is_declared_must_be_so(
    checked: Callable[..., RealTable],
    how: str,
    from_level: str,
    named: str,
    lie: Callable[[Json], Json],
) -> None:
    table = checked(how)
    file = table.write("a", 1, 2, 3)
    levels = ["none", "exists", "footer"]
    wrong = {k: v for k, v in file.items() if not k.endswith(("counts", "bounds"))} | lie(file)
    if levels.index(how) >= levels.index(from_level):
        message = table.bad(append(wrong))
        assert wrong["file-path"] in message
        assert named in message
        table.append(file)
        assert len(table.live()) == 1
    else:
        table.append(wrong)


def test_a_column_of_another_type(checked: Callable[..., RealTable]) -> None:
    table = checked("footer")
    file = table.write("a", 1, 2)
    text = pa.field("id", pa.string(), metadata={"PARQUET:field_id": "1"})
    path = local(file["file-path"])
    pq.write_table(pa.table([pa.array(["x", "y"])], schema=pa.schema([text])), path)
    wrong = table._described(path, [], 2)
    message = table.bad(append(wrong))
    assert wrong["file-path"] in message
    assert "id" in message


def test_a_file_of_another_partition(checked: Callable[..., RealTable]) -> None:
    """A reader with a filter skips a file by its partition, and would miss these rows."""
    table = checked("footer", spec=BY_PART)
    file = table.write("a", 1, 2, part="a")
    assert "partition.part: b is declared, but the file's footer proves a" in table.bad(
        append(file | {"partition": ["b"]})
    )
    table.append(file)
    trusting = checked("none", spec=BY_PART)
    trusting.append(trusting.write("b", 3, part="a", partition="b"))


@pytest.mark.parametrize("version", [2, 3])
def test_delete_files_are_looked_at_too(checked: Callable[..., RealTable], version: int) -> None:
    table = checked("footer", version=version)
    file = table.write("a", 1, 2, 3)
    table.append(file)
    deletes = table.write_deletes("d", file, 0, 1)
    assert deletes["file-path"] in table.bad(overwrite(add_deletes=[deletes | {"record-count": 1}]))
    table.overwrite(add_deletes=[deletes])
    equality = table.write_equality_deletes("e", 3)
    assert table.bad(overwrite(add_deletes=[equality | {"record-count": 7}]))
    table.overwrite(add_deletes=[equality])
    assert len(table.live()) == 3


def test_a_vector_of_another_file(checked: Callable[..., RealTable]) -> None:
    table = checked("footer", version=3)
    a, b = table.write("a", 1, 2), table.write("b", 3, 4)
    table.append(a, b)
    vector = table.write_deletes("v", a, 0) | {"referenced-data-file": b["file-path"]}
    assert "referenced-data-file" in table.bad(overwrite(add_deletes=[vector]))


def test_a_word_that_is_not_known(checked: Callable[..., RealTable]) -> None:
    table = checked("footer")
    updates = {"frazil.commit.verify-files": "sometimes"}
    assert "frazil.commit.verify-files" in table.bad(
        {"action": "set-properties", "updates": updates}
    )


def test_many_files_are_looked_at(checked: Callable[..., RealTable]) -> None:
    table = checked("footer")
    files = [table.write(f"f{number}", number) for number in range(60)]
    wrong = [*files[:-1], files[-1] | {"file-size-in-bytes": 3}]
    assert files[-1]["file-path"] in table.bad(append(*wrong))
    table.append(*files)
    assert len(table.live()) == 60
