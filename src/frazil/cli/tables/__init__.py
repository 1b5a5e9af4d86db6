"""Reads and changes tables of a catalog."""
