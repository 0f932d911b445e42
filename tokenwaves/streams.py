"""The standard streams as the command line meets them: of any encoding, closed, full, or read by nobody."""

from __future__ import annotations

import codecs
import os
import sys
import unicodedata
from contextlib import suppress
from typing import TextIO

FALLBACK = "tokenwaves"
"""The error handler of encodings that writes what they lack in ASCII."""
PLAIN = {
    **{"−": "-", "–": "-", "—": "-", "…": "...", "×": "x", "·": "*", "∘": "o", "→": "->", "↦": "->", "≤": "<="},
    **{"≥": ">=", "≠": "!=", "≃": "~", "≈": "~", "≡": "=", "≢": "!=", "√": "sqrt", "∂": "d", "∞": "inf", "∈": "in"},
    **{"Σ": "sum", "∑": "sum", "∏": "prod", "⟨": "<", "⟩": ">", "⊗": "x", "‖": "||", "○": "o", "’": "'", "⁺": "^+"},
}


def prepare() -> None:
    """Make the streams of this process usable: characters that an encoding lacks are written in ASCII, and a standard
    error that is closed takes what it is given and shows it to nobody.

    No descriptor of a closed stream is left for a file to fall into. An OSError says if standard output is closed.
    """
    closed = sys.stdout is None
    if None in (sys.stdin, sys.stdout, sys.stderr):
        while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
            pass
        os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if closed:
        raise OSError(None, "closed")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=FALLBACK)


def say(line: str) -> None:
    """`line` on standard error, if that can be."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


def discard(stream: TextIO | None) -> None:
    """Let what `stream` still holds go nowhere, so that the end of the process does not stumble over it."""
    with suppress(OSError, ValueError, AttributeError):  # no stream, or one without a descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # type: ignore[union-attr]


def encodable(text: str) -> str:
    """`text` as standard output will show it."""
    encoding, errors = getattr(sys.stdout, "encoding", None), getattr(sys.stdout, "errors", None)
    return text.encode(encoding, errors).decode(encoding) if encoding and errors == FALLBACK else text


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_plain, error.object[error.start : error.end])), error.end


def _plain(character: str) -> str:
    """`character` in ASCII: by name if it is Greek, with ^ or _ if it is raised or lowered."""
    if character in PLAIN:
        return PLAIN[character]
    kind, *name = unicodedata.name(character, "none").split()
    if kind == "GREEK" and name[:2] in (["SMALL", "LETTER"], ["CAPITAL", "LETTER"]):
        letter = name[2].replace("LAMDA", "LAMBDA").lower()
        return letter.capitalize() if name[0] == "CAPITAL" else letter
    mark = {"<super>": "^", "<sub>": "_"}.get(unicodedata.decomposition(character).split(" ")[0], "")
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return mark + plain if plain else "" if unicodedata.combining(character) else "?"


codecs.register_error(FALLBACK, _in_ascii)
