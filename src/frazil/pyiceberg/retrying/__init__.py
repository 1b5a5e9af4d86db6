"""Retries PyIceberg commits on other catalogs."""
