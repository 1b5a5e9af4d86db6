"""Encodes and decodes manifests and manifest lists."""
