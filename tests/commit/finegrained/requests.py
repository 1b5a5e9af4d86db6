"""Fine-grained updates as JSON: one small function for each action, clause and filter."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def _fields(given: dict[str, Any]) -> Json:
    """Return JSON fields: `_` becomes `-`, and None is omitted."""
    return {name.replace("_", "-"): value for name, value in given.items() if value is not None}


# --- actions --------------------------------------------------------------------------------------


def append(*files: Json, **more: Any) -> Json:
    return {"action": "append", "add-data-files": list(files)} | _removals(more)


def delete(*paths: Any, **more: Any) -> Json:
    """Return a delete of data files by path, with delete files and row filters by keyword."""
    files = {"remove-data-files": [path_of(path) for path in paths]} if paths else {}
    return {"action": "delete"} | files | _removals(more)


def overwrite(**more: Any) -> Json:
    return {"action": "overwrite"} | _removals(more)


def replace(**more: Any) -> Json:
    return {"action": "replace"} | _removals(more)


def replace_partitions(*files: Json, **more: Any) -> Json:
    return overwrite(add=list(files), replace_partitions=True, **more)


def cherry_pick(snapshot_id: int, **more: Any) -> Json:
    return {"action": "cherry-pick", "snapshot-id": snapshot_id} | _fields(more)


_SHORT = {
    "add": "add-data-files",
    "add_deletes": "add-delete-files",
    "remove": "remove-data-files",
    "remove_deletes": "remove-delete-files",
    "row_filter": "delete-row-filter",
    "base": "base-snapshot-id",
    "validations": "commit-validations",
}


def _removals(more: dict[str, Any]) -> Json:
    """Translate short names such as `add` and `remove`, and replace removed files by their
    references."""
    sent: Json = {}
    for name, value in more.items():
        if value is None:
            continue
        if name == "remove":
            value = [path_of(file) for file in value]
        elif name == "remove_deletes":
            value = [delete_reference(file) for file in value]
        sent[_SHORT.get(name, name.replace("_", "-"))] = value
    return sent


def path_of(file: Any) -> str:
    return str(file["file-path"]) if isinstance(file, dict) else str(file)


def delete_reference(file: Any) -> Any:
    """Return a path, or for a deletion vector the path and its offset."""
    if isinstance(file, dict) and "content-offset" in file:
        return {"file-path": file["file-path"], "content-offset": file["content-offset"]}
    return path_of(file)


# --- clauses --------------------------------------------------------------------------------------


def no_new_data(filter: Json | bool | None = None, base: int | None = None) -> Json:
    return _clause("not-allowed-added-data-files", filter, base)


def no_new_deletes(filter: Json | bool | None = None, base: int | None = None) -> Json:
    return _clause("not-allowed-added-delete-files", filter, base)


def data_exists(
    *files: Any,
    filter: Json | bool | None = None,
    allowed: list[str] | None = None,
    base: int | None = None,
) -> Json:
    clause = _clause("required-data-files", filter, base)
    if files:
        clause["file-paths"] = [path_of(file) for file in files]
    if allowed is not None:
        clause["allowed-remove-operations"] = allowed
    return clause


def deletes_exist(*files: Any, base: int | None = None, filter: Json | None = None) -> Json:
    clause = _clause("required-delete-files", filter, base)
    return clause | {"file-paths": [delete_reference(file) for file in files]}


def no_new_deletes_for(
    *files: Any, filter: Json | bool | None = None, base: int | None = None
) -> Json:
    clause = _clause("not-allowed-new-deletes-for-data-files", filter, base)
    return clause | {"file-paths": [path_of(file) for file in files]}


def _clause(kind: str, filter: Json | bool | None, base: int | None) -> Json:
    clause: Json = {"type": kind}
    if filter is not None:
        clause["filter"] = filter
    if base is not None:
        clause["base-snapshot-id"] = base
    return clause


# --- filters --------------------------------------------------------------------------------------

TRUE: Json = {"type": "true"}
FALSE: Json = {"type": "false"}


def compare(operator: str, term: Any, value: Any) -> Json:
    return {"type": operator, "term": term, "value": value}


def eq(term: Any, value: Any) -> Json:
    return compare("eq", term, value)


def at_least(term: Any, value: Any) -> Json:
    return compare("gt-eq", term, value)


def at_most(term: Any, value: Any) -> Json:
    return compare("lt-eq", term, value)


def both(left: Json, right: Json) -> Json:
    return {"type": "and", "left": left, "right": right}


def either(left: Json, right: Json) -> Json:
    return {"type": "or", "left": left, "right": right}


def negation(child: Json) -> Json:
    return {"type": "not", "child": child}


def in_bucket(column: str, number: int, count: int = 16) -> Json:
    term = {"type": "transform", "transform": f"bucket[{count}]", "term": column}
    return eq(term, number)


# --- Iceberg's own updates ------------------------------------------------------------------------


def set_properties(**properties: str) -> Json:
    return {
        "action": "set-properties",
        "updates": {name.replace("__", "-").replace("_", "."): v for name, v in properties.items()},
    }


def set_ref(snapshot_id: int, name: str = "main", kind: str = "branch") -> Json:
    return {
        "action": "set-snapshot-ref",
        "ref-name": name,
        "type": kind,
        "snapshot-id": snapshot_id,
    }


def remove_ref(name: str) -> Json:
    return {"action": "remove-snapshot-ref", "ref-name": name}


def expire(*snapshot_ids: int) -> Json:
    return {"action": "remove-snapshots", "snapshot-ids": list(snapshot_ids)}


def head_is(snapshot_id: int | None, ref: str = "main") -> Json:
    return {"type": "assert-ref-snapshot-id", "ref": ref, "snapshot-id": snapshot_id}
