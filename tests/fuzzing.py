"""How the fuzzers run: the same property on a few random inputs by default, on very many with -m exhaustive."""

import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy


def budget(short: int, long: int = 10_000) -> pytest.MarkDecorator:
    """Parametrise a test by `examples`: `short` by default, `long` under -m exhaustive."""
    long_run = pytest.param(long, id="long", marks=pytest.mark.exhaustive)
    return pytest.mark.parametrize("examples", [pytest.param(short, id="short"), long_run])


def fuzz(prop: Callable[..., None], examples: int, *args: SearchStrategy, **strategies: SearchStrategy) -> None:
    """Run `prop` on `examples` draws of the strategies; a failure is shrunk and shown with what reproduces it."""
    checks = [
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ]
    chosen = settings(
        max_examples=examples,
        deadline=None,
        derandomize="CI" in os.environ,
        suppress_health_check=checks,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        print_blob=True,
    )
    chosen(given(*args, **strategies)(prop))()
