"""Reads tables as frames."""
