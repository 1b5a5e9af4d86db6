"""Stores objects in S3 and compatible services, with obstore.

Only this module imports obstore. `frazil.store.store_router` imports it when the first `s3:`
location is used, so that the extra is not needed without S3.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import obstore
from obstore import store as obstore_store
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError

from frazil.store import store_failures
from frazil.store.locations import ObjectAddress, parse_location
from frazil.store.object_store import (
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    ObjectTooLarge,
    Store,
    StoreError,
    check_range,
)
from frazil.store.s3_settings import ProfileError, S3Settings, profile_keys, wants_profile
from frazil.wire.errors import BadRequest

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Config, S3Credential, S3CredentialProvider

_CONNECT_TIMEOUT = timedelta(seconds=5)
# The longest time without a byte, and the longest time for a whole request.
_READ_TIMEOUT = timedelta(seconds=20)
_REQUEST_TIMEOUT = timedelta(seconds=120)
_READ_RETRIES = 5
_READ_RETRY_TIMEOUT = timedelta(seconds=60)

_PUT_ATTEMPTS = 5
_PUT_RETRY_TIMEOUT_S = 60.0
_PUT_FIRST_WAIT_S = 0.05

# The number of keys in one DeleteObjects request and in one page of a listing.
_PAGE = 1000

_SHOWN_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class _Bucket:
    reader: obstore_store.S3Store
    writer: obstore_store.S3Store
    """Sends each request only once. If obstore repeated a PUT after a lost response, it would find
    our own object and report that it exists. Here every attempt is counted."""


class S3Store(Store):
    """Implements `Store` for `s3:`, `s3a:` and `s3n:` locations."""

    def __init__(
        self, settings: S3Settings | None = None, environ: Mapping[str, str] = os.environ
    ) -> None:
        self._settings = S3Settings.from_environment(environ) if settings is None else settings
        self._environ = environ
        self._lock = threading.Lock()
        self._buckets: dict[str, _Bucket] = {}

    def put_new(self, location: str, chunks: Sequence[bytes]) -> None:
        address = _object_address(location)
        content = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        writer = self._bucket(address.authority).writer
        give_up_at = time.monotonic() + _PUT_RETRY_TIMEOUT_S
        attempt = 1
        while True:
            try:
                obstore.put(writer, address.key, content, mode="create", use_multipart=False)
                return
            except AlreadyExistsError as error:
                if self._is_decided(location, content, attempt):
                    return
                failure: Exception = error
            except GenericError as error:
                failure = error
            except (BaseError, OSError) as error:
                raise _failed("write", location, error) from error
            if attempt == _PUT_ATTEMPTS or time.monotonic() > give_up_at:
                raise _failed("write", location, failure) from failure
            time.sleep(_PUT_FIRST_WAIT_S * 2**attempt * random.uniform(0.5, 1))
            attempt += 1

    def _is_decided(self, location: str, content: bytes, attempt: int) -> bool:
        """Find out whose object exists after a refused PUT.

        Return True if it is ours, False if there is none yet. Raise ObjectExists if it belongs to
        another writer. A repeated PUT can find the object of the first attempt if only the response
        was lost. A first PUT finds the object of another writer, or gets S3's 409 for two
        conditional writes at the same time, neither of which may have succeeded.
        """
        if attempt == 1:
            if self.size(location) is None:
                return False
            raise ObjectExists(location)
        try:
            if self.get(location, max_bytes=len(content)) == content:
                return True
        except ObjectTooLarge:
            pass
        except ObjectMissing:
            return False
        raise ObjectExists(location)

    def get(self, location: str, max_bytes: int | None = None) -> bytes:
        address = _object_address(location)
        with _reading(location):
            response = obstore.get(self._bucket(address.authority).reader, address.key)
            if max_bytes is not None and response.meta["size"] > max_bytes:
                raise ObjectTooLarge(location, max_bytes)
            return response.bytes().to_bytes()

    def get_range(self, location: str, offset: int, length: int) -> bytes:
        address = _object_address(location)
        with _reading(location):
            part = obstore.get_range(
                self._bucket(address.authority).reader, address.key, start=offset, length=length
            )
        return check_range(location, offset, length, part.to_bytes())

    def size(self, location: str) -> int | None:
        address = _object_address(location)
        try:
            return obstore.head(self._bucket(address.authority).reader, address.key)["size"]
        except FileNotFoundError:
            return None
        except (BaseError, OSError) as error:
            raise _failed("look at", location, error) from error

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        address = _s3_address(prefix)
        text = prefix.rstrip("/")
        skipped = len(address.key) + 1 if address.key else 0
        try:
            pages = obstore.list(
                self._bucket(address.authority).reader, address.key or None, chunk_size=_PAGE
            )
            for page in pages:
                for entry in page:
                    yield ObjectInfo(
                        f"{text}/{entry['path'][skipped:]}",
                        entry["size"],
                        int(entry["last_modified"].timestamp() * 1000),
                    )
        except (BaseError, OSError) as error:
            raise _failed("list", prefix, error) from error

    def delete(self, locations: Iterable[str]) -> None:
        waiting: dict[str, list[str]] = {}
        for location in locations:
            address = _object_address(location)
            keys = waiting.setdefault(address.authority, [])
            keys.append(address.key)
            if len(keys) == _PAGE:
                self._delete(address.authority, waiting.pop(address.authority))
        for bucket, keys in waiting.items():
            self._delete(bucket, keys)

    def _delete(self, bucket: str, keys: Sequence[str]) -> None:
        try:
            obstore.delete(self._bucket(bucket).reader, keys)
        except (BaseError, OSError) as error:
            raise _failed("delete", f"s3://{bucket}/{keys[0]}", error, len(keys)) from error

    def close(self) -> None:
        with self._lock:
            self._buckets.clear()

    def _bucket(self, name: str) -> _Bucket:
        with self._lock:
            known = self._buckets.get(name)
            if known is None:
                known = self._buckets[name] = _Bucket(
                    reader=self._client(name, _READ_RETRIES), writer=self._client(name, 0)
                )
            return known

    def _client(self, bucket: str, max_retries: int) -> obstore_store.S3Store:
        config: S3Config = {
            "region": self._settings.region,
            "virtual_hosted_style_request": not self._settings.path_style,
        }
        options: ClientConfig = {
            "connect_timeout": _CONNECT_TIMEOUT,
            "read_timeout": _READ_TIMEOUT,
            "timeout": _REQUEST_TIMEOUT,
        }
        config.update(_environment_keys(self._environ))
        endpoint = self._settings.bucket_endpoint(bucket)
        if endpoint is not None:
            # The most specific name. AWS_ENDPOINT_URL_S3 would override the plain `endpoint`.
            config["aws_endpoint_url_s3"] = endpoint
            options["allow_http"] = endpoint.startswith("http://")
        return obstore_store.S3Store(
            bucket,
            config=config,
            client_options=options,
            retry_config={"max_retries": max_retries, "retry_timeout": _READ_RETRY_TIMEOUT},
            credential_provider=self._credential_provider(),
        )

    def _credential_provider(self) -> S3CredentialProvider | None:
        """Return a provider for AWS profiles, or None to let obstore find the keys."""
        try:
            if not wants_profile(self._environ):
                return None
            # Read the keys once now, so that errors are reported early and clearly.
            profile_keys(self._environ)
        except ProfileError as error:
            raise StoreError(str(error)) from error

        def provide() -> S3Credential:
            keys = profile_keys(self._environ)
            return {
                "access_key_id": keys.access_key_id,
                "secret_access_key": keys.secret_access_key,
                "token": keys.session_token,
                "expires_at": keys.expires_at,
            }

        return provide


def _environment_keys(environ: Mapping[str, str]) -> S3Config:
    """Return the keys in the environment for obstore.

    By itself obstore reads only the environment of the process, and asks the metadata service of
    the machine if it finds no keys there.
    """
    keys: S3Config = {}
    if environ.get("AWS_ACCESS_KEY_ID"):
        if not environ.get("AWS_SECRET_ACCESS_KEY"):
            raise StoreError("AWS_ACCESS_KEY_ID is set without AWS_SECRET_ACCESS_KEY: set both")
        keys["access_key_id"] = environ["AWS_ACCESS_KEY_ID"]
        keys["secret_access_key"] = environ["AWS_SECRET_ACCESS_KEY"]
        if environ.get("AWS_SESSION_TOKEN"):
            keys["session_token"] = environ["AWS_SESSION_TOKEN"]
    return keys


def _s3_address(location: str) -> ObjectAddress:
    address = parse_location(location)
    if address.scheme != "s3":
        raise BadRequest(f"location {location!r} is not in S3: use s3://bucket/path")
    return address


def _object_address(location: str) -> ObjectAddress:
    address = _s3_address(location)
    if not address.key:
        raise BadRequest(f"location {location!r} is a whole bucket: name an object in it")
    return address


@contextmanager
def _reading(location: str) -> Iterator[None]:
    """Translate the errors of reading one object."""
    try:
        yield
    except FileNotFoundError:
        raise ObjectMissing(location) from None
    except (BaseError, OSError) as error:
        raise _failed("read", location, error) from error


def _failed(action: str, location: str, error: Exception, objects: int = 1) -> StoreError:
    # The text of obstore ends with a dump of its structures, and may have many lines.
    reason = " ".join(str(error).partition("\n\nDebug source")[0].split())
    others = f" and {objects - 1} more objects" if objects > 1 else ""
    message = f"cannot {action} {location}{others}: {reason[:_SHOWN_CHARACTERS]}"
    return StoreError(message, location=location, reason=store_failures.of_s3(error))
