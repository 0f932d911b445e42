"""The threads of this process that compiled code shares. numba is imported on first use."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import lru_cache
from threading import Lock

from threadpoolctl import ThreadpoolController


def thread_count() -> int:
    """Threads that compiled code may use, NUMBA_NUM_THREADS."""
    import numba

    return int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]


@lru_cache
def pool() -> ThreadPoolExecutor:
    """The threads of this process."""
    return ThreadPoolExecutor(thread_count(), thread_name_prefix="simulate")


@lru_cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


class _OneBlasThread:
    """A context in which BLAS keeps to the thread that calls it: several of ours do, and its own would be in their way.

    The limit is that of the whole process: the first to enter sets it, the last to leave restores it.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """As if nobody had entered."""
        self._lock, self._users, self._limit = Lock(), 0, ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                self._limit.enter_context(_blas().limit(limits=1, user_api="blas"))
            self._users += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._limit.close()


one_blas_thread = _OneBlasThread()


def _begin_anew() -> None:
    """In a forked process, which has the pool of its parent but not the threads: a pool of its own."""
    pool.cache_clear()
    one_blas_thread.begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
