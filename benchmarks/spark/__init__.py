"""The pipeline on Spark beside plain Parquet and stock Spark with Iceberg's runtime."""
