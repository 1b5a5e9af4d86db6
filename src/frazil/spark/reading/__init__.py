"""Reads tables as frames, through Iceberg's runtime or Frazil's own reader."""
