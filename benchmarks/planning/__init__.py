"""The benchmark of scan planning next to PyIceberg and Java: `python -m benchmarks planning`."""
