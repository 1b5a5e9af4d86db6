"""Stores the rows of the catalog in SQLite or PostgreSQL. `frazil.db.connect.connect` opens one."""
