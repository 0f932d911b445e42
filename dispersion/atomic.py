"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path, draft: Path | None = None) -> Iterator[Path]:
    """A temporary path beside `path`; it becomes `path` when the block ends, and is removed if it fails.

    Where `path` is a symbolic link, the file that it leads to is replaced. What is not a file is refused.
    draft : the temporary path, in the same file system, by default one of a name that nothing has. A file by that name
    survives a machine that stops: it is on the disk before it becomes `path`.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        raise FileExistsError(errno.EEXIST, "a directory" if path.is_dir() else "not a regular file", str(path))
    temporary = draft or path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        yield temporary
        if draft is not None:
            with open(draft, "r+b") as written:
                os.fsync(written.fileno())
        os.replace(temporary, path)
    except OSError as error:
        error.filename, error.filename2 = str(path), None  # not the name of the temporary file
        raise
    finally:
        temporary.unlink(missing_ok=True)
