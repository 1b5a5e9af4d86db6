"""Writes data files, delete files and file copies."""
