"""Every example of docs/simulation.md runs and prints what it says."""

import contextlib
import io
import re
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "simulation.md"


def test_examples_print_what_the_page_says():
    parts = re.findall(r"```(python|text)\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    namespace: dict[str, object] = {}
    printed = ""
    for kind, text in parts:
        if kind == "text":
            assert printed == text
        else:
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(text, namespace)
            printed = out.getvalue()
    assert len(parts) == 7
