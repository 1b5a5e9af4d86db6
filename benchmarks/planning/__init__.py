"""Scan planning beside PyIceberg's planner and Java's: `python -m benchmarks planning`."""
