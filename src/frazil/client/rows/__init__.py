"""Rows of tables as Arrow: appended, changed and read without Spark and without PyIceberg."""
