"""Where points are worked on: this process, or what joblib knows. joblib is imported on first use."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any

from dispersion.errors import ArgumentError, shown
from simulate.runs.columns import Part

PIECES = 4
"""Groups of points for each worker, where there are several."""


Call = tuple[Any, ...]
"""The arguments of the work on a range of points."""


@dataclass(frozen=True)
class Jobs:
    """workers : of joblib; 0 for this process alone. options : of joblib.Parallel."""

    workers: int
    options: dict[str, Any]

    @property
    def working(self) -> int:
        """Groups of points in this machine's memory at once, at most."""
        return max(1, self.workers)


def jobs_of(n_jobs: int | None, backend: str | None) -> Jobs:
    """From the arguments of joblib.Parallel, and an active joblib.parallel_config."""
    if n_jobs is None and backend is None and "joblib" not in sys.modules:
        return Jobs(0, {})
    try:
        import joblib
        from joblib.parallel import get_active_backend
    except ImportError:
        raise ArgumentError("n_jobs", n_jobs, "None, or joblib installed") from None
    if n_jobs is None and backend is None:
        active, count = get_active_backend()
        count = getattr(active, "default_n_jobs", 1) if count is None else count
        return Jobs(0 if count == 1 else max(1, active.effective_n_jobs(count)), {})
    if n_jobs is not None and (isinstance(n_jobs, bool) or not isinstance(n_jobs, int) or n_jobs == 0):
        raise ArgumentError("n_jobs", repr(n_jobs), "a whole number but 0, negative to count from all cores")
    options: dict[str, Any] = {"n_jobs": n_jobs or -1, **({} if backend is None else {"backend": backend})}
    try:
        with joblib.parallel_config(**options):
            return Jobs(max(1, joblib.effective_n_jobs(options["n_jobs"])), options)
    except (ValueError, ImportError) as error:
        raise ArgumentError("backend", f"{backend!r} ({error})", "a backend of joblib") from None


def piece_size(points: int, jobs: Jobs, most: int) -> int:
    """Points in a group: up to `most`, fewer where several workers share them."""
    return most if jobs.workers < 2 else max(1, min(most, -(-points // (PIECES * jobs.workers))))


def outcomes(jobs: Jobs, work: Callable[..., Part], calls: Iterator[Call]) -> Generator[Part, None, None]:
    """What `work` makes of each of `calls`, as workers end; an ArgumentError if these are killed, again and again."""
    import joblib
    from joblib.parallel import get_active_backend

    with joblib.parallel_config(**jobs.options) if jobs.options else nullcontext():
        client = getattr(get_active_backend()[0], "client", None)
    finished = _from_joblib(jobs, work, calls) if client is None else _from_dask(client, jobs, work, calls)
    try:
        yield from finished
    except Exception as error:
        if type(error).__name__ not in KILLED:
            raise
        got = f"a worker that was killed ({shown(error, str)})"
        accepted = "points that a worker survives: a smaller group, or less memory; what is finished is kept at a path"
        raise ArgumentError("backend", got, accepted) from None


KILLED = ("TerminatedWorkerError", "BrokenProcessPool", "KilledWorker", "WorkerCrashedError", "OutOfMemoryError")
"""What loky, Dask and Ray raise when a worker has died."""


def _from_joblib(jobs: Jobs, work: Callable[..., Part], calls: Iterator[Call]) -> Iterator[Part]:
    """In rounds with a backend that cannot hand over one at a time (Ray)."""
    from joblib import Parallel, delayed

    # loky replaces a worker whose memory has grown, and nothing is lost
    warnings.filterwarnings("ignore", message="A worker stopped while some jobs", category=UserWarning)
    tasks = (delayed(work)(*call) for call in calls)
    try:
        finished = Parallel(**jobs.options, return_as="generator_unordered")(tasks)
    except ValueError as error:
        if "return_as" not in str(error):
            raise
        while batch := list(islice(tasks, PIECES * jobs.workers)):
            yield from Parallel(**jobs.options)(batch)
        return
    with closing(finished):
        yield from finished


def _from_dask(client: Any, jobs: Jobs, work: Callable[..., Part], calls: Iterator[Call]) -> Iterator[Part]:
    """Without joblib, which waits for ever for a task that Dask has given up."""
    from distributed import as_completed

    def submitted(call: Call) -> Any:
        return client.submit(work, *call, pure=False)

    running = as_completed([submitted(call) for call in islice(calls, PIECES * jobs.workers)])
    try:
        for future in running:
            part = future.result()
            running.update([submitted(call) for call in islice(calls, 1)])
            yield part
    finally:
        client.cancel(list(running.futures))
