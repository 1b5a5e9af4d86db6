"""The OpenAPI file and the code describe the same routes and the same requests."""

from __future__ import annotations

import json
from types import UnionType
from typing import Any, get_args

import msgspec
import pytest
from openapi_spec_validator import validate

from frazil.rest.routes import ROUTES
from frazil.rest.service import openapi
from frazil.wire import requests, responses, updates
from tests.rest.stand_in import Client

DOCUMENT: dict[str, Any] = json.loads(openapi())
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
METHODS = {"get", "head", "post", "put", "delete", "patch", "options", "trace"}
OPERATIONS = {
    (method.upper(), path): operation
    for path, item in DOCUMENT["paths"].items()
    for method, operation in item.items()
    if method in METHODS
}


def structs_in(module: Any) -> list[type[msgspec.Struct]]:
    bases = {requests.Request, requests.Report, updates.Update, updates.Requirement}
    bases |= {responses.Response, msgspec.Struct}
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
        assert getattr(requests, schema) == route.request
        assert {"413", "415"} <= set(operation["responses"])
    references = {
        item.get("$ref", "").rsplit("/", 1)[-1] for item in operation.get("parameters", ())
    }
    assert ("idempotency-key" in references) == route.changes
    assert (operation.get("security") == []) == route.open
    assert not (route.commits and "503" in operation["responses"])
    item = DOCUMENT["paths"][route.path].get("parameters", ())
    named = {part["$ref"].rsplit("/", 1)[1] for part in item}
    assert named == {part.strip("{}") for part in route.path.split("/") if part.startswith("{")}


DESCRIBED = structs_in(requests) + structs_in(updates)


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
        ("TableUpdate", updates.TableUpdate),
        ("ViewUpdate", updates.ViewUpdate),
        ("TableRequirement", updates.TableRequirement),
        ("ViewRequirement", updates.ViewRequirement),
        ("ReportMetricsRequest", requests.ReportMetricsRequest),
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
        (responses.ConfigResponse, "CatalogConfig"),
        (responses.ListNamespacesResponse, "ListNamespacesResponse"),
        (responses.ListTablesResponse, "ListTablesResponse"),
        (responses.NamespaceResponse, "NamespaceResponse"),
        (responses.UpdateNamespacePropertiesResponse, "UpdateNamespacePropertiesResponse"),
        (responses.MinimalTransactionResponse, "MinimalTransactionResponse"),
    ],
)
def test_answers_have_the_fields_that_their_schemas_have(
    struct: type[msgspec.Struct], schema: str
) -> None:
    names = {field.encode_name for field in msgspec.structs.fields(struct)}
    assert set(SCHEMAS[schema]["properties"]) == set(SCHEMAS[schema]["required"]) == names


def test_nothing_is_described_that_nobody_refers_to() -> None:
    text = openapi().decode()
    for kind in ("schemas", "parameters", "responses"):
        for name in DOCUMENT["components"][kind]:
            assert f'"#/components/{kind}/{name}"' in text, name
