"""Converts between Iceberg types and Arrow."""
