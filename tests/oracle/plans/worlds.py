"""Draws a table and its scans from a seed, and plans each scan with our planner and the oracles."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from tests.commit.requests import Driver
from tests.oracle.plans.columns import leaves
from tests.oracle.plans.compare import Difference, compare
from tests.oracle.plans.differences import Context, listed_name
from tests.oracle.plans.files import Doc
from tests.oracle.plans.java_side import JavaPlanned, JavaPlans
from tests.oracle.plans.own_side import OwnPlans
from tests.oracle.plans.predicates import Constant, Predicate, PredicateMaker
from tests.oracle.plans.pyiceberg_side import CannotSay, PyIcebergPlanned
from tests.oracle.plans.rows import problems
from tests.oracle.plans.tables import PlannedTable, TableMaker

SCANS: Final = 24
SHOWN_DIFFERENCES: Final = 4


@dataclass(frozen=True)
class Scan:
    """One scan: the request and its predicate."""

    predicate: Predicate
    schema: Doc
    """The schema that the predicate refers to."""
    snapshot_id: int | None = None
    start_snapshot_id: int | None = None
    end_snapshot_id: int | None = None
    case_sensitive: bool = True
    use_snapshot_schema: bool = False

    def json(self) -> Doc:
        return {
            "filter": self.predicate.json(),
            "snapshot-id": self.snapshot_id,
            "start-snapshot-id": self.start_snapshot_id,
            "end-snapshot-id": self.end_snapshot_id,
            "case-sensitive": self.case_sensitive,
            "use-snapshot-schema": self.use_snapshot_schema,
        }


@dataclass
class Run:
    """The results of one seed."""

    seed: int
    table: PlannedTable
    scans: int = 0
    planned_files: int = 0
    pyiceberg_scans: int = 0
    found: list[tuple[Difference, str | None]] = field(default_factory=list)
    """Differences, each with the name under which it is listed."""

    def unlisted(self) -> list[Difference]:
        return [difference for difference, name in self.found if name is None]

    def listed(self) -> Counter[str]:
        return Counter(name for _, name in self.found if name is not None)

    def shown(self) -> str:
        lines = [f"seed {self.seed}: format version {self.table.shape.format_version}"]
        lines += [f"  {step}" for step in self.table.steps]
        lines += [f"  {spec_id}: {spec}" for spec_id, spec in self.table.shape.specs.items()]
        unlisted = [str(difference) for difference in self.unlisted()]
        more = len(unlisted) - SHOWN_DIFFERENCES
        unlisted = unlisted[:SHOWN_DIFFERENCES]
        for key, doc in self._docs().items():
            if any(key in text for text in unlisted):
                lines.append(f"  {json.dumps(doc)}")
        return "\n".join([*lines, *unlisted, *([f"  and {more} more"] if more > 0 else [])])

    def _docs(self) -> dict[str, Doc]:
        versions = self.table.versions.values()
        data = {path: file.doc for version in versions for path, (file, _) in version.data.items()}
        deletes = {
            key[0]: file.doc for version in versions for key, (file, _) in version.deletes.items()
        }
        return data | deletes


def draw_scans(random: Random, table: PlannedTable, count: int) -> Iterator[Scan]:
    for _ in range(count):
        yield _draw_scan(random, table)


def _draw_scan(random: Random, table: PlannedTable) -> Scan:
    case_sensitive = random.random() > 0.15
    drawn = random.random()
    versions = list(table.versions)
    schema = table.shape.schema
    where: dict[str, Any] = {}
    if drawn > 0.88:
        end = table.versions[random.choice(versions)]
        line = [end.snapshot_id]
        while (parent := table.versions[line[-1]].parent_id) is not None:
            line.append(parent)
        where = {"end_snapshot_id": end.snapshot_id}
        if len(line) > 1:
            where["start_snapshot_id"] = random.choice(line[1:])
    elif drawn > 0.55:
        version = table.versions[random.choice(versions)]
        where = {"snapshot_id": version.snapshot_id}
        if drawn > 0.7:
            where["use_snapshot_schema"] = True
            schema = version.schema
    maker = PredicateMaker(random, leaves(schema), table.values)
    predicate = maker.draw(case_sensitive=case_sensitive)
    if random.random() < 0.04:
        predicate = Constant(True)
    return Scan(predicate, schema, case_sensitive=case_sensitive, **where)


class World:
    """Our catalog and the oracles, reusable for many seeds."""

    def __init__(self, driver: Driver, own: OwnPlans, java: JavaPlans) -> None:
        self.driver = driver
        self._own = own
        self.java = java
        self.listed: Counter[str] = Counter()

    def run_seed(self, seed: int, scans: int = SCANS) -> Run:
        random = Random(seed)
        table = TableMaker(random, self.driver, f"t{seed}", self.java).make()
        run = Run(seed, table)
        self.compare(run, list(draw_scans(random, table, scans)))
        return run

    def compare(self, run: Run, scans: Sequence[Scan]) -> None:
        table = run.table
        java = self.java.open(table.metadata_location)
        asked = [scan.json() for scan in scans]
        theirs = java.plan(asked)
        ours = [self._own.plan(table.name, scan) for scan in asked]
        for scan, document, own in zip(scans, asked, ours, strict=True):
            schema = leaves(scan.schema)
            for problem in problems(table, document, scan.predicate, schema, own):
                run.found.append((Difference("rows", "rows", document, problem, "", ""), None))
        bind_residuals(java, asked, ours)
        differing: list[frozenset[tuple[str, str]]] = []
        for scan, document, own, other in zip(scans, asked, ours, theirs, strict=True):
            run.scans += 1
            run.planned_files += len(own.get("tasks", ()))
            found = list(compare("java", document, other, own))
            context = Context(table, scan.predicate, document, other, own)
            run.found += [(difference, listed_name(context, difference)) for difference in found]
            differing.append(frozenset((one.kind, one.what) for one in found))
        self._compare_pyiceberg(run, java, scans, ours, differing)
        self.listed += run.listed()

    def _compare_pyiceberg(
        self,
        run: Run,
        java: JavaPlanned,
        scans: Sequence[Scan],
        ours: Sequence[Doc],
        differing: Sequence[frozenset[tuple[str, str]]],
    ) -> None:
        """Compare what PyIceberg supports; our residuals are already bound."""
        table = run.table
        try:
            planned = PyIcebergPlanned(table.metadata_location)
        except CannotSay:
            return
        columns = leaves(table.shape.schema)
        asked: list[Context] = []
        for scan, own, differs in zip(scans, ours, differing, strict=True):
            document = scan.json()
            if scan.use_snapshot_schema or _has_equality_deletes(table, scan):
                continue
            try:
                answer = planned.plan(document, scan.predicate, columns)
            except CannotSay:
                continue
            asked.append(Context(table, scan.predicate, document, answer, own, differs))
        bind_residuals(java, [one.scan for one in asked], [one.other for one in asked])
        for context in asked:
            run.pyiceberg_scans += 1
            deletes = not _has_vectors(table)
            for difference in compare(
                "pyiceberg", context.scan, context.other, context.own, deletes=deletes
            ):
                run.found.append((difference, listed_name(context, difference)))


def _has_equality_deletes(table: PlannedTable, scan: Scan) -> bool:
    version = table.current
    if scan.snapshot_id is not None:
        version = table.versions[scan.snapshot_id]
    return (
        scan.end_snapshot_id is None
        and version is not None
        and any(delete.kind == "equality" for delete, _ in version.deletes.values())
    )


def _has_vectors(table: PlannedTable) -> bool:
    """Return whether the table has deletion vectors.

    PyIceberg reports neither the offset of a vector nor which vector of a Puffin file it means.
    """
    return any(delete.kind == "vector" for delete in table.delete_files().values())


def bind_residuals(java: JavaPlanned, scans: Sequence[Doc], answers: Sequence[Doc]) -> None:
    """Replace residuals by their form after Java has read and bound them."""
    texts: dict[tuple[int, str], int] = {}
    expressions: list[Doc] = []
    for number, (scan, answer) in enumerate(zip(scans, answers, strict=True)):
        for task in answer.get("tasks", ()):
            key = (number, json.dumps(task["residual"]))
            if key not in texts:
                texts[key] = len(expressions)
                expressions.append({**scan, "expression": task["residual"]})
    bound = java.bound(expressions) if expressions else []
    for number, answer in enumerate(answers):
        for task in answer.get("tasks", ()):
            found = bound[texts[number, json.dumps(task["residual"])]]
            task["residual"] = found.get("bound", found)
