"""The example in docs/retrying.md runs as written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_example_runs(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "retrying.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    check = "print(sorted(catalog.load_table('shop.orders').scan().to_arrow()['id'].to_pylist()))"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\n{check}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    conflict, ids = done.stdout.splitlines()
    assert conflict.startswith("Found conflicting files that can contain records matching")
    assert ids == "[3, 4]"
