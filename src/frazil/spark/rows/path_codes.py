"""Data files by small numbers, while many rows say which file they are of.

A path has a hundred letters and more: to write, hash and compare it for every row is a good part of
what it costs to find rows. A checksum of it is enough, since the files that can be met are known;
should two of them have the same one, paths are sent as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from frazil.wire.errors import FrazilError

_CODE, _PATH = "__frazil_code", "__frazil_path"


@dataclass(frozen=True, slots=True)
class FileCodes:
    _paths: Mapping[int, str] | None
    """By their codes; None where paths are their own."""

    @classmethod
    def of(cls, paths: Collection[str]) -> FileCodes:
        """For all files that can be met; no path is there twice."""
        found = {crc32(path.encode()): path for path in paths}
        return cls(found if len(found) == len(paths) else None)

    def code(self, path: Column) -> Column:
        """What stands for a path in Spark."""
        return path if self._paths is None else fn.crc32(path)

    def paths(self, codes: pa.Array) -> pa.DictionaryArray:
        """The paths again."""
        if self._paths is None:
            is_encoded = isinstance(codes, pa.DictionaryArray)
            return codes if is_encoded else pc.dictionary_encode(codes)
        known = np.array(sorted(self._paths), dtype=np.int64)
        given = codes.to_numpy(zero_copy_only=False)
        at = np.searchsorted(known, given)
        if len(given) and (
            not len(known) or (known[np.minimum(at, len(known) - 1)] != given).any()
        ):
            raise FrazilError("the scan has read a file which the catalog's plan does not have")
        names = pa.array([self._paths[int(code)] for code in known], pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(at.astype(np.int32)), names)

    def with_paths(self, frame: DataFrame, name: str) -> DataFrame:
        """A frame whose column of codes has become one of paths."""
        if self._paths is None:
            return frame
        known = pa.table({_CODE: list(self._paths), _PATH: list(self._paths.values())})
        files = frame.sparkSession.createDataFrame(known).hint("broadcast")
        joined = frame.join(files, fn.col(name) == fn.col(_CODE), "left")
        others = (fn.col(other) for other in frame.columns if other != name)
        return joined.select(fn.col(_PATH).alias(name), *others)
