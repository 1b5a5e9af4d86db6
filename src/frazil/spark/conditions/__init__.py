"""Convert SQL conditions to Iceberg filters and Iceberg filters to Spark conditions."""
