"""Updates of schemas, partition specs and sort orders.

In all three, something that the table already has is used again instead of being added, and -1
stands for the one last added by the same request.
"""

from __future__ import annotations

from frazil.format.metadata.partition_spec import (
    INITIAL_SPEC_ID,
    check_partition_spec,
    compatible_specs,
    parse_partition_spec,
    with_spec_id,
)
from frazil.format.metadata.schema import (
    check_schema_for_version,
    parse_schema,
    same_schema,
    with_schema_id,
)
from frazil.format.metadata.sort_order import (
    INITIAL_SORT_ORDER_ID,
    UNSORTED,
    SortOrder,
    check_sort_order,
    parse_sort_order,
    same_order,
    with_order_id,
)
from frazil.format.metadata.table_state import TableState
from frazil.wire.errors import BadRequest
from frazil.wire.updates import (
    AddPartitionSpec,
    AddSchema,
    AddSortOrder,
    RemovePartitionSpecs,
    RemoveSchemas,
    SetCurrentSchema,
    SetDefaultSortOrder,
    SetDefaultSpec,
)

LAST_ADDED = -1

_MAX_INT = 2**31 - 1


def add_schema(state: TableState, update: AddSchema) -> None:
    """Where the same schema is there already, -1 means that one: a client whose base is stale
    cannot know that another commit added it. (Java then finds no schema last added.)"""
    schema = parse_schema(update.schema)
    check_schema_for_version(schema, state.format_version)
    found = next((known for known in state.schemas if same_schema(known, schema)), None)
    if found is None:
        found = with_schema_id(schema, _next_schema_id(state))
        state.schemas = (*state.schemas, found)
    state.last_column_id = max(state.last_column_id, schema.highest_field_id)
    state.last_added_schema_id = found.schema_id


def _next_schema_id(state: TableState) -> int:
    used = [schema.schema_id + 1 for schema in state.schemas]
    return _assignable(max([state.current_schema_id, *used]), "add-schema.schema")


def _assignable(new_id: int, field: str) -> int:
    """Ids are 32 bits wide. One that another catalog took to the end leaves none to give: written
    all the same, it would be metadata that no reader takes."""
    if new_id > _MAX_INT:
        raise BadRequest(f"{field}: the table has used its highest id, {_MAX_INT}")
    return new_id


def set_current_schema(state: TableState, update: SetCurrentSchema) -> None:
    schema_id = update.schema_id
    if schema_id == LAST_ADDED:
        if state.last_added_schema_id is None:
            raise BadRequest("Cannot set last added schema: no schema has been added")
        schema_id = state.last_added_schema_id
    if state.schema(schema_id) is None:
        raise BadRequest(f"Cannot set current schema to unknown schema: {schema_id}")
    state.current_schema_id = schema_id


def remove_schemas(state: TableState, update: RemoveSchemas) -> None:
    gone = set(update.schema_ids)
    if state.current_schema_id in gone:
        raise BadRequest("Cannot remove the current schema")
    state.removed_schema_ids |= gone & {schema.schema_id for schema in state.schemas}
    state.schemas = tuple(schema for schema in state.schemas if schema.schema_id not in gone)


def add_partition_spec(state: TableState, update: AddPartitionSpec) -> None:
    spec = parse_partition_spec(
        update.spec,
        known_specs=state.partition_specs,
        last_assigned_field_id=state.last_partition_id,
    )
    schema = state.current_schema("add-spec")
    found = next((known for known in state.partition_specs if compatible_specs(spec, known)), None)
    if found is None:
        check_partition_spec(spec, schema)
        if state.format_version == 1 and not spec.has_sequential_ids:
            raise BadRequest(
                "add-spec.spec: Spec does not use sequential IDs that are required in v1: "
                f"{[part.field_id for part in spec.fields]}"
            )
        used = [known.spec_id + 1 for known in state.partition_specs]
        found = with_spec_id(spec, _assignable(max([INITIAL_SPEC_ID, *used]), "add-spec.spec"))
        state.partition_specs = (*state.partition_specs, found)
        state.last_partition_id = max(state.last_partition_id, found.last_assigned_field_id)
    state.last_added_spec_id = found.spec_id


def set_default_spec(state: TableState, update: SetDefaultSpec) -> None:
    spec_id = update.spec_id
    if spec_id == LAST_ADDED:
        if state.last_added_spec_id is None:
            raise BadRequest("Cannot set last added spec: no spec has been added")
        spec_id = state.last_added_spec_id
    # Whether there is such a spec is asked when all updates are applied, as in Java.
    state.default_spec_id = spec_id


def remove_partition_specs(state: TableState, update: RemovePartitionSpecs) -> None:
    gone = set(update.spec_ids)
    if state.default_spec_id in gone:
        raise BadRequest("Cannot remove the default partition spec")
    state.partition_specs = tuple(
        spec for spec in state.partition_specs if spec.spec_id not in gone
    )


def add_sort_order(state: TableState, update: AddSortOrder) -> None:
    order = parse_sort_order(update.sort_order)
    schema = state.current_schema("add-sort-order")
    found = next((known for known in state.sort_orders if same_order(known, order)), None)
    if found is None:
        check_sort_order(order, schema)
        found = _numbered(state, order)
        state.sort_orders = (*state.sort_orders, found)
    state.last_added_order_id = found.order_id


def _numbered(state: TableState, order: SortOrder) -> SortOrder:
    if order.is_unsorted:
        return with_order_id(order, UNSORTED.order_id)
    used = [known.order_id + 1 for known in state.sort_orders]
    new_id = _assignable(max([INITIAL_SORT_ORDER_ID, *used]), "add-sort-order.sort-order")
    return with_order_id(order, new_id)


def set_default_sort_order(state: TableState, update: SetDefaultSortOrder) -> None:
    order_id = update.sort_order_id
    if order_id == LAST_ADDED:
        if state.last_added_order_id is None:
            raise BadRequest("Cannot set last added sort order: no sort order has been added")
        order_id = state.last_added_order_id
    # Whether there is such an order is asked when all updates are applied, as in Java.
    state.default_sort_order_id = order_id
