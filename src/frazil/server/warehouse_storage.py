"""S3 settings of the warehouse, and the check that its store works."""

from __future__ import annotations

from collections.abc import Mapping

from frazil.settings import Settings
from frazil.store.object_store import Store, prove_put_if_absent
from frazil.store.s3_settings import S3Settings


def s3_settings(settings: Settings, environ: Mapping[str, str]) -> S3Settings:
    """Return the S3 settings: Frazil's own settings win over the variables of AWS tools."""
    path_style = settings.s3_path_style
    frazil_settings = {
        "FRAZIL_S3_ENDPOINT": settings.s3_endpoint or "",
        "FRAZIL_S3_REGION": settings.s3_region or "",
        "FRAZIL_S3_PATH_STYLE": "" if path_style is None else str(path_style),
    }
    return S3Settings.from_environment({**environ, **frazil_settings})


def prepare_warehouse(store: Store, warehouse: str) -> None:
    """Create the warehouse folder and check that put-if-absent works, which commits rely on."""
    store.make_folders([warehouse])
    prove_put_if_absent(store, warehouse)
