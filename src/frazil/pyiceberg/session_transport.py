"""The client's transport over the session of PyIceberg's RestCatalog.

PyIceberg's configuration applies to commits too: auth managers, OAuth2, signatures, TLS, headers
and the prefix. This transport adds a time limit, and reports whether the server may have received
a request that failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import requests
from requests.adapters import HTTPAdapter
from requests.exceptions import ChunkedEncodingError, ContentDecodingError
from urllib3 import exceptions

from frazil.client.send.http_transport import (
    CONNECT_TIMEOUT_S,
    Answer,
    NotSent,
    Request,
    SendFailure,
    SentBody,
    Unusable,
    failure_of,
)

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
        settings = self._session.merge_environment_settings(url, {}, None, None, None)
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
    # `requests` wraps the error of urllib3.
    reason: object = error.args[0] if error.args else error
    if isinstance(reason, exceptions.MaxRetryError):
        reason = reason.reason
    return failure_of(reason, url, is_unsent=isinstance(error, BodyUnsent))


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
