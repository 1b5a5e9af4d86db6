"""Fits frames to table schemas."""
