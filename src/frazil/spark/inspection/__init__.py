"""Iceberg's metadata tables, such as `ns.t.files`: what a table is made of, as frames."""
