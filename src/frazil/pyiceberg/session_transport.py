"""The client's transport over the session of PyIceberg's RestCatalog.

PyIceberg's configuration applies to commits too: auth managers, OAuth2, signatures, TLS, headers
and the prefix. This transport adds a time limit, and reports whether the server may have received
a request that failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import requests
from requests.exceptions import ChunkedEncodingError, ContentDecodingError
from urllib3 import exceptions

from frazil.client.send.http_transport import (
    CONNECT_TIMEOUT_S,
    Answer,
    AnswerLost,
    NotSent,
    failure_of,
)

_EMPTY: Final[Mapping[str, str]] = MappingProxyType({})
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
        headers: Mapping[str, str] = _EMPTY,
        renew_token: Callable[[], None] = lambda: None,
    ) -> None:
        self._session = session
        self._url = url
        self._timeout_s = timeout_s
        self._headers = headers
        self._renew_token = renew_token

    def send(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] = _EMPTY,
        query: Mapping[str, str] = _EMPTY,
    ) -> Answer:
        url = self._url(path)
        request = requests.Request(
            method, url, params=dict(query), data=body, headers={**self._headers, **headers}
        )
        answer = self._answer(url, request)
        if answer.status in _EXPIRED_TOKEN_STATUSES:
            # The request was refused, so it is safe to send again with a new token.
            self._renew_token()
            answer = self._answer(url, request)
        return answer

    def _answer(self, url: str, request: requests.Request) -> Answer:
        settings = self._session.merge_environment_settings(url, {}, None, None, None)
        try:
            answer = self._session.send(
                self._prepared(request),
                timeout=(min(CONNECT_TIMEOUT_S, self._timeout_s), self._timeout_s),
                allow_redirects=False,
                **settings,
            )
        except (requests.ConnectionError, requests.Timeout) as error:
            raise failure_of(_reason(error), f"{url}: {error}") from error
        except (ChunkedEncodingError, ContentDecodingError) as error:
            raise AnswerLost(f"{url}: {error}") from error
        headers_of_answer = {name.lower(): value for name, value in answer.headers.items()}
        return Answer(answer.status_code, headers_of_answer, answer.content)

    def _prepared(self, request: requests.Request) -> requests.PreparedRequest:
        """Add authentication, which may itself call a server that refuses or does not answer."""
        try:
            return self._session.prepare_request(request)
        except Exception as error:
            raise NotSent(f"the request was not prepared: {error}") from error


def _reason(error: requests.RequestException) -> object:
    """Return urllib3's error, which `requests` wraps."""
    reason: object = error.args[0] if error.args else None
    return reason.reason if isinstance(reason, exceptions.MaxRetryError) else reason
