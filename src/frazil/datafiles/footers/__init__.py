"""Turns Parquet footers into declared files."""
