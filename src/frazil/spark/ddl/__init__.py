"""Creates and changes tables from Spark."""
