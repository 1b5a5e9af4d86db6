"""The benchmark of the pipeline on Spark next to plain Parquet and stock Spark with Iceberg."""
