"""Run `session.sql`: Spark SQL with Iceberg's extensions, on the tables of the catalog."""
