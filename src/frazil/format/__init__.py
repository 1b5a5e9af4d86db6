"""Implements the Iceberg formats without I/O."""
