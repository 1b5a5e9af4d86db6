"""Checks declared files against schema, partition specs and format version."""
