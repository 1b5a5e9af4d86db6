"""Frazil: an Apache Iceberg REST catalog that commits declared file changes."""

__version__ = "0.1.0"
