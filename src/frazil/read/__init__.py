"""Reads table state: caches of manifests and metadata, history, delete matching, filters."""
