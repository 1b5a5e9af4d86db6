"""Converts Spark conditions to Iceberg filters."""
