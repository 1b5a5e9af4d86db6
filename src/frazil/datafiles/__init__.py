"""Reads and writes data files by Arrow: footers, conversions, deletes, copies; without Spark."""
