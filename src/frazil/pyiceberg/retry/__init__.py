"""The commit loop for PyIceberg tables of other catalogs: check, rebuild, retry.

The package is not named `retrying`, because `frazil.pyiceberg.retrying` is a public function.
"""
