"""Parses locations, makes them canonical, and checks that they are allowed.

All URIs in requests, manifests and settings are compared in their canonical form. Two spellings of
the same location are therefore equal, and no spelling can reach outside the allowed locations.

**Which file a local location means.** Hadoop's `Path`, PyIceberg and DuckDB take a `%` in a local
location literally: `file:///wh/a%2Fb` is a folder named `a%2Fb`. Our store does the same. A client
that reads it as a URI (RFC 3986) decodes it once and uses `/wh/a/b`. So a local location has two
readings, the literal and the decoded one. The data is at the literal one. For containment both must
be inside; for overlap either one counts. All clients take object keys literally, so these have one
reading.

**What is refused** although some clients accept it: `.` and `..` segments in either reading (some
clients resolve them), control characters, `?` and `#` (PyIceberg cuts there, Hadoop does not),
backslashes, user info, relative paths, remote hosts in `file:`, and empty segments in object keys
(Hadoop's s3a drops them, S3FileIO does not). In local paths the kernel drops empty segments, and so
does the canonical form. Trailing slashes are always removed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

from frazil.wire.errors import BadRequest
from frazil.wire.identifiers import Namespace

_ALIASES = {"file": "file", "s3": "s3", "s3a": "s3", "s3n": "s3", "memory": "memory"}
"""The canonical scheme for each accepted one. Tests use `memory`."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)\Z", re.DOTALL)
_AUTHORITY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_SLASHES = re.compile(r"/+")

# Linux's PATH_MAX and the longest key of S3.
_MAX_BYTES = {"file": 4095, "s3": 1024, "memory": 4095}
_MAX_SEGMENT_BYTES = 255
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Location:
    """A canonical location. `str()` returns its text, which is canonical as well."""

    scheme: str
    authority: str
    """The bucket; empty for local files."""
    path: str
    """Begins with `/` and does not end with it, except for the root. Symlinks are resolved."""
    decoded_path: str | None = None
    """The second reading of a local location with percent escapes."""

    def __str__(self) -> str:
        return self._text(self.path)

    def readings(self) -> tuple[str, ...]:
        """Return the text of each reading.

        A table owns all readings of its location, so that no other table can use one of them.
        """
        if self.decoded_path is None:
            return (self._text(self.path),)
        return (self._text(self.path), self._text(self.decoded_path))

    def _text(self, path: str) -> str:
        if self.scheme == "file":
            return f"file://{path}"
        return f"{self.scheme}://{self.authority}{'' if path == '/' else path}"


@dataclass(frozen=True, slots=True)
class ObjectAddress:
    """The parts of a location as a store uses them: parsed, but not resolved."""

    scheme: str
    authority: str
    path: str

    @property
    def key(self) -> str:
        """The object's key in its bucket."""
        return self.path[1:]


_PARSED: dict[str, ObjectAddress] = {}
"""Parsed locations. A commit uses the same ones many times."""
_MAX_PARSED = 10_000


def parse_location(text: str, field: str = "location") -> ObjectAddress:
    """Split a location. Refuse what no store accepts."""
    known = _PARSED.get(text)
    if known is not None:
        return known
    address = _parse_location(text, field)
    if len(_PARSED) >= _MAX_PARSED:
        _PARSED.clear()
    _PARSED[text] = address
    return address


def _parse_location(text: str, field: str) -> ObjectAddress:
    if _CONTROL.search(text):
        raise BadRequest(f"{field} {_shown(text)} has a control character: remove it")
    try:
        length = len(text.encode())
    except UnicodeEncodeError:
        raise BadRequest(f"{field} {_shown(text)} is not valid Unicode text") from None
    scheme, rest = _split_scheme(text, field)
    if scheme == "file":
        authority, path = "", _local_path(text, rest, field)
    else:
        authority, path = _bucket_and_path(text, rest, field)
    if length > _MAX_BYTES[scheme]:
        raise BadRequest(
            f"{field} {_shown(text)} is {length} bytes long: "
            f"at most {_MAX_BYTES[scheme]} are allowed for {scheme}:"
        )
    _refuse_dot_segments(path, text, field)
    if scheme == "file" and length > _MAX_SEGMENT_BYTES:
        _refuse_long_segments(path, text, field)
    return ObjectAddress(scheme, authority, path)


def canonical_location(text: str, field: str = "location") -> Location:
    """Return the canonical form of a location, or raise a BadRequest that names the field."""
    address = parse_location(text, field)
    for character in "?#\\":
        if character in text:
            raise BadRequest(
                f"{field} {_shown(text)} has a {character!r}, which clients read differently: "
                "remove it or percent-encode it"
            )
    if address.scheme != "file":
        return Location(address.scheme, address.authority, address.path)
    path = _resolve(address.path, text, field)
    if not _ESCAPE.search(address.path):
        return Location("file", "", path)
    decoded = _resolve(_decode(address.path, text, field), text, field)
    return Location("file", "", path, None if decoded == path else decoded)


def is_within(child: Location, parent: Location) -> bool:
    """Check whether `child` is `parent` or below it, in both readings."""
    return (
        (child.scheme, child.authority) == (parent.scheme, parent.authority)
        and _is_below(child.path, parent.path)
        and _is_below(child.decoded_path or child.path, parent.decoded_path or parent.path)
    )


class AllowedLocations:
    """The locations that the server may read and write: the warehouse and `--allow-location`."""

    def __init__(self, warehouse: str, extra: Sequence[str] = ()) -> None:
        self.warehouse = canonical_location(warehouse, "--warehouse")
        self.roots = (
            self.warehouse,
            *(canonical_location(text, "--allow-location") for text in extra),
        )

    def check(self, location: str, field: str) -> Location:
        """Return the canonical form of an allowed location. Raise BadRequest for any other."""
        return self._check(location, field, "choose one inside", location)

    def check_file(self, file: str, field: str, fix: str = "choose one inside") -> Location:
        """Do the same for a file. The error advises to allow the folder of its table."""
        return self._check(file, field, fix, _table_folder(file))

    def _check(self, location: str, field: str, fix: str, folder: str) -> Location:
        canonical = canonical_location(location, field)
        if not any(is_within(canonical, root) for root in self.roots):
            raise BadRequest(
                f"{field} {_shown(location)} is outside the warehouse {self.warehouse} and every "
                f"allowed location: {fix}, or start the server with "
                f"--allow-location {_shown(folder)}"
            )
        return canonical

    def root_of(self, location: str) -> Location | None:
        """Return the nearest root that contains the location, or None."""
        canonical = canonical_location(location)
        roots = [root for root in self.roots if is_within(canonical, root)]
        return max(roots, key=lambda root: len(root.path), default=None)

    def check_table(self, location: str, field: str) -> Location:
        """Check the folder of a table. It must not contain the warehouse with all other tables."""
        canonical = self.check(location, field)
        if is_within(self.warehouse, canonical):
            raise BadRequest(
                f"{field} {_shown(location)} holds the whole warehouse {self.warehouse}: "
                "give the table a folder of its own"
            )
        return canonical


def _table_folder(file: str) -> str:
    """Return the folder of the table that a file probably belongs to."""
    folder, _, _ = file.rpartition("/")
    parent, _, name = folder.rpartition("/")
    if folder.endswith("/"):
        return file
    return parent if name in ("data", "metadata") else folder


def default_namespace_location(warehouse: str, namespace: Namespace) -> str:
    """Return the folder of a namespace. Each level is one percent-encoded folder."""
    levels = "/".join(_folder(level, _MAX_SEGMENT_BYTES) for level in namespace)
    if len(levels) > _MAX_LEVELS_BYTES:
        levels = f"~{_digest('/'.join(quote(level, safe='') for level in namespace))}"
    return f"{warehouse.rstrip('/')}/{levels}"


def table_location_in(namespace_location: str, name: str, unique: str) -> str:
    """Return a folder for a table.

    `unique` separates tables that have the same name one after the other.
    """
    suffix = f"-{unique}"
    folder = _folder(name, _MAX_SEGMENT_BYTES - len(suffix))
    return f"{namespace_location.rstrip('/')}/{folder}{suffix}"


# Keys of S3 have at most 1,024 bytes, so levels must leave room for warehouse, table and file.
_MAX_LEVELS_BYTES = 400


def _split_scheme(text: str, field: str) -> tuple[str, str]:
    if text.startswith("/"):
        if text.startswith("//"):
            raise BadRequest(
                f"{field} {_shown(text)} begins with '//', which some clients read as a host: "
                "write file:///… or one slash"
            )
        return "file", text
    match = _SCHEME.match(text)
    if match is None:
        raise BadRequest(
            f"{field} {_shown(text)} is not an absolute location: "
            "begin it with '/' or with a scheme such as file:// or s3://"
        )
    scheme = _ALIASES.get(match[1].lower())
    if scheme is None:
        raise BadRequest(
            f"{field} {_shown(text)} has the scheme {match[1]!r}, which is not supported: "
            f"use one of {', '.join(_ALIASES)}"
        )
    return scheme, match[2]


def _local_path(text: str, rest: str, field: str) -> str:
    """Return the path of `/x`, `//localhost/x` or `///x`, without empty segments."""
    path = rest
    if rest.startswith("//"):
        host, slash, tail = rest[2:].partition("/")
        if host and host.lower() != "localhost":
            raise BadRequest(
                f"{field} {_shown(text)} names the host {host!r}: "
                "local files are written file:///path"
            )
        path = slash + tail
    if not path.startswith("/"):
        raise BadRequest(f"{field} {_shown(text)} is a relative path: begin it with a '/'")
    path = _SLASHES.sub("/", path)
    return path.rstrip("/") or "/"


def _bucket_and_path(text: str, rest: str, field: str) -> tuple[str, str]:
    if not rest.startswith("//"):
        raise BadRequest(f"{field} {_shown(text)} names no bucket: write scheme://bucket/path")
    bucket, _, key = rest[2:].partition("/")
    if not bucket:
        raise BadRequest(f"{field} {_shown(text)} has an empty bucket: name one")
    if not _AUTHORITY.match(bucket):
        raise BadRequest(
            f"{field} {_shown(text)} has the bucket {bucket!r}: only letters, digits, '.', '_' "
            "and '-' are allowed, without user or port"
        )
    if key.startswith("/") or "//" in key:
        raise BadRequest(
            f"{field} {_shown(text)} has an empty path segment, which clients read differently: "
            "write single slashes"
        )
    return bucket, f"/{key.removesuffix('/')}"


def _refuse_dot_segments(path: str, text: str, field: str) -> None:
    if any(segment in (".", "..") for segment in path.split("/")):
        raise BadRequest(
            f"{field} {_shown(text)} has a '.' or '..' segment: write the path without it"
        )


def _refuse_long_segments(path: str, text: str, field: str) -> None:
    """Refuse names that no file system of Linux can store."""
    if any(len(segment.encode()) > _MAX_SEGMENT_BYTES for segment in path.split("/")):
        raise BadRequest(
            f"{field} {_shown(text)} has a segment too long for the file system: "
            f"at most {_MAX_SEGMENT_BYTES} bytes are allowed"
        )


def _decode(path: str, text: str, field: str) -> str:
    """Return the decoded reading, which must follow the same rules."""
    try:
        decoded = unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise BadRequest(f"{field} {_shown(text)} has percent escapes that are not UTF-8") from None
    if _CONTROL.search(decoded):
        raise BadRequest(f"{field} {_shown(text)} has an encoded control character: remove it")
    _refuse_dot_segments(decoded, text, field)
    return _SLASHES.sub("/", decoded).rstrip("/") or "/"


def _resolve(path: str, text: str, field: str) -> str:
    """Resolve the symlinks of a path. Parts that do not exist yet stay as they are."""
    try:
        os.stat(path)
    except OSError as error:
        # With these two errors `realpath` stops before it has resolved everything.
        if error.errno == errno.ELOOP:
            raise BadRequest(f"{field} {_shown(text)} runs into a loop of symlinks") from None
        if error.errno == errno.ENAMETOOLONG:
            raise BadRequest(
                f"{field} {_shown(text)} has a segment or path too long for the file system"
            ) from None
    return os.path.realpath(path)


def _is_below(child: str, parent: str) -> bool:
    return child == parent or child.startswith(parent if parent == "/" else f"{parent}/")


def _folder(name: str, max_bytes: int) -> str:
    """Return a name as one folder. An encoded name that is too long is cut and gets a hash."""
    encoded = quote(name, safe="")
    if len(encoded) <= max_bytes:
        return encoded
    tail = f"~{_digest(name)}"
    kept = ""
    for character in name:
        # Cut between characters, because a part of an escape cannot be decoded.
        escape = quote(character, safe="")
        if len(kept) + len(escape) + len(tail) > max_bytes:
            break
        kept += escape
    return kept + tail


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _shown(text: str) -> str:
    cut = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
    return repr(cut)
