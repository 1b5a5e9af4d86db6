"""Holds what the commands share: options, names, rendering."""
