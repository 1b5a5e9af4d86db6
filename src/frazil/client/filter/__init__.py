"""Builds filter expressions and parses filter text."""
