"""Builds a snapshot from declared files."""
