"""The benchmark of maintenance next to the procedures of stock Spark with Iceberg."""
