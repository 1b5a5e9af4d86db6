"""The benchmark of declared-file commits next to other systems making the same change."""
