"""Builds and encodes table and view metadata."""
