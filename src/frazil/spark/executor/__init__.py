"""Runs in Spark's Python workers: tasks that read and write files.

Nothing here imports code of the driver, so that a worker starts with few imports.
"""
