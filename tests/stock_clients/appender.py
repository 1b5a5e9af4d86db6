"""A stock PyIceberg writer in its own process.

It loads the table, reports that it is ready and waits, so that all writers start from the same
snapshot. Then it appends one row per commit, and finally prints the ids that it appended.
"""

from __future__ import annotations

import json
import sys

from tests.stock_clients.stock import id_name, pyiceberg_catalog


def main(url: str, table_name: str, first_id: int, commits: int) -> None:
    table = pyiceberg_catalog(url).load_table(table_name)
    print("ready", flush=True)
    sys.stdin.readline()
    ids = range(first_id, first_id + commits)
    for number in ids:
        table.append(id_name(number, name="pyiceberg"))
    print(json.dumps(list(ids)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
