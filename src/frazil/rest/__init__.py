"""The edge: HTTP in, the catalog's answers out, every failure in one shape."""
