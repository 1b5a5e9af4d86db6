"""The client's transport over RestCatalog's own session.

Whatever is configured for PyIceberg holds for commits too: auth managers, OAuth2, signatures, TLS,
headers and the prefix. What the session lacks is added: a time limit, and the exact word on whether
the server can have seen a request that failed.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import requests
from requests.exceptions import ChunkedEncodingError, ContentDecodingError
from urllib3 import exceptions

from frazil.client.send.http_transport import CONNECT_TIMEOUT_S, Answer, AnswerLost, NotSent

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_EXPIRED: Final = frozenset({401, 419})
"""Answers after which RestCatalog asks for a new token and tries once more."""


class SessionTransport:
    def __init__(
        self,
        session: requests.Session,
        url: Callable[[str], str],
        *,
        timeout_s: float,
        headers: Mapping[str, str] = _NOTHING,
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
        headers: Mapping[str, str] = _NOTHING,
        query: Mapping[str, str] = _NOTHING,
    ) -> Answer:
        answer = self._send(method, path, body, headers, query)
        if answer.status in _EXPIRED:
            # Proven not done, so that the same request may go out again with another token.
            self._renew_token()
            answer = self._send(method, path, body, headers, query)
        return answer

    def _send(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        query: Mapping[str, str],
    ) -> Answer:
        url = self._url(path)
        request = requests.Request(
            method, url, params=dict(query), data=body, headers={**self._headers, **headers}
        )
        prepared = self._prepared(request)
        settings = self._session.merge_environment_settings(url, {}, None, None, None)
        try:
            answer = self._session.send(
                prepared,
                timeout=(min(CONNECT_TIMEOUT_S, self._timeout_s), self._timeout_s),
                allow_redirects=False,
                **settings,
            )
        except (requests.ConnectionError, requests.Timeout) as error:
            raise _failure(error, url) from error
        except (ChunkedEncodingError, ContentDecodingError) as error:
            raise AnswerLost(f"{url}: {error}") from error
        headers_of_answer = {name.lower(): value for name, value in answer.headers.items()}
        return Answer(answer.status_code, headers_of_answer, answer.content)

    def _prepared(self, request: requests.Request) -> requests.PreparedRequest:
        """With authentication, which may itself ask a server that refuses or does not answer."""
        try:
            return self._session.prepare_request(request)
        except Exception as error:
            raise NotSent(f"the request was not prepared: {error}") from error


def _failure(error: requests.RequestException, url: str) -> NotSent | AnswerLost:
    """Only what failed while connecting proves that the server has not got the request."""
    reason: object = error.args[0] if error.args else None
    if isinstance(reason, exceptions.MaxRetryError):
        reason = reason.reason
    distrust = isinstance(error, requests.exceptions.SSLError) and isinstance(
        _first_argument(reason), ssl.SSLCertVerificationError
    )
    unsent = (exceptions.NewConnectionError, exceptions.ConnectTimeoutError)
    connecting = isinstance(error, requests.ConnectTimeout) or isinstance(reason, unsent)
    return (NotSent if connecting or distrust else AnswerLost)(f"{url}: {error}")


def _first_argument(error: object) -> object:
    return error.args[0] if isinstance(error, Exception) and error.args else None
