"""Reference systems of geometries and geographies: Iceberg names them, Spark numbers them.

Spark knows only these. Runs on executors.
"""

from __future__ import annotations

from typing import Final

from frazil.values.types import EdgeAlgorithm, GeographyType, GeometryType, Type

_SRIDS_OF_GEOMETRIES: Final = {"OGC:CRS84": 4326, "EPSG:3857": 3857, "SRID:0": 0}
_SRIDS_OF_GEOGRAPHIES: Final = {"OGC:CRS84": 4326}


def srid_of(type_: Type) -> int | None:
    """Spark's number of a column's reference system; None where it has none."""
    if isinstance(type_, GeometryType):
        return _SRIDS_OF_GEOMETRIES.get(type_.crs.upper())
    if isinstance(type_, GeographyType) and type_.algorithm is EdgeAlgorithm.SPHERICAL:
        return _SRIDS_OF_GEOGRAPHIES.get(type_.crs.upper())
    return None


def spatial_type(name: str, srid: int | None) -> Type | None:
    """Iceberg's type for a class of Spark's; None where it is no such class or mixes systems."""
    if name == "GeometryType":
        for crs, known in _SRIDS_OF_GEOMETRIES.items():
            if known == srid:
                return GeometryType(crs)
    if name == "GeographyType":
        for crs, known in _SRIDS_OF_GEOGRAPHIES.items():
            if known == srid:
                return GeographyType(crs)
    return None
