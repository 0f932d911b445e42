"""Progress of long work: a bar on a terminal, or a line now and then."""

from __future__ import annotations

import time
from typing import Any, Literal

from tqdm import tqdm

from dispersion.errors import flag

EVERY = 30.0
"""Seconds between two lines."""

Shown = bool | Literal["lines"] | None


class Lines(tqdm):
    """A bar that says every EVERY seconds, in a line of its own, how much is done and how long the rest may take."""

    def __init__(self, **settings: Any) -> None:
        self.last = time.monotonic()
        super().__init__(leave=False, **settings)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Write the line, if it is time."""
        now = time.monotonic()
        if not self.n or msg == "" or now - self.last < EVERY:
            return
        self.last = now
        state = self.format_dict
        done, total = state["n"], state["total"]
        left = self.format_interval((total - done) / (state["rate"] or done / state["elapsed"]))
        print(f"{done / total:.0%} of the work done, about {left} left", file=self.fp, flush=True)


def bar(total: int, shown: Shown, unit: str = "step") -> Any:
    """A bar of `total` steps: on a terminal only for None, 'lines' for lines."""
    if isinstance(shown, str) and shown == "lines":
        return Lines(total=total)
    return tqdm(total=total, unit=unit, unit_scale=True, disable=None if shown is None else not flag("progress", shown))
