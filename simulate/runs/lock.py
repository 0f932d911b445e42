"""A lock that one process at a time can hold, and that the system releases when this process ends, however it does."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_HELD: set[int] = set()
"""Descriptors of the locks of this process."""


class Locked(Exception):
    """Another process holds the lock, or another thread."""


class Lock:
    """The exclusive lock on the file `path`, which is made where it is missing; Locked if another has it.

    FileNotFoundError if the folder of the file goes meanwhile. Where the file system has no locks, this one keeps
    nobody out.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0), 0o666)
        _HELD.add(self._handle)
        try:
            if fcntl is not None:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise Locked from None
        except OSError:  # a file system without locks
            pass
        try:
            if not os.path.samestat(os.stat(path), os.fstat(self._handle)):
                raise FileNotFoundError
        except FileNotFoundError:  # its last holder has removed the file since
            self.release()
            raise

    def remove(self) -> None:
        """Remove the file and release the lock."""
        self._path.unlink(missing_ok=True)
        self.release()

    def release(self) -> None:
        """Release the lock; the file stays."""
        if self._handle in _HELD:
            _HELD.remove(self._handle)
            with suppress(OSError):  # at once, also where another process was forked in this moment
                if fcntl is not None:
                    fcntl.flock(self._handle, fcntl.LOCK_UN)
            os.close(self._handle)


def _forget() -> None:
    """In a forked process: what the parent holds is not to outlive it there."""
    for handle in _HELD:
        os.close(handle)
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
