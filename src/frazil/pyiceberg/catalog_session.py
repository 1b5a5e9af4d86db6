"""Sends requests through the session of PyIceberg's RestCatalog, and waits for the server.

PyIceberg's configuration applies to commits too: auth managers, OAuth2, signatures, TLS, headers
and the prefix. `SessionTransport` adds a time limit, and reports whether the server may have
received a request that failed.

PyIceberg sends all requests but commits through `Session.request`. It has no time limit and repeats
nothing. `make_patient` gives each of them a time limit. A change also gets an idempotency key, so
that it can be sent again after a lost answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import requests
from pyiceberg.exceptions import CommitStateUnknownException, ServiceUnavailableError
from requests.adapters import HTTPAdapter
from requests.exceptions import ChunkedEncodingError, ContentDecodingError
from urllib3 import exceptions

from frazil.client.send.error_answers import CatalogUnreachable
from frazil.client.send.http_transport import (
    CONNECT_TIMEOUT_S,
    Answer,
    AnswerLost,
    NotSent,
    Request,
    SchemeCheck,
    SendFailure,
    SentBody,
    Unusable,
    failure_of,
)
from frazil.client.send.outages import Outages, OutageWait
from frazil.client.send.retry_policy import Clock, RetryPolicy
from frazil.client.send.submit import KEY_HEADER, new_key
from frazil.wire import errors

_EXPIRED_TOKEN_STATUSES: Final = frozenset({401, 419})
"""Statuses after which RestCatalog requests a new token and retries once."""


class SessionTransport:
    """Sends requests through a `requests` session."""

    def __init__(
        self,
        session: requests.Session,
        url: Callable[[str], str],
        *,
        timeout_s: float,
        headers: Mapping[str, str],
        renew_token: Callable[[], None],
    ) -> None:
        self._session = session
        self._url = url
        self._timeout_s = timeout_s
        self._headers = headers
        self._renew_token = renew_token

    def send(self, request: Request) -> Answer:
        answer = self._answer(request)
        if answer.status in _EXPIRED_TOKEN_STATUSES:
            # The request was refused, so it is safe to send again with a new token.
            self._renew_token()
            answer = self._answer(request)
        return answer

    def _answer(self, request: Request) -> Answer:
        url = self._url(request.path)
        verify = _verify(self._session)
        settings = self._session.merge_environment_settings(url, {}, None, verify, None)
        try:
            answer = self._session.send(
                self._prepared(url, request),
                timeout=(min(CONNECT_TIMEOUT_S, self._timeout_s), self._timeout_s),
                allow_redirects=False,
                **settings,
            )
        except SEND_ERRORS as error:
            raise send_failure(error, url) from error
        headers_of_answer = {name.lower(): value for name, value in answer.headers.items()}
        return Answer(answer.status_code, headers_of_answer, answer.content)

    def _prepared(self, url: str, request: Request) -> requests.PreparedRequest:
        """Add authentication, which may itself call a server that refuses or does not answer."""
        unprepared = requests.Request(
            request.method,
            url,
            params=dict(request.query),
            data=request.body,
            headers={**self._headers, **request.headers},
        )
        try:
            return self._session.prepare_request(unprepared)
        except (requests.ConnectionError, requests.Timeout) as error:
            raise NotSent(f"the request was not prepared: {error}") from error
        except Exception as error:
            raise Unusable(f"the request was not prepared: {error}") from error


SEND_ERRORS: Final = (
    requests.ConnectionError,
    requests.Timeout,
    ChunkedEncodingError,
    ContentDecodingError,
)
"""The errors of `requests` after which a request has no complete answer."""


def send_failure(error: requests.RequestException, url: str) -> SendFailure:
    return failure_of(_reason(error), url, is_unsent=isinstance(error, BodyUnsent))


def _reason(error: requests.RequestException) -> object:
    """Return the error of urllib3, which `requests` wraps."""
    reason: object = error.args[0] if error.args else error
    return reason.reason if isinstance(reason, exceptions.MaxRetryError) else reason


def _verify(session: requests.Session) -> bool | str | None:
    """Return the authorities of the session; None for those of the system.

    Without them in a request, REQUESTS_CA_BUNDLE wins over what the session was told.
    """
    return None if session.verify is True else session.verify


class BodyUnsent(requests.ConnectionError):
    """The connection ended before the body was sent completely."""


class WatchingAdapter(HTTPAdapter):
    """Raises BodyUnsent; see SentBody."""

    def send(
        self, request: requests.PreparedRequest, *args: Any, **kwargs: Any
    ) -> requests.Response:
        content = request.body
        if not isinstance(content, bytes):
            return super().send(request, *args, **kwargs)
        body: Any = SentBody(content)
        request.body = body
        try:
            return super().send(request, *args, **kwargs)
        except (requests.ConnectionError, requests.Timeout) as error:
            if body.is_sent:
                raise
            raise BodyUnsent(*error.args, request=request) from error
        finally:
            # Hooks read the body after the answer.
            request.body = content


# --- errors -------------------------------------------------------------------------------------


class _Unanswered(requests.ConnectionError):
    """A request without an answer."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s: int | None = None


class Unreachable(_Unanswered, ServiceUnavailableError, CatalogUnreachable):
    """The server did not answer in time, and nothing has happened."""


class UnknownOutcome(_Unanswered, CommitStateUnknownException, errors.CommitStateUnknown):
    """The change was sent and its answer is missing: look into the catalog before a repetition."""


# --- waiting ------------------------------------------------------------------------------------


_READS: Final = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class _Answer:
    response: requests.Response

    @property
    def status(self) -> int:
        return self.response.status_code

    @property
    def headers(self) -> Mapping[str, str]:
        return self.response.headers


def make_patient(
    session: requests.Session,
    outages: Outages,
    *,
    base: Callable[[], str],
    timeout_s: float,
    key_lifetime_s: Callable[[], float | None],
) -> None:
    """Replace `session.request` for URLs below `base`, those of the catalog.

    Requests to other servers, such as for a token, stay as they are.
    """
    for prefix, adapter in list(session.adapters.items()):
        # Another adapter, such as the one that signs requests, stays.
        if type(adapter) is HTTPAdapter:
            session.mount(prefix, WatchingAdapter())
    request = session.request
    clock = Clock()
    scheme = SchemeCheck()

    def patient_request(method: str, url: str, **arguments: Any) -> requests.Response:
        if not url.startswith(base()):
            return request(method, url, **arguments)
        arguments.setdefault("verify", _verify(session))
        arguments.setdefault("timeout", (min(CONNECT_TIMEOUT_S, timeout_s), timeout_s))
        wait = OutageWait(outages, RetryPolicy(), clock)
        lifetime_s = key_lifetime_s()
        is_change = method.upper() not in _READS
        if is_change and lifetime_s is not None:
            headers = {KEY_HEADER: str(new_key()), **(arguments.get("headers") or {})}
            arguments["headers"] = headers

        def send() -> _Answer:
            key_ends_s = clock.now_s() + (lifetime_s or 0.0)
            try:
                answer = _Answer(request(method, url, **arguments))
            except SEND_ERRORS as error:
                scheme.check(_reason(error), base())
                failure = send_failure(error, url)
                if is_change and isinstance(failure, AnswerLost):
                    wait.needs_key_until(key_ends_s)
                raise failure from error
            scheme.check_answer(answer.response.status_code, answer.response.headers, base())
            if is_change and answer.status >= 500:
                wait.needs_key_until(key_ends_s)
            return answer

        try:
            return wait.answer(send).response
        except SendFailure as failure:
            kind = UnknownOutcome if wait.is_in_doubt else Unreachable
            raise kind(wait.text_of(failure)) from None

    session.request = patient_request  # type: ignore[assignment]
