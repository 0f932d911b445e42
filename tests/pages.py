"""Pages whose examples are run: what they hold, and what it prints."""

import contextlib
import io
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


class Page:
    """A page of the documentation.

    text : of it. examples : (source, output) of each, in order, to be run as one session; the output is that of the
    text block behind it, '' without one. links : where they lead.
    """

    def __init__(self, path):
        self.folder = (ROOT / path).parent
        self.text = (ROOT / path).read_text(encoding="utf-8")
        blocks = re.findall(r"```(python|text)\n(.*?)```", self.text, re.DOTALL)
        following = [*blocks, ("end", "")][1:]
        self.examples = [
            (source, output if after == "text" else "")
            for (kind, source), (after, output) in zip(blocks, following, strict=True)
            if kind == "python"
        ]
        self.links = re.findall(r"\]\(([^)]+)\)", self.text)

    def check(self):
        """Every example prints what the page says, and every link leads somewhere."""
        namespace = {}
        for source, output in self.examples:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(source, namespace)
            assert printed.getvalue() == output
        assert self.examples
        assert all((self.folder / link.split("#")[0]).exists() for link in self.links)
