"""Reads and writes data files without Spark: Arrow, Parquet footers, deletes, copies."""
