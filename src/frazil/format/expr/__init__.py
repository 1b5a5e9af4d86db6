"""Holds expressions, binds them to a schema and projects them to partitions."""
