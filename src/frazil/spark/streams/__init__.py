"""Reads and writes streams."""
