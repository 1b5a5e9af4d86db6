"""Convert types, values and frames between Spark and Iceberg."""
