"""Which package may import which, and two promises about everything that is exported."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

ALLOWED = {  # figures → training → models, simulate, amplitude → dispersion
    "dispersion": set(),
    "amplitude": {"dispersion"},
    "simulate": {"dispersion"},
    "models": {"dispersion"},
    "training": {"models", "simulate", "dispersion"},
    "figures": {"training", "models", "simulate", "amplitude", "dispersion"},
    "tokenwaves": {"figures", "training", "models", "simulate", "amplitude", "dispersion"},
}
OURS = set(ALLOWED)
PRESENT = [name for name in ALLOWED if (ROOT / name / "__init__.py").exists()]
MODULES = sorted(path for name in ALLOWED for path in (ROOT / name).rglob("*.py"))


def modules_of(path):
    """The modules that a module imports anywhere: functions, annotations and import_module included."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function = getattr(node.func, "attr", getattr(node.func, "id", None))
            if function in ("import_module", "__import__"):
                names.add(str(node.args[0].value))
    return names


def imported(path):
    """The top-level names of `modules_of`."""
    return {name.partition(".")[0] for name in modules_of(path)}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_arrows(path):
    package = path.relative_to(ROOT).parts[0]
    names = imported(path)
    assert (names & OURS) - {package} <= ALLOWED[package]
    assert package in ("models", "training") or "torch" not in names
    if package == "training":
        taken = {name for name in modules_of(path) if name.partition(".")[0] == "simulate"}
        assert all(name.startswith("simulate.runs.") for name in taken)


def test_closed_forms_and_normal_forms_are_independent():
    """Two routes to one number check each other only as long as neither takes anything from the other."""
    rooms = ("closed_forms", "normal_forms")
    for own, other in (rooms, rooms[::-1]):
        paths = list((ROOT / "amplitude" / own).glob("*.py"))
        assert len(paths) > 5
        assert not [path for path in paths if any(f"amplitude.{other}" in name for name in modules_of(path))]


GROUND = {"dispersion.atomic", "dispersion.errors", "dispersion.memory", "dispersion.quiet"}


def test_the_ground_floor_of_long_work_stands_on_its_own():
    """simulate.runs knows no theory and no maps: of ours it imports itself and what is as plain."""
    modules = list((ROOT / "simulate" / "runs").glob("*.py"))
    names = set().union(*map(modules_of, modules))
    ours = {name for name in names if name.partition(".")[0] in OURS}
    assert "simulate.runs.columns" in ours
    assert {name for name in ours if not name.startswith("simulate.runs.")} <= GROUND


def test_every_package_is_looked_at():
    """Guards the test above against an empty list of modules."""
    found = {str(path.relative_to(ROOT)) for path in MODULES}
    assert {"dispersion/errors.py", "dispersion/block/kernel.py", "dispersion/ring/relation.py"} <= found
    assert imported(ROOT / "dispersion" / "ring" / "relation.py") >= {"numpy", "dispersion", "matplotlib"}


@pytest.mark.parametrize(
    "source",
    ["import amplitude.x", "def f():\n    from amplitude import y", "importlib.import_module('amplitude')"],
)
def test_an_import_is_seen_wherever_it_hides(tmp_path, source):
    path = tmp_path / "module.py"
    path.write_text(source)
    assert imported(path) == {"amplitude"}


def test_importing_dispersion_is_light():
    heavy = {"sympy", "numba", "matplotlib", "xarray", "torch", *(OURS - {"dispersion"})}
    program = f"import sys, dispersion; print(*sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def exported():
    """(label, callable) for each function and class in the packages' `__all__`, and each public method."""
    for package in PRESENT:
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            if not callable(thing) or (inspect.isclass(thing) and issubclass(thing, Exception)):
                continue
            yield f"{package}.{name}", thing
            for attribute in vars(thing) if inspect.isclass(thing) else ():
                member = getattr(thing, attribute)
                if not attribute.startswith("_") and (inspect.isfunction(member) or inspect.ismethod(member)):
                    yield f"{package}.{name}.{attribute}", member


EXPORTED = list(exported())


def documentation(thing):
    """The docstring; for a class that inherits its constructor, also that of the class it comes from."""
    if not inspect.isclass(thing):
        return thing.__doc__
    constructed = next((base for base in thing.__mro__ if "__init__" in vars(base)), thing)
    return f"{thing.__doc__}\n{constructed.__doc__}"


@pytest.mark.parametrize("thing", [thing for _, thing in EXPORTED], ids=[label for label, _ in EXPORTED])
def test_every_parameter_is_documented(thing):
    assert thing.__doc__
    text = documentation(thing)
    parameters = [name for name in inspect.signature(thing).parameters if name not in ("self", "cls")]
    missing = [name for name in parameters if not re.search(rf"\b{re.escape(name)}\b", text)]
    assert not missing


@pytest.mark.parametrize("thing", [thing for _, thing in EXPORTED], ids=[label for label, _ in EXPORTED])
def test_an_unknown_keyword_is_refused(thing):
    with pytest.raises(TypeError, match="unexpected keyword"):
        thing(no_such_keyword=1)


@pytest.mark.parametrize("package", PRESENT)
def test_every_package_says_what_it_exports(package):
    module = importlib.import_module(package)
    assert module.__doc__
    assert all(hasattr(module, name) for name in module.__all__)


@pytest.mark.parametrize("package", PRESENT)
def test_every_property_is_documented(package):
    module = importlib.import_module(package)
    classes = [thing for name in getattr(module, "__all__", ()) if inspect.isclass(thing := getattr(module, name))]
    bare = [
        f"{thing.__name__}.{name}"
        for thing in classes
        for name, member in vars(thing).items()
        if not name.startswith("_") and isinstance(member, property | cached_property) and not member.__doc__
    ]
    assert bare == []
