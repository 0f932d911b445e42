"""SECURITY.md is so: each claim names tests that exist, and code of files is run where it says and nowhere else."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("dispersion", "amplitude", "simulate", "models", "training", "figures", "tokenwaves")
SOURCES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
RUNS_CODE = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "import_module",
    "sympify",
    "parse_expr",
    "run_path",
    "run_module",
}
"""What runs or imports what it is given as text, by the last part of its name."""
READERS = {
    "pickle",
    "cloudpickle",
    "dill",
    "marshal",
    "joblib",
    "shelve",
    "yaml",
    "torch",
    "jit",
    "export",
    "np",
    "numpy",
}
"""Modules whose `load` and `loads` can run code of what they read."""
ALLOWED = {
    ("dispersion/block/stored.py", "np.load"),  # allow_pickle=False
    ("models/adapters/weights.py", "torch.load"),  # weights_only=True
    ("models/program.py", "torch.export.load"),  # with trust alone
    ("models/opened.py", "import_module"),  # module:callable
    ("models/adapters/registry.py", "import_module"),  # our own modules
    ("models/__init__.py", "import_module"),  # names of our own
    ("training/__init__.py", "import_module"),
    ("training/fitting.py", "torch.compile"),  # networks of our own
    ("figures/making.py", "import_module"),
    ("tokenwaves/__init__.py", "import_module"),
    ("dispersion/compiled.py", "pickle.loads"),  # from the user's own folder
}
OUTSIDE = {
    "socket",
    "urllib",
    "http",
    "requests",
    "ftplib",
    "aiohttp",
    "httpx",
    "subprocess",
    "huggingface_hub",
    "webbrowser",
}


def claims():
    """(claim, [(file, test), …]) of each row of SECURITY.md."""
    rows = [line for line in (ROOT / "SECURITY.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]
    return [
        (row[0], re.findall(r"`(tests/\w+\.py)::(\w+)`", row[-1]))
        for row in cells
        if row[-1] not in ("shown by", "---")
    ]


def functions(file):
    return {node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("claim", "tests"), claims(), ids=[claim for claim, _ in claims()])
def test_each_claim_names_tests_that_exist(claim, tests):
    assert tests or claim == "joblib and Dask workers"  # what these may do is said, not shown
    for file, name in tests:
        assert name in functions(file), f"{file} has no {name}"


def test_the_page_has_claims():
    assert len(claims()) >= 15
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(tests/\S+)`", text)) >= {
        f"{file}::{name}" for _, tests in claims() for file, name in tests
    }
    for file, name in re.findall(r"`(tests/\w+\.py)::(\w+)`", text):
        assert name in functions(file)


def dotted(node):
    """The name that is called, as it is written."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def calls(path):
    return [(dotted(node.func), node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]


def test_code_of_files_is_run_where_this_page_says_and_nowhere_else():
    found, safely = set(), []
    for path in SOURCES:
        for name, call in calls(path):
            *modules, last = name.split(".")
            reads = last in ("load", "loads", "Unpickler") and set(modules) & READERS
            if reads or (last in RUNS_CODE and name not in ("re.compile", "torch.compile")):
                found.add((path.relative_to(ROOT).as_posix(), name))
            if name in ("np.load", "torch.load", "np.lib.format.read_array"):
                options = {keyword.arg: getattr(keyword.value, "value", None) for keyword in call.keywords}
                safely.append(options.get("weights_only") is True or options.get("allow_pickle") is False)
    assert found <= ALLOWED
    assert {name for _, name in found} >= {"np.load", "torch.load", "torch.export.load", "pickle.loads"}  # it is seen
    assert len(safely) == 3
    assert all(safely)


def test_nothing_reaches_the_network():
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [name.name for name in node.names] if isinstance(node, ast.Import) else []
            assert not OUTSIDE & {name.split(".")[0] for name in names}, path
