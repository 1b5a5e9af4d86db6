"""Loaded tables, and the changes of tables that the client can declare."""
