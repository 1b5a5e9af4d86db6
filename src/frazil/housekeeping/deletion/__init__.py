"""Marks and deletes files, and reads the rows about them."""
