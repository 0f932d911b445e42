"""A progress bar for long work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.errors import flag

if TYPE_CHECKING:
    from tqdm import tqdm


def progress_bar(wanted: bool, total: int, label: str) -> tqdm[Any]:
    """A bar over `total` items called `label`, shown if `wanted` and the output is a terminal."""
    from tqdm import tqdm

    return tqdm(total=total, desc=label, leave=False, disable=None if flag("progress", wanted) else True)
