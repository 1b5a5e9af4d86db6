"""A stock PyIceberg writer in its own process.

It loads the table, says so, and waits: all writers start from the same snapshot. Then it appends
one row a commit, and ends with the ids it appended.
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
