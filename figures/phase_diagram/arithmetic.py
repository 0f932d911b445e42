"""Arithmetic in the strings of a specification: numbers, parameters, + − * / ** and parentheses."""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import isfinite
from typing import Any

from dispersion import ArgumentError

LONGEST = 500
"""Characters of an expression."""
OPERATORS: dict[type, Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


def evaluated(value: Any, parameters: Mapping[str, float]) -> Any:
    """`value` of a TOML document with every string that names a parameter replaced by the number it stands for."""
    if isinstance(value, dict):
        return {key: evaluated(item, parameters) for key, item in value.items()}
    if isinstance(value, list):
        return [evaluated(item, parameters) for item in value]
    return number(value, parameters) if names(value) & set(parameters) else value


def used(value: Any) -> set[str]:
    """The names in all expressions of `value`, a part of a TOML document."""
    if isinstance(value, dict | list):
        return set().union(*map(used, value.values() if isinstance(value, dict) else value))
    return names(value)


def names(text: Any) -> set[str]:
    """The names in the expression `text`; none if it is no expression."""
    return parsed(text)[1] if isinstance(text, str) else set()


def number(text: str, parameters: Mapping[str, float]) -> float:
    """The finite number that the expression `text` stands for."""
    accepted = f"numbers, + − * / ** and the parameters {', '.join(parameters)}, {LONGEST} characters at most"
    tree = parsed(text)[0]
    if tree is None or len(text) > LONGEST:
        raise ArgumentError("expression", repr(text), accepted)
    try:
        result = _number(tree, parameters)
        problem = "" if isinstance(result, float) and isfinite(result) else f"{result:.6g}"
    except ArithmeticError as error:
        problem = str(error)
    except (TypeError, RecursionError):
        raise ArgumentError("expression", repr(text), accepted) from None
    if problem:
        at = ", ".join(f"{name} = {value:g}" for name, value in parameters.items())
        raise ArgumentError("expression", f"{text!r} at {at} ({problem})", "a finite number")
    return result


@lru_cache(maxsize=1024)
def parsed(text: str) -> tuple[ast.expr | None, set[str]]:
    """The tree of the expression `text` and the names in it; none if Python does not read it.

    One that is too long for a tree has the names that stand in it.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return None, set()
    except (RecursionError, MemoryError):
        return None, set("".join(c if c.isalnum() or c == "_" else " " for c in text).split())
    return tree, {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _number(node: ast.expr, parameters: Mapping[str, float]) -> float:
    """The value of `node`; a TypeError if it is no arithmetic."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return float(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.Name) and node.id in parameters:
        return parameters[node.id]
    if isinstance(node, ast.UnaryOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](_number(node.operand, parameters))
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](_number(node.left, parameters), _number(node.right, parameters))
    raise TypeError
