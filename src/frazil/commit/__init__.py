"""Commits changes to tables, views and namespaces. Everything that changes the catalog runs
here."""
