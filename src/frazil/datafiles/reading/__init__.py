"""Reads data files, delete files and scan tasks."""
