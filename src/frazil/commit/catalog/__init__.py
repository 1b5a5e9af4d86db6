"""Serves namespaces, tables and views."""
