"""Start Spark on this machine and find its Java."""
