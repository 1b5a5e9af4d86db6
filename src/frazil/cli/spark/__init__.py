"""Runs statements and loads on Spark."""
