"""Judges commit validations."""
