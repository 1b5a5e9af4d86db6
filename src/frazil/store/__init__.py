"""Stores immutable objects in local files, S3 or memory."""
