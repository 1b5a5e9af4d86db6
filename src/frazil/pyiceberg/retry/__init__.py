"""The commit loop for PyIceberg tables of other catalogs: check, rebuild, retry."""
