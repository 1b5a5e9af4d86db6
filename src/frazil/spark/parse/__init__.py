"""Parses SQL statements."""
