"""The HTTP layer: routes, requests, replies and error responses of the REST catalog."""
