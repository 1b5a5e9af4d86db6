"""Maintenance of tables by jobs of Spark."""
