"""Progress of long work where there is no terminal."""

from __future__ import annotations

import time
from typing import Any

from tqdm import tqdm

EVERY = 30.0
"""Seconds between two lines."""


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
