"""Reads and writes Avro object container files."""
