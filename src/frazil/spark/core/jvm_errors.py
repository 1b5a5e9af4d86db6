"""Errors of the catalog that Iceberg's runtime meets in Spark's JVM.

The runtime reads through the catalog by its own HTTP client, which gives up at once if the server
is away. Its exceptions reach Python as a `Py4JJavaError` or, on Spark Connect, as a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from frazil.client.send.error_answers import CatalogUnreachable
from frazil.spark.core.context import LOGGER, Context
from frazil.wire.errors import (
    Forbidden,
    FrazilError,
    NoSuchNamespace,
    NoSuchTable,
    NotAuthorized,
    ServiceUnavailable,
)
from frazil.wire.identifiers import Identifier

T = TypeVar("T")

_PACKAGE: Final = "org.apache.iceberg.exceptions."
_KINDS: Final[dict[str, type[FrazilError]]] = {
    "RESTException": CatalogUnreachable,
    "ServiceFailureException": ServiceUnavailable,
    **{
        kind.type: kind
        for kind in (Forbidden, NoSuchNamespace, NoSuchTable, NotAuthorized, ServiceUnavailable)
    },
}
"""Our errors by the names of Iceberg's exceptions. Others may be the runtime's own."""
_NAMED: Final = re.compile(rf"{re.escape(_PACKAGE)}(\w+)\)?:? *([^\n]*)")
_CAUSE: Final = re.compile(r"^Caused by: [\w.$]+: ([^\n]*)", re.MULTILINE)
_REPEATS: Final = 2


def catalog_error(error: BaseException) -> FrazilError | None:
    """Return the catalog's error behind one of Spark; None if the cause is another one."""
    causes = list(_causes(error))
    for number, (name, _) in enumerate(causes):
        kind = _KINDS.get(name.removeprefix(_PACKAGE)) if name.startswith(_PACKAGE) else None
        if kind is not None:
            messages = dict.fromkeys(message for _, message in causes[number:] if message)
            return kind(f"Iceberg's runtime in Spark: {'; because '.join(messages)}")
    return None


def _causes(error: BaseException) -> Iterator[tuple[str, str]]:
    """Yield class and first line of the message of a Java exception and its causes."""
    thrown: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if thrown is None:
        if type(error).__module__.startswith(("pyspark.", "py4j.")):
            text = str(error)
            named = _NAMED.search(text)
            if named is not None:
                yield f"{_PACKAGE}{named[1]}", named[2]
                yield from (("", cause) for cause in _CAUSE.findall(text))
        return
    while thrown is not None:
        lines = str(thrown.getMessage() or "").splitlines()
        yield str(thrown.getClass().getName()), lines[0] if lines else ""
        thrown = thrown.getCause()


def is_outage(error: BaseException) -> bool:
    """Return whether the runtime has failed because the server was away."""
    return isinstance(catalog_error(error), CatalogUnreachable | ServiceUnavailable)


def repeated(context: Context, identifier: Identifier, step: Callable[[], T]) -> T:
    """Run a step that reads through the runtime; after an outage, run it again.

    The client waits for the server, and raises its own error if the time is over. An error of the
    runtime that remains although the client reaches the server is raised as it is.
    """
    for _ in range(_REPEATS):
        try:
            return step()
        except Exception as error:
            if not is_outage(error):
                raise
            LOGGER.info("Iceberg's runtime did not reach the catalog: %s", catalog_error(error))
        context.client.table_exists(identifier)
    return step()


@contextmanager
def translated() -> Iterator[None]:
    """Raise the catalog's errors as those of Frazil, without the stack of the JVM."""
    try:
        yield
    except FrazilError:
        raise
    except Exception as error:
        found = catalog_error(error)
        if found is None:
            raise
        raise found from None
