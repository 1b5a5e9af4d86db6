"""The OpenAPI file and the code describe the same routes and the same requests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from types import UnionType
from typing import Any, get_args

import msgspec
import pytest
from jsonschema import Draft202012Validator
from msgspec import inspect
from openapi_spec_validator import validate

from frazil.commit.snapshot.stream_epochs import CommittedSnapshot
from frazil.rest.routes import ROUTES
from frazil.rest.server_routes import openapi
from frazil.wire import (
    conflicts,
    declared_content,
    file_actions,
    job_messages,
    leases,
    rest_messages,
    rest_updates,
    scan_planning,
)
from frazil.wire.errors import BadRequest
from frazil.wire.json_bodies import decode
from tests.rest.stand_in import Client

DOCUMENT: dict[str, Any] = json.loads(openapi())
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
MESSAGES = (job_messages, leases, rest_messages, scan_planning)
"""The modules with requests."""
METHODS = {"get", "head", "post", "put", "delete", "patch", "options", "trace"}
OPERATIONS = {
    (method.upper(), path): operation
    for path, item in DOCUMENT["paths"].items()
    for method, operation in item.items()
    if method in METHODS
}


def structs_in(module: Any) -> list[type[msgspec.Struct]]:
    bases = {
        rest_messages.Request,
        rest_messages.Report,
        rest_updates.Update,
        rest_updates.Requirement,
    }
    bases |= {rest_messages.Response, msgspec.Struct}
    return [
        found
        for found in vars(module).values()
        if isinstance(found, type)
        and issubclass(found, msgspec.Struct)
        and found.__module__ == module.__name__
        and found not in bases
    ]


def test_the_document_is_valid() -> None:
    validate(DOCUMENT)


def test_it_is_served_as_it_is(client: Client) -> None:
    assert client("GET", "/openapi.json").body == openapi()


def test_routes_and_document_agree() -> None:
    assert set(OPERATIONS) == {(route.method, route.path) for route in ROUTES}
    for route in ROUTES:
        assert OPERATIONS[route.method, route.path]["operationId"] == route.operation


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.operation)
def test_an_operation_describes_its_route(route: Any) -> None:
    operation = OPERATIONS[route.method, route.path]
    body = operation.get("requestBody")
    if route.request is None:
        assert body is None
    else:
        schema = body["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]
        (module,) = (module for module in MESSAGES if _is_of(module, schema))
        assert getattr(module, schema) == route.request
        assert {"413", "415"} <= set(operation["responses"])
    references = {
        item.get("$ref", "").rsplit("/", 1)[-1] for item in operation.get("parameters", ())
    }
    assert ("idempotency-key" in references) == route.changes
    # Read-only tokens.
    assert ("403" in operation["responses"]) == route.changes
    assert (operation.get("security") == []) == route.open
    assert not (route.commits and "503" in operation["responses"])
    item = DOCUMENT["paths"][route.path].get("parameters", ())
    named = {part["$ref"].rsplit("/", 1)[1] for part in item}
    assert named == {part.strip("{}") for part in route.path.split("/") if part.startswith("{")}


def _is_of(module: Any, name: str) -> bool:
    """Return whether the module defines the type, and does not only import it."""
    found = getattr(module, name, None)
    return found is not None and not (
        isinstance(found, type) and found.__module__ != module.__name__
    )


def is_answer(struct: type[msgspec.Struct]) -> bool:
    return issubclass(struct, rest_messages.Response | scan_planning._PlannedFile)


DESCRIBED = [
    struct
    for module in (*MESSAGES, rest_updates)
    for struct in structs_in(module)
    if not is_answer(struct)
]


@pytest.mark.parametrize("struct", DESCRIBED, ids=lambda struct: struct.__name__)
def test_a_request_has_the_fields_that_its_schema_has(struct: type[msgspec.Struct]) -> None:
    schema = SCHEMAS[struct.__name__]
    config = struct.__struct_config__
    fields = msgspec.structs.fields(struct)
    names = {field.encode_name for field in fields}
    required = {field.encode_name for field in fields if field.required}
    if config.tag is not None:
        names.add(str(config.tag_field))
        required.add(str(config.tag_field))
        assert schema["properties"][config.tag_field]["const"] == config.tag
    assert set(schema["properties"]) == names
    assert set(schema.get("required", ())) == required
    assert (schema.get("additionalProperties") is False) == bool(config.forbid_unknown_fields)


@pytest.mark.parametrize(
    ("name", "union"),
    [
        ("TableUpdate", rest_updates.TableUpdate),
        ("ViewUpdate", rest_updates.ViewUpdate),
        ("TableRequirement", rest_updates.TableRequirement),
        ("ViewRequirement", rest_updates.ViewRequirement),
        ("ReportMetricsRequest", rest_messages.ReportMetricsRequest),
        ("FineGrainedUpdate", file_actions.FineGrainedUpdate),
        ("CommitValidation", file_actions.CommitValidation),
    ],
)
def test_unions_have_the_same_members(name: str, union: Any) -> None:
    members = get_args(union) if isinstance(union, UnionType) else (union,)
    described = SCHEMAS[name]
    listed = {item["$ref"].rsplit("/", 1)[1] for item in described["oneOf"]}
    assert listed == {member.__name__ for member in members}
    mapping = described["discriminator"]["mapping"]
    assert mapping == {
        member.__struct_config__.tag: f"#/components/schemas/{member.__name__}"
        for member in members
    }


@pytest.mark.parametrize(
    ("struct", "schema"),
    [
        (rest_messages.ConfigResponse, "CatalogConfig"),
        (rest_messages.ListNamespacesResponse, "ListNamespacesResponse"),
        (rest_messages.ListTablesResponse, "ListTablesResponse"),
        (rest_messages.NamespaceResponse, "NamespaceResponse"),
        (rest_messages.UpdateNamespacePropertiesResponse, "UpdateNamespacePropertiesResponse"),
        (rest_messages.MinimalTransactionResponse, "MinimalTransactionResponse"),
        (job_messages.Job, "Job"),
        (job_messages.ListJobsResponse, "ListJobsResponse"),
        (job_messages.ClaimJobResponse, "ClaimJobResponse"),
        *((struct, struct.__name__) for struct in structs_in(leases) if is_answer(struct)),
    ],
)
def test_answers_have_the_fields_that_their_schemas_have(
    struct: type[msgspec.Struct], schema: str
) -> None:
    names = {field.encode_name for field in msgspec.structs.fields(struct)}
    assert set(SCHEMAS[schema]["properties"]) == set(SCHEMAS[schema]["required"]) == names


# --- fine-grained commits: every field, bound, list of values and default -------------------------

FILE_SCHEMAS: dict[type[msgspec.Struct], str] = {
    declared_content.DeclaredDataFile: "DataFile",
    declared_content.UpperCaseDataFile: "DataFile",
    declared_content.PositionDeleteFile: "PositionDeleteFile",
    declared_content.UpperCasePositionDeleteFile: "PositionDeleteFile",
    declared_content.EqualityDeleteFile: "EqualityDeleteFile",
    declared_content.UpperCaseEqualityDeleteFile: "EqualityDeleteFile",
}
"""The schema name of each struct of a file. One schema covers both cases of the content value."""


def schema_name(struct: type[msgspec.Struct]) -> str:
    return FILE_SCHEMAS.get(struct, struct.__name__)


UNIONS = {
    "DeleteFile": declared_content.AddedDeleteFile,
    "CommitValidation": file_actions.CommitValidation,
    "FineGrainedUpdate": file_actions.FineGrainedUpdate,
    "TableUpdate": rest_updates.TableUpdate,
    "TableRequirement": rest_updates.TableRequirement,
    "CommitUpdate": file_actions.CommitUpdate,
}
"""The unions that have a name in the document."""

RAW: dict[str, Any] = {"raw": "read elsewhere"}
"""Stands for a value that the wire format leaves undecoded. It matches any description."""

REMARKS = {"description", "format", "default", "discriminator", "maxItems"}


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def any_of(kinds: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the alternatives in a normal order. `number` includes `integer`, and a single
    alternative is returned without `anyOf`."""
    flat = [inner for kind in kinds for inner in kind.get("anyOf", [kind])]
    unique = {json.dumps(kind, sort_keys=True): kind for kind in flat}
    if json.dumps({"type": "number"}) in unique:
        unique.pop(json.dumps({"type": "integer"}), None)
    ordered = [unique[text] for text in sorted(unique)]
    return ordered[0] if len(ordered) == 1 else {"anyOf": ordered}


def described(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema of the document in the normal form for comparison."""
    known = {name: value for name, value in schema.items() if name not in REMARKS}
    if "oneOf" in known or "anyOf" in known:
        return any_of(map(described, known.get("oneOf") or known["anyOf"]))
    if known.get("$ref", "").rsplit("/", 1)[-1] in UNIONS:
        return described(SCHEMAS[known["$ref"].rsplit("/", 1)[1]])
    if isinstance(known.get("type"), list):
        return any_of(described(of_type(known, kind)) for kind in known["type"])
    if "const" in known:
        known["enum"] = [known.pop("const")]
    if "enum" in known:
        known["enum"] = sorted(known["enum"])
    for name in ("items", "additionalProperties"):
        if isinstance(known.get(name), dict):
            known[name] = described(known[name])
    return known


def of_type(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the part of a schema with several types that describes one of them."""
    if kind == "null":
        return {"type": "null"}
    enum = [value for value in schema.get("enum", ()) if value is not None]
    return schema | {"type": kind} | ({"enum": enum} if enum else {})


def declared(kind: inspect.Type) -> dict[str, Any]:
    """Return the schema of a type of the code, in the same normal form."""
    match kind:
        case inspect.RawType():
            return RAW
        case inspect.AnyType():
            return {"type": "any"}
        case inspect.NoneType():
            return {"type": "null"}
        case inspect.BoolType():
            return {"type": "boolean"}
        case inspect.FloatType():
            return {"type": "number"}
        case inspect.IntType(ge=ge, le=le):
            return {"type": "integer"} | without_none(minimum=ge, maximum=le)
        case inspect.StrType(min_length=least, max_length=most, pattern=pattern):
            limits = without_none(minLength=least, maxLength=most, pattern=pattern)
            return {"type": "string"} | limits
        case inspect.LiteralType(values=values):
            return {"type": "string", "enum": sorted(map(str, values))}
        case inspect.VarTupleType(item_type=item, min_length=least):
            return {"type": "array", "items": declared(item)} | without_none(minItems=least)
        case inspect.DictType(key_type=inspect.IntType()):
            # JSON object keys that are field ids. The struct itself checks the allowed values.
            primitive = [{"type": name} for name in ("boolean", "number", "string", "null")]
            keys = {"propertyNames": {"pattern": "^(0|[1-9][0-9]*)$"}}
            return {"type": "object", "additionalProperties": any_of(primitive)} | keys
        case inspect.DictType(value_type=value):
            return {"type": "object", "additionalProperties": declared(value)}
        case inspect.UnionType(types=types):
            return any_of(map(declared, types))
        case inspect.StructType(cls=struct):
            return ref(schema_name(struct))
    raise TypeError(f"no JSON schema for {kind}")


def without_none(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def structs_of(kind: inspect.Type) -> Iterator[inspect.StructType]:
    """Return every struct inside a type."""
    found: dict[type, inspect.StructType] = {}
    waiting = [kind]
    while waiting:
        at = waiting.pop()
        match at:
            case inspect.StructType(cls=struct) if struct not in found:
                found[struct] = at
                waiting.extend(field.type for field in at.fields)
            case inspect.UnionType(types=types):
                waiting.extend(types)
            case inspect.VarTupleType(item_type=item):
                waiting.append(item)
    return iter(found.values())


COMMIT_STRUCTS = list(structs_of(inspect.type_info(rest_messages.CommitTransactionRequest)))


def test_all_structs_of_the_wire_are_part_of_a_commit() -> None:
    """This makes sure that the tests below compare every struct."""
    reached = {struct.cls for struct in COMMIT_STRUCTS}
    for module in (file_actions, declared_content):
        for struct in structs_in(module):
            family = reached & set(struct.__subclasses__()) or any(
                struct in member.__mro__ for member in reached
            )
            assert struct in reached or family, struct


PLANNING_STRUCTS = [
    struct
    for kind in [*structs_in(scan_planning), *structs_in(leases)]
    if not is_answer(kind)
    for struct in structs_of(inspect.type_info(kind))
]


@pytest.mark.parametrize(
    "struct", COMMIT_STRUCTS + PLANNING_STRUCTS, ids=lambda struct: struct.cls.__name__
)
def test_a_request_is_described_field_by_field(struct: inspect.StructType) -> None:
    name = schema_name(struct.cls)
    schema = SCHEMAS[name]
    properties = schema["properties"]
    assert schema["type"] == "object"
    assert schema.get("additionalProperties", True) is not struct.forbid_unknown_fields
    tag_field = {struct.tag_field} if struct.tag_field else set()
    assert set(properties) == {field.encode_name for field in struct.fields} | tag_field
    required = {field.encode_name for field in struct.fields if field.required} | tag_field
    assert set(schema.get("required", ())) == required
    if struct.tag_field:
        assert struct.tag in described(properties[struct.tag_field])["enum"]
    for field in struct.fields:
        expected, written = declared(field.type), properties[field.encode_name]
        if expected is not RAW and struct.cls.__name__ not in NARROWER:
            assert described(written) == expected, f"{name}.{field.encode_name}"
        if "default" in written:
            assert written["default"] == field.default, f"{name}.{field.encode_name}"


NARROWER = {"SetSnapshotRef", "TableIdentifier", "UpgradeFormatVersion"}
"""The document describes these more narrowly than the decoder: the rest is checked afterward."""


def test_every_content_has_both_of_its_names() -> None:
    for struct, name in FILE_SCHEMAS.items():
        enum = SCHEMAS[name]["properties"]["content"]["enum"]
        assert struct.__struct_config__.tag in enum
        assert len(enum) == 2


@pytest.mark.parametrize(
    "struct", [conflicts.Conflict, conflicts.ConflictSnapshot, conflicts.ConflictFile]
)
def test_conflicts_have_the_fields_that_their_schemas_have(struct: type[msgspec.Struct]) -> None:
    schema, fields = SCHEMAS[struct.__name__], msgspec.structs.fields(struct)
    assert set(schema["properties"]) == {field.encode_name for field in fields}
    assert set(schema["required"]) == {field.encode_name for field in fields if field.required}


def test_conflicts_name_every_clause() -> None:
    clauses = SCHEMAS["Conflict"]["properties"]["clause"]["enum"]
    assert set(clauses) == set(get_args(conflicts.ConflictClause))
    asked_for = SCHEMAS["CommitValidation"]["discriminator"]["mapping"]
    assert set(asked_for) < set(clauses)
    for name in ("files", "snapshots"):
        listed = SCHEMAS["Conflict"]["properties"][name]
        assert listed["maxItems"] == conflicts.MAX_CONFLICT_ITEMS


def test_what_was_committed_is_described_in_every_answer() -> None:
    fields = msgspec.structs.fields(CommittedSnapshot)
    entry = SCHEMAS["CommittedSnapshot"]
    assert set(entry["properties"]) == {field.encode_name for field in fields}
    assert set(entry["required"]) == {field.encode_name for field in fields if field.required}
    names = {f.encode_name for f in msgspec.structs.fields(rest_messages.MinimalCommitResponse)}
    assert set(SCHEMAS["MinimalCommitResponse"]["properties"]) | {"identifier"} == names
    listed = SCHEMAS["MinimalTransactionResponse"]["properties"]["tables"]["items"]
    assert set(listed["properties"]) == names
    assert {"committed", "already-committed"} <= set(SCHEMAS["CommitTableResponse"]["properties"])


# --- fine-grained commits: examples ---------------------------------------------------------------

COMMIT_SCHEMA = Draft202012Validator(
    {"$ref": "#/components/schemas/CommitTableRequest", "components": DOCUMENT["components"]}
)
DATA_FILE: dict[str, Any] = {
    "content": "data",
    "spec-id": 0,
    "partition": ["2024-05-01", None],
    "file-path": "s3://bucket/t/1.parquet",
    "file-format": "parquet",
    "file-size-in-bytes": 1024,
    "record-count": 10,
    "lower-bounds": {"keys": [1, 2], "values": [1, "a"]},
    "null-value-counts": {"keys": [1], "values": [0]},
}
VECTOR = DATA_FILE | {
    "content": "POSITION_DELETES",
    "file-path": "s3://bucket/t/1.puffin",
    "file-format": "PUFFIN",
    "content-offset": 4,
    "content-size-in-bytes": 40,
    "referenced-data-file": "s3://bucket/t/1.parquet",
}
FILTER = {
    "type": "and",
    "left": {"type": "eq", "term": "day", "value": "2024-05-01"},
    "right": True,
}
ACCEPTED: list[dict[str, Any]] = [
    {"action": "append", "add-data-files": [DATA_FILE]},
    {"action": "append", "add-data-files": [DATA_FILE | {"partition": {"1000": 19844}}]},
    {"action": "overwrite", "add-data-files": [DATA_FILE], "replace-partitions": True},
    {
        "action": "overwrite",
        "add-delete-files": [VECTOR],
        "remove-delete-files": [{"file-path": "s3://bucket/t/0.puffin", "content-offset": 4}],
        "base-snapshot-id": 7,
        "commit-validations": {
            "type": "required-data-files",
            "file-paths": ["s3://bucket/t/1.parquet"],
            "allowed-remove-operations": ["REPLACE"],
        },
    },
    {
        "action": "replace",
        "remove-data-files": ["a", DATA_FILE | {"file-path": "b"}],
        "add-data-files": [DATA_FILE],
        "data-sequence-number": 3,
        "base-snapshot-id": 7,
    },
    {"action": "delete", "delete-row-filter": FILTER, "case-sensitive": False, "branch": "audit"},
    {
        "action": "delete",
        "delete-row-filter": {
            "type": "in",
            "child": {"type": "transform", "transform": "bucket[4]", "term": "id"},
            "values": [1, {"type": "literal", "value": 2, "data-type": "int"}],
        },
        "commit-validations": [
            {"type": "not-allowed-added-data-files", "filter": FILTER},
            {"type": "required-delete-files", "file-paths": ["p", {"file-path": "q"}]},
        ],
    },
    {"action": "cherry-pick", "snapshot-id": 7},
    {"action": "set-properties", "updates": {"a": "b"}},
]
REFUSED: list[dict[str, Any]] = [
    {"action": "append", "add-data-files": [DATA_FILE | {"nope": 1}]},
    {"action": "append", "add-data-files": [DATA_FILE | {"content": "position-deletes"}]},
    {"action": "append", "add-data-files": [DATA_FILE | {"file-format": "csv"}]},
    {"action": "append", "add-data-files": [DATA_FILE | {"record-count": -1}]},
    {"action": "append", "add-data-files": [DATA_FILE | {"partition": {"x": 1}}]},
    {"action": "append", "add-data-files": [DATA_FILE | {"lower-bounds": {"keys": [1]}}]},
    {"action": "append", "add-data-files": [{"file-path": "p"}]},
    {"action": "append", "add-data-files": ["p"]},
    {"action": "append", "delete-row-filter": True},
    {"action": "delete", "add-data-files": [DATA_FILE]},
    {"action": "delete", "remove-data-files": [""]},
    {"action": "delete", "commit-validations": [{"type": "nothing-changed"}]},
    {"action": "delete", "commit-validations": [{"type": "required-data-files", "x": 1}]},
    {"action": "cherry-pick"},
    {"action": "cherry-pick", "snapshot-id": 7, "stage-only": True},
    {"action": "upsert"},
]


def commit_of(update: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"requirements": [], "updates": [update], **more}


@pytest.mark.parametrize("update", ACCEPTED)
def test_what_the_schema_allows_the_wire_takes(update: dict[str, Any]) -> None:
    commit = commit_of(update)
    COMMIT_SCHEMA.validate(commit)
    request = decode(rest_messages.CommitTableRequest, json.dumps(commit).encode())
    file_actions.check_request(request.updates)


@pytest.mark.parametrize("update", REFUSED)
def test_what_the_wire_refuses_the_schema_forbids(update: dict[str, Any]) -> None:
    commit = commit_of(update)
    assert not COMMIT_SCHEMA.is_valid(commit)
    with pytest.raises(BadRequest):
        decode(rest_messages.CommitTableRequest, json.dumps(commit).encode())


@pytest.mark.parametrize(
    ("once", "valid"),
    [
        ({"id": "q", "epoch": 0}, True),
        (None, True),
        ({"id": "", "epoch": 0}, False),
        ({"id": "q", "epoch": -1}, False),
        ({"id": "q"}, False),
        ({"id": "q", "epoch": 1, "branch": "b"}, False),
    ],
)
def test_once_is_described_as_it_is_read(once: Any, valid: bool) -> None:
    commit = commit_of(ACCEPTED[0], once=once)
    assert COMMIT_SCHEMA.is_valid(commit) is valid
    try:
        decode(rest_messages.CommitTableRequest, json.dumps(commit).encode())
        taken = True
    except BadRequest:
        taken = False
    assert taken is valid


def test_nothing_is_described_that_nobody_refers_to() -> None:
    text = openapi().decode()
    for kind in ("schemas", "parameters", "responses"):
        for name in DOCUMENT["components"][kind]:
            assert f'"#/components/{kind}/{name}"' in text, name
