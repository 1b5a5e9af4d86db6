"""The client's filters, built from objects or written as text, checked by two references.

The server's parser must accept all JSON that the client produces. PyIceberg's parser must select
the same rows for the texts that both understand.
"""

from __future__ import annotations

import functools
import operator
import re
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.parser import parse as oracle_parse
from pyiceberg.expressions.visitors import expression_evaluator
from pyiceberg.schema import Schema as OracleSchema
from pyiceberg.typedef import Record

from frazil.format.expr.expression_binding import bind
from frazil.format.metadata.schema import parse_schema
from frazil.wire.errors import BadRequest
from frazil.wire.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    Expression,
    all_of,
    any_of,
    parse_expression,
)
from frazil.wire.filter_builders import (
    always_false,
    always_true,
    bucket,
    col,
    day,
    filter_json,
    hour,
    month,
    truncate,
    year,
)
from frazil.wire.filter_text import filter_text, parse_filter
from frazil.wire.json_bodies import check_text

SCHEMA_JSON = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": position, "name": name, "type": type_, "required": False}
        for position, (name, type_) in enumerate(
            {
                "b": "boolean",
                "i": "int",
                "l": "long",
                "f": "double",
                "s": "string",
                "d": "date",
                "t": "time",
                "ts": "timestamp",
                "tz": "timestamptz",
                "ns": "timestamp_ns",
                "dec": "decimal(38, 4)",
                "u": "uuid",
                "bin": "binary",
                "a b": "int",
                "day": "date",
                "pre_x": "string",
            }.items(),
            1,
        )
    ],
}
SCHEMA = parse_schema(msgspec.json.encode(SCHEMA_JSON))


def sent(filter: Expression | dict[str, Any] | str) -> dict[str, Any]:
    """Return the filter's JSON after the server has parsed it and bound it to the columns."""
    json = filter_json(filter)
    body = msgspec.json.encode(json)
    check_text(body)
    bind(parse_expression(msgspec.json.decode(body)), SCHEMA)
    return json


# --- builders --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "json"),
    [
        (col("i") == 5, {"type": "eq", "term": "i", "value": 5}),
        (col("i") != 5, {"type": "not-eq", "term": "i", "value": 5}),
        (col("i") < 5, {"type": "lt", "term": "i", "value": 5}),
        (col("i") <= 5, {"type": "lt-eq", "term": "i", "value": 5}),
        (col("i") > 5, {"type": "gt", "term": "i", "value": 5}),
        (col("i") >= 5, {"type": "gt-eq", "term": "i", "value": 5}),
        (operator.lt(5, col("i")), {"type": "gt", "term": "i", "value": 5}),
        (col("i").is_in([1, 2]), {"type": "in", "term": "i", "values": [1, 2]}),
        (col("i").not_in((1, 2)), {"type": "not-in", "term": "i", "values": [1, 2]}),
        (col("i").is_in([]), {"type": "false"}),
        (col("i").not_in([]), {"type": "true"}),
        (col("s").is_null(), {"type": "is-null", "term": "s"}),
        (col("s").not_null(), {"type": "not-null", "term": "s"}),
        (col("f").is_nan(), {"type": "is-nan", "term": "f"}),
        (col("f").not_nan(), {"type": "not-nan", "term": "f"}),
        (col("s").starts_with("a"), {"type": "starts-with", "term": "s", "value": "a"}),
        (col("s").not_starts_with("a"), {"type": "not-starts-with", "term": "s", "value": "a"}),
        (always_true(), {"type": "true"}),
        (always_false(), {"type": "false"}),
        (~(col("s").is_null()), {"type": "not", "child": {"type": "is-null", "term": "s"}}),
    ],
)
def test_a_predicate_has_icebergs_json(expression: Expression, json: dict[str, Any]) -> None:
    assert sent(expression) == json


def test_transforms_are_terms() -> None:
    def term(transform: str, name: str) -> dict[str, str]:
        return {"type": "transform", "transform": transform, "term": name}

    assert sent(bucket(16, "i") == 3)["term"] == term("bucket[16]", "i")
    assert sent(truncate(4, "s").is_in(["abcd"]))["term"] == term("truncate[4]", "s")
    assert sent(year("ts") >= 56)["term"] == term("year", "ts")
    assert sent(month("d") == 670)["term"] == term("month", "d")
    assert sent(day("ts") == date(2026, 5, 1))["value"] == "2026-05-01"
    assert sent(hour("tz").not_null())["term"] == term("hour", "tz")


@pytest.mark.parametrize(
    ("name", "value", "json"),
    [
        ("b", True, True),
        ("l", -(2**63), -(2**63)),
        ("f", 0.1, 0.1),
        ("s", "it's", "it's"),
        ("d", date(2026, 5, 1), "2026-05-01"),
        ("t", time(10, 30, 0, 250), "10:30:00.000250"),
        ("ts", datetime(2026, 5, 1, 10), "2026-05-01T10:00:00"),
        ("ns", datetime(2026, 5, 1, 10, 0, 0, 5), "2026-05-01T10:00:00.000005"),
        ("tz", datetime(2026, 5, 1, 10, tzinfo=UTC), "2026-05-01T10:00:00+00:00"),
        (
            "tz",
            datetime(2026, 5, 1, 10, tzinfo=timezone(timedelta(hours=2))),
            "2026-05-01T08:00:00+00:00",
        ),
        ("dec", Decimal("-1.50"), "-1.50"),
        ("dec", Decimal("1E+3"), "1E+3"),
        ("dec", 10**30, str(10**30)),
        (
            "u",
            UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"),
            "f79c3e09-677c-4bbd-a479-3f349cb785e7",
        ),
        ("bin", b"\x00\xff", "00ff"),
    ],
)
def test_python_values_become_single_values(name: str, value: Any, json: object) -> None:
    assert sent(col(name) == value)["value"] == json
    assert sent(col(name).is_in([value]))["values"] == [json]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: col("i") == None, "i: nothing equals null: use is_null"),  # noqa: E711
        (lambda: col("f") == float("nan"), "f: nothing equals NaN: use is_nan"),
        (lambda: col("f") < float("inf"), "an infinity has no JSON value"),
        (lambda: col("dec") == Decimal("NaN"), "is not a decimal"),
        (lambda: col("i") == object(), "must be one of .*bytes.*, not object"),
        (lambda: col("i") == col("l"), "two columns cannot be compared"),  # type: ignore[operator]
        (lambda: col("s").is_in("abc"), "give is_in a list of values"),
        (lambda: col("s").is_in([None]), "nothing equals null"),  # type: ignore[list-item]
        (lambda: col("s").starts_with(5), "a prefix must be a str, not int"),  # type: ignore[arg-type]
        (lambda: col("t") == time(1, tzinfo=UTC), "a time has no zone"),
        (lambda: col(""), "named by a str"),
        (lambda: bucket(0, "i"), "bucket takes a positive int first"),
        (lambda: truncate("s", 4), "truncate takes a positive int first"),  # type: ignore[arg-type]
        (lambda: filter_json(5), "must be an expression, its JSON or text, not int"),  # type: ignore[arg-type]
        (lambda: filter_json({"term": "i"}), "has a type"),
    ],
)
def test_what_cannot_be_a_filter_is_named(make: Any, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        make()


def test_a_filter_has_no_truth_of_its_own() -> None:
    with pytest.raises(TypeError, match="combine filters with &"):
        bool((col("i") == 5) and (col("l") == 6))
    with pytest.raises(TypeError, match="combine filters with &"):
        bool(1 < col("i") < 5)
    with pytest.raises(TypeError):
        _ = (col("i") == 5) & True  # type: ignore[operator]


def test_expressions_are_values() -> None:
    first, second = col("i") == 5, col("s").is_null()
    assert first == (col("i") == 5)
    assert {first, second} == {second, first}
    assert ~~first is first
    assert first & second & first == all_of(first, second, first)
    assert (first | always_false()) == first
    assert (first & always_false()) == AlwaysFalse()
    assert (any_of(), all_of()) == (AlwaysFalse(), AlwaysTrue())
    assert (~AlwaysFalse(), ~AlwaysTrue()) == (AlwaysTrue(), AlwaysFalse())
    with pytest.raises(AttributeError):
        first.operation = "lt"  # type: ignore[attr-defined]


def depth(json: dict[str, Any]) -> int:
    return 1 + max(
        (depth(json[key]) for key in ("left", "right", "child") if key in json), default=0
    )


@pytest.mark.parametrize("join", [operator.and_, operator.or_])
def test_long_chains_stay_shallow(join: Any) -> None:
    chain = functools.reduce(join, [col("l") != number for number in range(5_000)])
    json = sent(chain)
    assert depth(json) <= 14
    word = " AND " if join is operator.and_ else " or "
    assert sent(word.join(f"l <> {number}" for number in range(5_000))) == json


def test_deep_trees_are_refused_without_running_out_of_stack() -> None:
    deep = functools.reduce(
        lambda tree, number: ~(tree & (col("l") == number)), range(5_000), col("i") == 1
    )
    with pytest.raises(BadRequest, match="nested too deeply"):
        deep.to_json()


def test_json_is_passed_on() -> None:
    given_json = {"type": "eq", "left": {"type": "reference", "name": "i"}, "right": 5}
    assert sent(given_json) == given_json
    assert filter_json(given_json) is not given_json


# --- text ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("i = 5", col("i") == 5),
        ("i == +5", col("i") == 5),
        ("i<>-5", col("i") != -5),
        ("-5 < i", col("i") > -5),
        ("5 >= i", col("i") <= 5),
        ("true = b", col("b") == True),  # noqa: E712
        ("f >= 1.5e3", col("f") >= 1500.0),
        ("f < .5", col("f") < 0.5),
        ("dec = 12345678901234567890.1234", col("dec") == Decimal("12345678901234567890.1234")),
        ("dec = 123456789012345678901", col("dec") == 123456789012345678901),
        ("s = 'it''s'", col("s") == "it's"),
        ("s = ''", col("s") == ""),
        ("i IN (1, 2,3)", col("i").is_in([1, 2, 3])),
        ("i not  in (1)", col("i").not_in([1])),
        ("i between 1 and 5 and l = 2", (col("i") >= 1) & (col("i") <= 5) & (col("l") == 2)),
        ("i not between 1 and 5", ~((col("i") >= 1) & (col("i") <= 5))),
        ("s is null or S1 IS NOT NULL", col("s").is_null() | col("S1").not_null()),
        ("f is nan and f is not NaN", col("f").is_nan() & col("f").not_nan()),
        ("s like 'ab%'", col("s").starts_with("ab")),
        ("s not like 'ab%'", col("s").not_starts_with("ab")),
        ("s like '%'", col("s").starts_with("")),
        (r"s like '50\% of\_\\%'", col("s").starts_with("50% of_\\")),
        ("s like 'ab'", col("s") == "ab"),
        ("s not like 'ab'", col("s") != "ab"),
        ("not i = 1 and l = 2", ~(col("i") == 1) & (col("l") == 2)),
        ("not not not i = 1", ~(col("i") == 1)),
        ("i = 1 or i = 2 and l = 3", (col("i") == 1) | ((col("i") == 2) & (col("l") == 3))),
        ("(i = 1 or i = 2) and l = 3", ((col("i") == 1) | (col("i") == 2)) & (col("l") == 3)),
        ("TRUE", always_true()),
        ("i = 1 and (false)", always_false()),
        ('"a b" = 1', col("a b") == 1),
        ("`a b` = 1", col("a b") == 1),
        ('"say ""x""".y = 1', col('say "x".y') == 1),
        ("point.x.`y z` > 1", col("point.x.y z") > 1),
        ('"null" is null', col("null").is_null()),
        ("größe = 1", col("größe") == 1),
        ("day = '2026-05-01'", col("day") == "2026-05-01"),
        ("day(ts) = DATE '2026-05-01'", day("ts") == date(2026, 5, 1)),
        ("date = date '2026-05-01'", col("date") == date(2026, 5, 1)),
        ("date '2026-05-01' <= d", col("d") >= date(2026, 5, 1)),
        ("t = TIME '10:30:00'", col("t") == time(10, 30)),
        ("ts > TIMESTAMP '2026-05-01 10:30:00'", col("ts") > datetime(2026, 5, 1, 10, 30)),
        ("ts > timestamp '2026-05-01'", col("ts") > datetime(2026, 5, 1)),
        (
            "tz > timestamp '2026-05-01T10:30:00+00:00'",
            col("tz") > datetime(2026, 5, 1, 10, 30, tzinfo=UTC),
        ),
        ("bucket(16, id) in (3)", bucket(16, "id").is_in([3])),
        ("TRUNCATE(4, a.b) = 'abcd'", truncate(4, "a.b") == "abcd"),
        ("year(ts) = 56 and month(ts)=1", (year("ts") == 56) & (month("ts") == 1)),
        ("hour(ts) is not null", hour("ts").not_null()),
        ("2 != bucket(4, i)", bucket(4, "i") != 2),
        ("  i\n=\t5  ", col("i") == 5),
        ("i=1 and b = false", (col("i") == 1) & (col("b") == False)),  # noqa: E712
    ],
)
def test_text_means_what_it_says(text: str, same: Expression) -> None:
    assert parse_filter(text) == same
    parse_expression(filter_json(text))


def test_instants_and_nanoseconds_are_kept() -> None:
    # The server accepts any offset in a filter; dropping digits would change what matches.
    assert sent("tz >= timestamp '2026-05-01T10:00:00+02:00'")["value"].endswith("10:00:00+02:00")
    assert sent("ns = timestamp '2026-05-01 10:00:00.123456789'")["value"].endswith(".123456789")


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("", 1, "expected a column, found the end"),
        ("i", 2, "expected a comparison, IS, NOT, IN, BETWEEN or LIKE, found the end"),
        ("i =", 4, "expected a literal"),
        ("i = l", 5, "expected a literal: .*, found l"),
        ("i = null", 5, "use IS NULL instead"),
        ("i is 5", 6, "expected NULL, NAN or NOT, found 5"),
        ("i is not 5", 10, "expected NULL or NAN, found 5"),
        ("i not 5", 7, "expected IN, BETWEEN or LIKE, found 5"),
        ("i in 5", 6, r"expected '\(', found 5"),
        ("i in ()", 7, r"expected a literal: .*, found \)"),
        ("i in (1 2)", 9, r"expected ',' or '\)', found 2"),
        ("i in (1,)", 9, "expected a literal"),
        ("i between 1 or 2", 13, "expected AND of BETWEEN, found or"),
        ("(i = 1", 7, r"expected AND, OR or '\)', found the end"),
        ("i = 1)", 6, r"expected AND, OR or the end, found \)"),
        ("i = 1 l = 2", 7, "expected AND, OR or the end, found l"),
        ("i = 1 and", 10, "expected a column, found the end"),
        ("and = 1", 1, "expected a column, found and"),
        ('"" = 1', 1, "expected a column"),
        ("a. = 1", 4, "expected a column, found ="),
        ("s = 'abc", 5, "the ' that begins here is never closed"),
        ('"abc = 1', 1, 'the " that begins here is never closed'),
        ("i = 5x", 5, "cannot read '?5x"),
        ("i @ 5", 3, "cannot read '?@"),
        ("s like '%a'", 8, "LIKE takes a prefix, as 'abc%': write .% for a % itself"),
        ("s like 'a_c'", 8, "write ._ for a _ itself"),
        ("s like 5", 8, "expected a string, found 5"),
        ("pow(2, i) = 4", 1, "expected one of the transforms bucket, truncate, .*, found pow"),
        ("bucket(id, 16) = 4", 8, r"a positive integer, as in bucket\(16, id\), found id"),
        ("bucket(0, id) = 4", 8, "a positive integer"),
        ("day(ts = 4", 8, r"expected '\)', found ="),
        ("d = DATE '2026-02-30'", 5, "2026-02-30"),
        ("ts = TIMESTAMP 'noon'", 6, "'noon' is not a timestamp as 2026"),
        ("5 is null", 3, "expected a comparison with a column, found is"),
        ("5 = 5", 5, "expected a column, found 5"),
        (f"i = {'9' * 201}", 5, "a number has at most 200 characters"),
        ("f = 1e99999999999999999999", 5, "a number with a smaller exponent"),
        ("(" * 101 + "i = 1" + ")" * 101, 101, "at most 100 parentheses"),
    ],
)
def test_errors_name_the_position_and_what_was_expected(
    text: str, position: int, message: str
) -> None:
    with pytest.raises(BadRequest, match=f"at character {position}: .*{message}"):
        parse_filter(text)


def test_a_long_text_is_shown_in_part() -> None:
    text = " and ".join(f"i = {number}" for number in range(1_000)) + " or"
    with pytest.raises(BadRequest) as caught:
        parse_filter(text)
    assert len(str(caught.value)) < 400
    assert "i = 999 or" in str(caught.value)


@given(st.text(alphabet="i5='\"`(),.<>!andorinotlike%_\\ \n", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    refusal = ""
    try:
        parse_expression(parse_filter(text).to_json())
    except BadRequest as error:
        refusal = error.message
    assert not refusal or re.match(r"filter, at character \d+: ", refusal)


# --- PyIceberg as an oracle ------------------------------------------------------------------

ORACLE_SCHEMA = OracleSchema.model_validate(
    {
        "type": "struct",
        "schema-id": 0,
        "fields": [
            {"id": 1, "name": "i", "type": "long", "required": False},
            {"id": 2, "name": "f", "type": "double", "required": False},
            {"id": 3, "name": "s", "type": "string", "required": False},
            {"id": 4, "name": "b", "type": "boolean", "required": False},
            {
                "id": 5,
                "name": "p",
                "required": False,
                "type": {
                    "type": "struct",
                    "fields": [{"id": 6, "name": "x y", "type": "long", "required": False}],
                },
            },
        ],
    }
)
ORACLE_JSON: TypeAdapter[Any] = TypeAdapter(BooleanExpression)
INTEGERS = st.integers(-3, 3).map(str)
FLOATS = st.sampled_from(["-1.5", "0.0", "0.5", "2.25", "1.0"])
STRINGS = st.sampled_from(["''", "'a'", "'ab'", "'it''s'", "'b'"])
BOOLEANS = st.sampled_from(["true", "FALSE"])
PREFIXES = st.sampled_from(["'%'", "'a%'", "'ab%'", "'it''s%'", "'ab'", "'50\\%%'"])
LITERALS = {"i": INTEGERS, "f": FLOATS, "s": STRINGS, "b": BOOLEANS, 'p."x y"': INTEGERS}


@st.composite
def predicates(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(list(LITERALS)))
    literal = LITERALS[name]
    kinds = ["comparison", "mirrored", "null", "in"]
    kinds += {"f": ["nan"], "s": ["like"], "i": ["between"]}.get(name, [])
    kind = draw(st.sampled_from(kinds))
    if kind in ("comparison", "mirrored"):
        ordered = ["<", "<=", ">", ">="] if name != "b" else []
        sign = draw(st.sampled_from(["=", "==", "!=", "<>", *ordered]))
        return (
            f"{name} {sign} {draw(literal)}"
            if kind == "comparison"
            else f"{draw(literal)} {sign} {name}"
        )
    negated = draw(st.sampled_from(["", "not "]))
    if kind in ("null", "nan"):
        return f"{name} IS {negated}{kind}"
    if kind == "like":
        return f"{name} {negated}like {draw(PREFIXES)}"
    if kind == "between":
        return f"{name} between {draw(literal)} and {draw(literal)}"
    values = draw(st.lists(literal, min_size=1, max_size=3))
    return f"{name} {negated}in ({', '.join(values)})"


TEXTS = st.recursive(
    predicates(),
    lambda inner: st.one_of(
        st.builds("{} AND {}".format, inner, inner),
        st.builds("{} or {}".format, inner, inner),
        st.builds("not ({})".format, inner),
        st.builds("({})".format, inner),
    ),
    max_leaves=5,
)
ROWS = st.builds(
    Record,
    st.none() | st.integers(-4, 4),
    st.none() | st.sampled_from([-1.5, 0.0, 0.5, 1.0, 2.25, 9.0, float("nan")]),
    st.none() | st.sampled_from(["", "a", "ab", "abc", "b", "it's", "it's me", "50%", "50%x"]),
    st.none() | st.booleans(),
    st.builds(Record, st.none() | st.integers(-4, 4)),
)


@given(TEXTS)
def test_a_written_text_means_the_same(text: str) -> None:
    expression = parse_filter(text)
    assert parse_filter(filter_text(expression)) == expression


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (col("s") == "it's", "s = 'it''s'"),
        (col("s").not_starts_with("50%_\\"), r"s NOT LIKE '50\%\_\\%'"),
        (col("a b").is_in([1, True]), '"a b" IN (1, TRUE)'),
        (bucket(16, "point.x y") != 3, 'bucket(16, point."x y") != 3'),
        (~(day("ts").is_null() | (col("null") < 1.5)), 'NOT ((day(ts) IS NULL OR "null" < 1.5))'),
        (always_true(), "TRUE"),
    ],
)
def test_expressions_are_written_as_text(expression: Expression, text: str) -> None:
    assert filter_text(expression) == text
    assert parse_filter(text) == expression


@given(TEXTS, st.lists(ROWS, min_size=5, max_size=20))
def test_pyiceberg_reads_the_same_from_a_text(text: str, rows: list[Record]) -> None:
    theirs = expression_evaluator(ORACLE_SCHEMA, oracle_parse(text), case_sensitive=True)
    ours = ORACLE_JSON.validate_python(filter_json(text))
    evaluate = expression_evaluator(ORACLE_SCHEMA, ours, case_sensitive=True)
    for row in rows:
        assert evaluate(row) == theirs(row), (text, row)
