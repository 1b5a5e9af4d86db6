"""Writes frames as data files and commits them."""
