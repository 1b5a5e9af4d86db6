"""How the settings reach the store, and what the store must prove before it is used."""

from __future__ import annotations

from collections.abc import Mapping

from frazil.settings import Settings
from frazil.store.base import Store
from frazil.store.probe import prove_put_if_absent
from frazil.store.s3_settings import S3Settings


def s3_settings(settings: Settings, environ: Mapping[str, str]) -> S3Settings:
    """Our settings, whatever their source, before what AWS's own tools read."""
    chosen = {
        "FRAZIL_S3_ENDPOINT": settings.s3_endpoint or "",
        "FRAZIL_S3_REGION": settings.s3_region or "",
        "FRAZIL_S3_PATH_STYLE": ""
        if settings.s3_path_style is None
        else str(settings.s3_path_style),
    }
    return S3Settings.from_environment({**environ, **chosen})


def prepare_warehouse(store: Store, warehouse: str) -> None:
    """Makes the folder, and proves what every commit relies on before the first one does."""
    store.make_folders([warehouse])
    prove_put_if_absent(store, warehouse)
