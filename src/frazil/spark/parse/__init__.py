"""Parse SQL statements and find the tables that they name."""
