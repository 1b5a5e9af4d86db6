"""A real catalog, as for the tests of the client."""

from tests.client.conftest import catalog, client, namespace

__all__ = ["catalog", "client", "namespace"]
