"""A table whose scans can be planned, with the ids and tokens of a plan."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.hostile.world import SCHEMA, SPEC, World

SCANNED = "scanned"
SCANS = {"planTableScan", "fetchPlanningResult", "cancelPlanning", "fetchScanTasks"}
DAYS = ("2024-05-01", "2024-05-02", None)

_columns = st.sampled_from(["id", "note", "day", "ID", "nowhere", "", "id.x"])
_values: st.SearchStrategy[Any] = st.sampled_from(
    [0, 7, -1, 2**63, 1.5, "2024-05-01", "x", "", True, None, [], {}]
)
_predicates = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["eq", "not-eq", "lt", "gt-eq", "starts-with", "like"]),
            "term": _columns,
            "value": _values,
        }
    ),
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["in", "not-in"]),
            "term": _columns,
            "values": st.lists(_values, max_size=3),
        }
    ),
    st.fixed_dictionaries({"type": st.sampled_from(["is-null", "not-nan"]), "term": _columns}),
    st.booleans(),
)
_filters = st.recursive(
    _predicates,
    lambda inner: (
        st.fixed_dictionaries(
            {"type": st.sampled_from(["and", "or"]), "left": inner, "right": inner}
        )
        | st.fixed_dictionaries({"type": st.just("not"), "child": inner})
    ),
    max_leaves=4,
)
_names = st.lists(_columns, max_size=2)

scan_bodies: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "filter": _filters,
        "select": _names,
        "stats-fields": _names,
        "case-sensitive": st.booleans(),
        "use-snapshot-schema": st.booleans(),
        "min-rows-requested": st.sampled_from([0, 1, 2**62]),
        "snapshot-id": st.sampled_from(["@snapshot", 1]),
        "start-snapshot-id": st.sampled_from(["@snapshot", 1]),
        "end-snapshot-id": st.sampled_from(["@snapshot", 1]),
    },
)
task_bodies = st.sampled_from(["@plan-task", "@plan-id", "x"]).map(lambda one: {"plan-task": one})


def path(world: World) -> str:
    return f"{world.path}/tables/{SCANNED}"


def scanned(world: World) -> dict[str, Any]:
    """Return marks for bodies: `@plan-id` and `@plan-task` of a plan, and the `@snapshot` it
    plans."""
    if world.client.head(path(world)).status_code == 404:
        _create(world)
    metadata = world.ok("GET", path(world)).json()["metadata"]
    plan = world.ok("POST", f"{path(world)}/plan", {}).json()
    return {
        "@plan-id": plan["plan-id"],
        "@plan-task": plan["plan-tasks"][0],
        "@snapshot": metadata["current-snapshot-id"],
    }


def _create(world: World) -> None:
    body = {"name": SCANNED, "schema": SCHEMA, "partition-spec": SPEC}
    location = world.ok("POST", f"{world.path}/tables", body).json()["metadata"]["location"]
    files = [
        {
            "content": "data",
            "spec-id": 0,
            "partition": [day],
            "file-path": f"{location}/data/{number}.parquet",
            "file-format": "parquet",
            "file-size-in-bytes": 1000,
            "record-count": 10,
            "value-counts": {"keys": [1, 3], "values": [10, 10]},
            "null-value-counts": {"keys": [1, 3], "values": [0, 3]},
            "lower-bounds": {"keys": [1, 3], "values": [number * 10, "a"]},
            "upper-bounds": {"keys": [1, 3], "values": [number * 10 + 9, "z"]},
        }
        for number, day in enumerate(DAYS)
    ]
    deletes = files[0] | {
        "content": "equality-deletes",
        "file-path": f"{location}/data/deletes.parquet",
        "equality-ids": [1],
    }
    for update in (
        {"action": "append", "add-data-files": files},
        {"action": "overwrite", "add-delete-files": [deletes]},
    ):
        world.ok("POST", path(world), {"requirements": [], "updates": [update]})
