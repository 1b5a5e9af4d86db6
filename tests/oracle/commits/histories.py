"""Runs one history on both sides, step by step, and reports where they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.commit.requests import Driver
from tests.oracle.commits.cases import Step, Table
from tests.oracle.commits.compare import Comparison, Difference, verdicts
from tests.oracle.commits.differences import APART, Context, explained
from tests.oracle.commits.draws import Draws
from tests.oracle.commits.java_side import Java, JavaTable, Refusal
from tests.oracle.commits.own_side import OwnTable, Rejection
from tests.oracle.commits.states import State


@dataclass(frozen=True)
class Taken:
    """One step and its outcome."""

    step: Step
    refusal: Refusal | None
    rejection: Rejection | None
    listed: tuple[str, ...]
    unlisted: tuple[Difference, ...]

    def went_apart(self) -> bool:
        """Return whether the two sides now have different states.

        Java does not commit a step that we rejected, but we have already committed a step that
        Java refused.
        """
        refused = self.refusal is not None and self.rejection is None
        return refused or bool(APART & {*self.listed})

    def shown(self) -> str:
        verdict = "accepted"
        if self.refusal is not None or self.rejection is not None:
            verdict = f"java: {self.refusal}\n    own: {self.rejection}"
        return f"{self.step.shown()}\n    {verdict}"


@dataclass
class History:
    """A history that has run."""

    title: str
    table: Table
    location: str
    taken: list[Taken] = field(default_factory=list)
    state: State | None = None
    crossed_at: int | None = None
    """The step before which each side took over the other's tree."""

    def listed(self) -> Counter[str]:
        return Counter(name for taken in self.taken for name in taken.listed)

    def unlisted(self) -> list[Difference]:
        return [difference for taken in self.taken for difference in taken.unlisted]

    def shown(self) -> str:
        steps = [f"{number}. {taken.shown()}" for number, taken in enumerate(self.taken, 1)]
        differences = [str(difference) for difference in self.unlisted()]
        title = self.title
        if self.crossed_at is not None:
            title += f", trees crossed before step {self.crossed_at}"
        text = "\n".join((title, str(self.table), *steps, "differences:", *differences))
        return text.replace(f"{self.location}/data/", "")


class World:
    """Both sides, reusable for any number of histories."""

    def __init__(self, java: Java, driver: Driver) -> None:
        self._java = java
        self._driver = driver
        self._tables = 0
        self.listed: Counter[str] = Counter()
        """How often each listed difference occurred in all histories."""

    def run_seed(self, seed: int) -> History:
        draws = Draws(seed)
        run = _Run(self, f"seed {seed}", draws.table)
        draws.at(run.location)
        run.go(draws.next, draws.steps(), draws.crossing())
        self.listed += run.history.listed()
        return run.history

    def run_steps(self, table: Table, make: Callable[[str], Iterable[Step]]) -> History:
        """Run the given steps; `make` receives the table's location, which contains its files."""
        run = _Run(self, "given steps", table)
        steps = list(make(run.location))
        left: Iterator[Step] = iter(steps)
        run.go(lambda state: next(left), len(steps))
        return run.history

    def tables(self, table: Table) -> tuple[OwnTable, JavaTable]:
        self._tables += 1
        name = f"t{self._tables}"
        own = OwnTable(self._java, self._driver, name, table)
        return own, JavaTable(self._java, name, own.location, table)


class _Run:
    def __init__(self, world: World, title: str, table: Table) -> None:
        self._own, self._java = world.tables(table)
        self.location = self._own.location
        self.history = History(title, table, self.location)
        self._comparison = Comparison()
        self._state = self._java.state(0)
        self._own.state(0)

    def go(self, draw: Callable[[State], Step], steps: int, crossing: int | None = None) -> None:
        """Run the steps, and stop after the first one that leaves the sides in different states."""
        for number in range(1, steps + 1):
            if number == crossing:
                self._cross(number)
            taken = self._take(number, draw(self._state))
            self.history.taken.append(taken)
            if taken.unlisted or taken.went_apart():
                break
        self.history.state = self._state
        self._java.drop()

    def _cross(self, number: int) -> None:
        """Make each side continue with the tree that the other side wrote."""
        self.history.crossed_at = number
        metadata = self._java.hand_over()
        location, files = self._own.hand_over()
        steps = dict(self._own.steps), dict(self._java.steps)
        self._java.take_over(location, files, steps[0])
        self._own.take_over(metadata, steps[1])
        self._state = self._java.state(number - 1)
        self._own.state(number - 1)

    def _take(self, number: int, step: Step) -> Taken:
        before = self._state
        rejection = self._own.attempt(step)
        refusal = self._java.attempt(step, commit=rejection is None)
        differences = verdicts(refusal, rejection)
        after: dict[str, Any] = {}
        if refusal is None and rejection is None:
            self._state = self._java.state(number)
            own = self._own.state(number)
            after = {"java": self._state, "own": own}
            differences += self._comparison.states(number, self._state, own)
        context = Context(self.history.table, step, before, refusal, rejection, **after)
        names = [(difference, explained(context, difference)) for difference in differences]
        return Taken(
            step=step,
            refusal=refusal,
            rejection=rejection,
            listed=tuple(name for _, name in names if name is not None),
            unlisted=tuple(difference for difference, name in names if name is None),
        )
