"""Builds snapshots from declared files."""
