"""The canonical form of locations, against malicious input."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from frazil.store.locations import (
    AllowedLocations,
    Location,
    canonical_location,
    default_namespace_location,
    is_within,
    parse_location,
    table_location_in,
)
from frazil.wire.errors import BadRequest

# --- one place, many spellings ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("/none/a", "file:///none/a"),
        ("/none/a/", "file:///none/a"),
        ("/none/a///", "file:///none/a"),
        ("/none//a", "file:///none/a"),
        ("/", "file:///"),
        ("file:/none/a", "file:///none/a"),
        ("file:///none/a", "file:///none/a"),
        ("file:////none//a", "file:///none/a"),
        ("file://localhost/none/a", "file:///none/a"),
        ("file://LocalHost/none/a", "file:///none/a"),
        ("FILE:///none/a", "file:///none/a"),
        ("File:/none/a", "file:///none/a"),
        ("file:///", "file:///"),
        ("file:///none/a b", "file:///none/a b"),
        ("file:///none/a%20b", "file:///none/a%20b"),
        ("file:///none/100%", "file:///none/100%"),
        ("file:///none/é", "file:///none/é"),
        ("file:///none/...", "file:///none/..."),
        ("file:///none/..a/b..", "file:///none/..a/b.."),
        ("file:///none/name=..", "file:///none/name=.."),
        ("file:///none/C:/x", "file:///none/C:/x"),
        ("s3://bucket/a/b", "s3://bucket/a/b"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("s3a://bucket/a", "s3://bucket/a"),
        ("s3n://bucket/a", "s3://bucket/a"),
        ("S3A://bucket/a", "s3://bucket/a"),
        ("S3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://my.bucket-1_x/a", "s3://my.bucket-1_x/a"),
        ("s3://bucket/A/a", "s3://bucket/A/a"),
        ("s3://bucket/a%2Fb", "s3://bucket/a%2Fb"),
        ("s3://bucket/a%2e%2e/b", "s3://bucket/a%2e%2e/b"),
        ("s3://bucket/日本", "s3://bucket/日本"),
        ("s3://bucket/a:b@c", "s3://bucket/a:b@c"),
        ("memory://x/a", "memory://x/a"),
    ],
)
def test_spellings_of_one_place_have_one_form(text: str, canonical: str) -> None:
    found = canonical_location(text)

    assert str(found) == canonical
    assert str(canonical_location(str(found))) == canonical


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "absolute"),
        ("warehouse", "absolute"),
        ("./warehouse", "absolute"),
        ("../warehouse", "absolute"),
        ("~/warehouse", "absolute"),
        (" /warehouse", "absolute"),
        ("//host/share", "begins with '//'"),
        ("///etc", "begins with '//'"),
        ("file:", "relative"),
        ("file:a", "relative"),
        ("file://", "relative"),
        ("file:..", "relative"),
        ("file://localhost", "relative"),
        ("file://host/a", "'host'"),
        ("file://127.0.0.1/a", "'127.0.0.1'"),
        ("file://user@localhost/a", "'user@localhost'"),
        ("file://localhost:80/a", "'localhost:80'"),
        ("file://../a", "'..'"),
        ("/a/../b", "segment"),
        ("/a/..", "segment"),
        ("/..", "segment"),
        ("/a/./b", "segment"),
        ("/a/.", "segment"),
        ("file:///a/../../etc/passwd", "segment"),
        ("file:///a/%2e%2e/b", "segment"),
        ("file:///a/%2E%2E/b", "segment"),
        ("file:///a/.%2e/b", "segment"),
        ("file:///a/%2e./b", "segment"),
        ("file:///a/%2e/b", "segment"),
        ("file:///a%2f..%2f..%2fetc", "segment"),
        ("/a%2F..%2Fb", "segment"),
        ("/a/%00", "control"),
        ("/a/%0a", "control"),
        ("/a/%7f", "control"),
        ("/a/%C2%80", "control"),
        ("/a/%ff", "UTF-8"),
        ("/a/%c3", "UTF-8"),
        ("/a/%ed%a0%80", "UTF-8"),
        ("/a\x00b", "control"),
        ("/a\nb", "control"),
        ("/a\r\n", "control"),
        ("/a\x7f", "control"),
        ("/a\x85b", "control"),
        ("\n/a", "control"),
        ("/a\ud800", "Unicode"),
        ("s3://b/\udcff", "Unicode"),
        ("/a?b", "'?'"),
        ("/a#b", "'#'"),
        ("file:///a?x=1", "'?'"),
        ("s3://bucket/a?versionId=1", "'?'"),
        ("s3://bucket/a#b", "'#'"),
        ("/a\\b", repr("\\")),
        ("s3://bucket/a\\..\\b", repr("\\")),
        ("C:\\warehouse", "'C'"),
        ("C:/warehouse", "'C'"),
        ("http://host/a", "'http'"),
        ("https://s3.amazonaws.com/b", "'https'"),
        ("gs://bucket/a", "'gs'"),
        ("s3b://bucket/a", "'s3b'"),
        ("jar:file:///a", "'jar'"),
        ("s3:", "bucket"),
        ("s3:bucket/a", "bucket"),
        ("s3:/bucket/a", "bucket"),
        ("s3://", "bucket"),
        ("s3:///a", "bucket"),
        ("s3://key:secret@bucket/a", "bucket"),
        ("s3://bucket:9000/a", "bucket"),
        ("s3://-bucket/a", "bucket"),
        ("s3://../a", "bucket"),
        ("s3://buck%65t/a", "bucket"),
        ("s3://bücket/a", "bucket"),
        ("s3://bucket//a", "empty path segment"),
        ("s3://bucket/a//b", "empty path segment"),
        ("s3://bucket/a//", "empty path segment"),
        ("s3a://bucket//", "empty path segment"),
        ("s3://bucket/../other/a", "segment"),
        ("s3://bucket/a/..", "segment"),
        ("s3://bucket/./a", "segment"),
        ("s3://bucket/" + "a" * 1100, "at most 1024"),
        ("/" + "a/" * 2100, "at most 4095"),
        ("/" + "a" * 300 + "/b", "too long"),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(text: str, reason: str) -> None:
    with pytest.raises(BadRequest) as raised:
        canonical_location(text, "write.data.path")
    assert reason in raised.value.message
    assert raised.value.message.startswith("write.data.path ")


def test_a_message_shows_only_the_beginning_of_a_huge_location() -> None:
    with pytest.raises(BadRequest) as raised:
        canonical_location("gs://" + "a" * 1_000_000)
    assert len(raised.value.message) < 500


# --- local paths: links and the two readings ---------------------------------------------------


def test_symlinks_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "real/inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "again").symlink_to("link/inner")

    real = canonical_location(f"{tmp_path}/real/inner/new/x")

    assert canonical_location(f"{tmp_path}/link/inner/new/x") == real
    assert canonical_location(f"file:{tmp_path}/again/new/x") == real


def test_a_symlink_in_the_last_place_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "dangling").symlink_to("/none/such")

    assert (
        str(canonical_location(f"{tmp_path}/link")) == f"file://{os.path.realpath('/etc/passwd')}"
    )
    assert str(canonical_location(f"{tmp_path}/dangling")) == "file:///none/such"


def test_a_loop_of_symlinks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    for below in ("a", "a/x", "b/x/y"):
        with pytest.raises(BadRequest, match="loop"):
            canonical_location(f"{tmp_path}/{below}")


def test_a_path_with_escapes_has_two_readings() -> None:
    found = canonical_location("file:///none/a%20b/c%252Fd")

    assert found.path == "/none/a%20b/c%252Fd"
    assert found.decoded_path == "/none/a b/c%2Fd"
    assert found.readings() == ("file:///none/a%20b/c%252Fd", "file:///none/a b/c%2Fd")
    assert canonical_location("/none/100%").readings() == ("file:///none/100%",)
    assert canonical_location("s3://bucket/a%20b").readings() == ("s3://bucket/a%20b",)


def test_inside_means_inside_in_both_readings(tmp_path: Path) -> None:
    (tmp_path / "wh").mkdir()
    (tmp_path / "wh/in%20side").symlink_to("/none")
    warehouse = canonical_location(f"{tmp_path}/wh")

    # The store opens the literal path, which leads out of the warehouse.
    assert not is_within(canonical_location(f"{tmp_path}/wh/in%20side/x"), warehouse)
    # Only the decoded path is inside, but the store would write to the literal one.
    assert not is_within(canonical_location(f"{tmp_path}/w%68/x"), warehouse)
    # Only the literal path is inside.
    (tmp_path / "wh/a b").symlink_to("/none")
    assert not is_within(canonical_location(f"{tmp_path}/wh/a%20b/x"), warehouse)
    assert is_within(canonical_location(f"{tmp_path}/wh/c%20d/x"), warehouse)


def test_a_table_with_escapes_holds_its_own_files() -> None:
    table = canonical_location("file:///none/ns%2Fa/t")

    assert is_within(canonical_location("file:///none/ns%2Fa/t/data/p=x%2Fy/f.parquet"), table)
    assert not is_within(canonical_location("file:///none/ns/a/t/data/f.parquet"), table)


# --- inside, beside, across ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("child", "parent", "within"),
    [
        ("s3://b/table", "s3://b/table", True),
        ("s3://b/table/a", "s3://b/table", True),
        ("s3a://b/table/a", "s3n://b/table/", True),
        ("s3://b/table_other", "s3://b/table", False),
        ("s3://b/table_other/a", "s3://b/table/", False),
        ("s3://b/tabl", "s3://b/table", False),
        ("s3://b/Table/a", "s3://b/table", False),
        ("s3://b", "s3://b/table", False),
        ("s3://b/a", "s3://b", True),
        ("s3://bc/a", "s3://b", False),
        ("s3://c/table/a", "s3://b/table", False),
        ("memory://b/table/a", "s3://b/table", False),
        ("/b/table/a", "s3://b/table", False),
        ("/none/table/a", "/none/table", True),
        ("/none/table_other/a", "/none/table", False),
        ("/none/a", "/", True),
        ("file:/none/table/a", "file://localhost/none/table/", True),
        ("/none/e\u0301/a", "/none/é", False),
    ],
)
def test_the_prefix_ends_at_a_slash(child: str, parent: str, within: bool) -> None:
    one, other = canonical_location(child), canonical_location(parent)

    assert is_within(one, other) is within


def test_allowed_are_the_warehouse_and_what_was_added(tmp_path: Path) -> None:
    (tmp_path / "wh").mkdir()
    (tmp_path / "wh/escape").symlink_to("/etc")
    allowed = AllowedLocations(f"file://{tmp_path}/wh", ["s3://extra/lake", "/none/more"])

    assert allowed.check(f"{tmp_path}/wh/a", "location") == canonical_location(f"{tmp_path}/wh/a")
    assert str(allowed.check("s3a://extra/lake/t", "location")) == "s3://extra/lake/t"
    assert str(allowed.check("file:/none/more", "location")) == "file:///none/more"
    for outside in (
        f"{tmp_path}/wh/escape/passwd",
        f"{tmp_path}/wh_other/a",
        f"{tmp_path}",
        "s3://extra/lakes/t",
        "s3://extra",
        "s3://other/lake/t",
        "memory://extra/lake/t",
        "/etc/passwd",
    ):
        with pytest.raises(BadRequest) as raised:
            allowed.check(outside, "write.metadata.path")
        for part in ("write.metadata.path", outside, "--allow-location"):
            assert part in raised.value.message


def test_a_warehouse_behind_a_symlink_is_the_same_warehouse(tmp_path: Path) -> None:
    (tmp_path / "disk/wh").mkdir(parents=True)
    (tmp_path / "wh").symlink_to("disk/wh")
    allowed = AllowedLocations(f"{tmp_path}/wh")

    through_the_link = allowed.check(f"{tmp_path}/wh/t", "location")

    assert through_the_link == allowed.check(f"{tmp_path}/disk/wh/t", "location")


def test_a_table_cannot_take_the_whole_warehouse(tmp_path: Path) -> None:
    allowed = AllowedLocations(f"{tmp_path}/a/wh", [f"{tmp_path}"])

    assert allowed.check_table(f"{tmp_path}/a/wh/t", "location")
    for whole in (f"{tmp_path}/a/wh", f"{tmp_path}/a/wh/", f"{tmp_path}/a"):
        assert allowed.check(whole, "location")
        with pytest.raises(BadRequest, match=r"location .* folder of its own"):
            allowed.check_table(whole, "location")


@pytest.mark.parametrize("root", ["relative", "gs://b", "s3://b/../c"])
def test_a_wrong_root_names_its_setting(root: str) -> None:
    with pytest.raises(BadRequest, match=r"^--warehouse "):
        AllowedLocations(root)
    with pytest.raises(BadRequest, match=r"^--allow-location "):
        AllowedLocations("s3://b", [root])


@pytest.mark.parametrize(
    ("file", "folder"),
    [
        ("file:///lake/t/data/a.parquet", "'file:///lake/t'"),
        ("s3://other/t/metadata/1.metadata.json", "'s3://other/t'"),
        ("s3://other/imports/a.parquet", "'s3://other/imports'"),
    ],
)
def test_a_folder_is_advised_to_be_allowed_and_never_a_file(file: str, folder: str) -> None:
    with pytest.raises(BadRequest, match=f"--allow-location {folder}$"):
        AllowedLocations("s3://b").check_file(file, "file-path")


# --- default locations -----------------------------------------------------------------------


def default_table_location(
    warehouse: str, namespace: tuple[str, ...], name: str, unique: str
) -> str:
    return table_location_in(default_namespace_location(warehouse, namespace), name, unique)


@pytest.mark.parametrize(
    ("namespace", "name", "location"),
    [
        (("ns",), "t", "s3://b/wh/ns/t-u1"),
        (("a", "b"), "t", "s3://b/wh/a/b/t-u1"),
        (("a/b",), "t/u", "s3://b/wh/a%2Fb/t%2Fu-u1"),
        (("a.b",), "t.u", "s3://b/wh/a.b/t.u-u1"),
        (("a b",), "100%", "s3://b/wh/a%20b/100%25-u1"),
        (("*",), "?#\\'", "s3://b/wh/%2A/%3F%23%5C%27-u1"),
        (("é",), "+", "s3://b/wh/%C3%A9/%2B-u1"),
    ],
)
def test_every_name_is_one_folder(namespace: tuple[str, ...], name: str, location: str) -> None:
    assert default_table_location("s3://b/wh/", namespace, name, "u1") == location


_names = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=255).filter(
    lambda name: len(name.encode()) <= 255 and not {".", ".."} & set(name.split("/"))
)


@given(namespace=st.lists(_names, min_size=1, max_size=12), name=_names)
@example(namespace=["é" * 127] * 5, name="日" * 85)
@example(namespace=["/" * 255], name="%" * 255)
def test_default_locations_stay_inside_and_can_be_stored(namespace: list[str], name: str) -> None:
    unique = "0190a7c2-7d5e-7abc-8def-0123456789ab"
    for warehouse in ("s3://bucket/warehouse", "file:///none/warehouse"):
        text = default_table_location(warehouse, tuple(namespace), name, unique)
        location = canonical_location(text)

        assert str(location) == text
        assert is_within(location, canonical_location(warehouse))
        assert all(len(segment.encode()) <= 255 for segment in text.split("/"))
        assert text.endswith(f"-{unique}")
        assert len(f"{text}/metadata/00000-{unique}.gz.metadata.json") <= 1024
        unquote(text, errors="strict")


def test_long_names_that_begin_alike_stay_apart() -> None:
    one = default_table_location("s3://b", ("é" * 120 + "a",), "t", "u")
    other = default_table_location("s3://b", ("é" * 120 + "b",), "t", "u")

    assert one != other


# --- properties of the whole -----------------------------------------------------------------

_piece = st.one_of(
    st.sampled_from(["a", "b", "..", ".", "%2e", "%2F", "%", "%25", "%2", "table", "table_other"]),
    st.text(max_size=3),
    st.sampled_from(["link", "in", "out", "a b", "a%20b", "é", "?", "#", "\\", "@", ":"]),
)
_start = st.sampled_from(
    [
        "",
        "",
        "/",
        "//",
        "file:",
        "file:/",
        "file://",
        "file:///",
        "file://localhost/",
        "s3://",
        "s3a://b/",
        "S3://b/",
        "memory://m/",
        "FILE:/",
        "http://",
        "s3:/",
    ]
)


@st.composite
def _texts(draw: st.DrawFn) -> str:
    segments = draw(st.lists(st.lists(_piece, max_size=2).map("".join), max_size=5))
    return draw(_start) + "/".join(segments)


def _canonical_or_none(text: str) -> Location | None:
    try:
        return canonical_location(text)
    except BadRequest:
        return None


@given(_texts())
def test_the_canonical_form_is_canonical(text: str) -> None:
    found = _canonical_or_none(text)
    assume(found is not None)
    assert found is not None

    again = canonical_location(str(found))

    assert str(again) == str(found)
    assert is_within(found, found)
    for reading in (found.path, found.decoded_path or "/"):
        assert reading.startswith("/")
        assert not {".", ".."} & set(reading.split("/"))
        assert "//" not in reading


_roots = st.sampled_from(["/", "file:/none/", "s3://b/", "s3a://b/", "s3://c/", "memory://b/"])
_plain_segments = st.lists(
    st.sampled_from(["a", "b", "table", "table_other", "a b", "a%20b", "a%2Fb", "é"]), max_size=4
)


@given(_roots, _plain_segments, _roots, _plain_segments)
def test_inside_agrees_with_a_comparison_of_segments(
    child_root: str, child: list[str], parent_root: str, parent: list[str]
) -> None:
    one = canonical_location(child_root + "/".join(child))
    other = canonical_location(parent_root + "/".join(parent))

    def segments(path: str) -> list[str]:
        return [segment for segment in path.split("/") if segment]

    def below(path: str, folder: str) -> bool:
        return segments(path)[: len(segments(folder))] == segments(folder)

    inside = (
        (one.scheme, one.authority) == (other.scheme, other.authority)
        and below(one.path, other.path)
        and below(one.decoded_path or one.path, other.decoded_path or other.path)
    )
    assert is_within(one, other) is inside


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a warehouse with links that lead out of it, and a secret file outside."""
    root = tmp_path_factory.mktemp("tree")
    for folder in ("wh/in/deep", "out/deep", "wh/a b", "w%68"):
        (root / folder).mkdir(parents=True)
    (root / "wh/link").symlink_to(root / "out")
    (root / "wh/in/up").symlink_to("../..")
    (root / "wh/a%20b").symlink_to(root / "out")
    (root / "wh/self").symlink_to(".")
    return root


_steps = st.sampled_from(
    [
        "in",
        "out",
        "deep",
        "link",
        "up",
        "self",
        "wh",
        "w%68",
        "a b",
        "a%20b",
        "a%2520b",
        "..",
        ".",
        "%2e%2e",
        "in%2Fup",
        "in%2F..",
        "%6Cink",
        "new",
        "l%69nk",
    ]
)


@given(steps=st.lists(_steps, max_size=6), first=st.sampled_from(["wh", "w%68", "out", "wh/link"]))
def test_what_is_allowed_really_lies_in_the_warehouse(
    tree: Path, steps: list[str], first: str
) -> None:
    text = "/".join([f"{tree}/{first}", *steps])
    try:
        AllowedLocations(f"{tree}/wh").check(text, "location")
    except BadRequest:
        return

    # Check the path that the store opens and the path that a client opens after decoding.
    warehouse = os.path.realpath(tree / "wh")
    for opened in (parse_location(text).path, unquote(text)):
        real = os.path.realpath(opened)
        assert real == warehouse or real.startswith(warehouse + "/")


def test_quoting_a_path_does_not_change_where_it_may_lie(tree: Path) -> None:
    allowed = AllowedLocations(f"{tree}/wh")

    assert allowed.check(f"file://{tree}/wh/in/{quote('x y/z', safe='')}", "location")
    with pytest.raises(BadRequest):
        allowed.check(f"file://{tree}/{quote('wh/in', safe='')}", "location")
