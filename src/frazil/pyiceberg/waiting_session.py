"""Makes a session of PyIceberg's RestCatalog wait for a server that is away.

PyIceberg sends all requests but commits through `Session.request`. It has no time limit and repeats
nothing. Here each request gets a time limit. A change also gets an idempotency key, so that it can
be sent again after a lost answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import requests
from requests.adapters import HTTPAdapter

from frazil.client.send.http_transport import (
    CONNECT_TIMEOUT_S,
    AnswerLost,
    SendFailure,
)
from frazil.client.send.outages import Outages, OutageWait
from frazil.client.send.retry_policy import Clock, RetryPolicy
from frazil.client.send.submit import KEY_HEADER, new_key
from frazil.pyiceberg.session_transport import SEND_ERRORS, WatchingAdapter, send_failure

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
    is_of_catalog: Callable[[str], bool],
    timeout_s: float,
    key_lifetime_s: Callable[[], float | None],
) -> None:
    """Replace `session.request`; requests to other servers, such as for a token, stay as they are.

    Errors are those of `requests`, as PyIceberg's callers expect.
    """
    for prefix, adapter in list(session.adapters.items()):
        # Another adapter, such as the one that signs requests, stays.
        if type(adapter) is HTTPAdapter:
            session.mount(prefix, WatchingAdapter())
    request = session.request
    clock = Clock()

    def patient_request(method: str, url: str, **arguments: Any) -> requests.Response:
        if not is_of_catalog(url):
            return request(method, url, **arguments)
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
                failure = send_failure(error, url)
                if is_change and isinstance(failure, AnswerLost):
                    wait.needs_key_until(key_ends_s)
                raise failure from error
            if is_change and answer.status >= 500:
                wait.needs_key_until(key_ends_s)
            return answer

        try:
            return wait.answer(send).response
        except SendFailure as failure:
            raise failure.__cause__ or failure from None

    session.request = patient_request  # type: ignore[assignment]
