"""Figure 3: its claims are computed from its data, and each notices data that are wrong."""

import numpy as np
import pytest
import xarray as xr

from figures import fig3
from figures.fig3 import assessment, beyond, maps
from figures.fig3.blocks import two_lobes
from figures.files import read_data, write_data


@pytest.fixture(scope="module")
def data():
    return fig3.compute(quick=True)


def met(data):
    return {claim.id: claim.met for claim in fig3.claims(data)}


RANGES = {"fig3.amplitude.unstable_region.cubic"}
"""Not met on the ranges chosen here, .149 against .14: the paper does not give its own."""


@pytest.mark.slow
class TestClaims:
    def test_all_but_the_one_of_the_ranges_are_met(self, data, tmp_path):
        found = met(data)
        assert {name for name, here in found.items() if not here} == RANGES
        again = read_data(write_data(data, tmp_path / "fig3.nc"))
        assert [claim.row() for claim in fig3.claims(again)] == [claim.row() for claim in fig3.claims(data)]

    @pytest.mark.parametrize(
        ("node", "variable", "wrong", "lost"),
        [
            ("amplitude", "amplitude_theory", lambda x: 1.05 * x, {"fig3.amplitude.near_onset.cubic"}),
            ("beyond/amplitude", "bound", lambda x: 0.5 * x, {"fig3.amplitude.bound"}),
            (
                "beyond/amplitude",
                "bound",
                lambda x: x.where(x.order != 3, 0),
                {"fig3.amplitude.bound", "fig3.amplitude.near_onset.best", "fig3.amplitude.unstable_region.best"},
            ),
            (
                "beyond/amplitude",
                "amplitude_order",
                lambda x: x.where(x.order != 7, 1.05 * x),
                {f"fig3.amplitude.{part}" for part in ("near_onset.order7", "unstable_region.order7", "bound")},
            ),
            ("beyond/amplitude", "simulated", lambda x: (1 + 2e-6) * x, {"fig3.amplitude.exact"}),
            ("beyond/amplitude", "growth", lambda x: 0 * x, {"fig3.amplitude.exact", "fig3.amplitude.exact.unstable"}),
            ("beyond/amplitude", "phase", lambda x: 0 * x, {"fig3.amplitude.exact.unstable"}),
            ("beyond/amplitude", "phase", lambda x: x + 0.01, {"fig3.amplitude.exact.unstable"}),
            (
                "beyond/wavenumber",
                "wavenumber",
                lambda k: k + 1,
                {f"fig3.wavenumber.{name}" for name in ("balloon", "only_stable", "fastest", "first")},
            ),
            ("beyond/wavenumber", "first", lambda k: k + 1, {"fig3.wavenumber.first"}),
            ("wavenumber", "miss", lambda x: xr.full_like(x, "unexplained"), {"fig3.wavenumber.linear"}),
            (
                "competition",
                "predicted",
                lambda x: x.where(x != 3, 1),
                {"fig3.competition.cubic", "fig3.competition.cubic.growing", "fig3.competition.cubic.bistable"},
            ),
            (
                "beyond/competition",
                "exact",
                lambda x: x.where(x != 3, 2),
                {"fig3.competition.exact.growing", "fig3.competition.exact.bistable"},
            ),
            ("beyond/resonant", "predicted", lambda x: 1.01 * x, {"fig3.resonant.k8"}),
            ("beyond/resonant", "predicted_phase", lambda x: x + 0.1, {"fig3.resonant.k8.phase"}),
        ],
    )
    def test_a_claim_notices_what_is_wrong(self, data, node, variable, wrong, lost):
        changed = data.copy(deep=True)
        part = changed[node].to_dataset()
        changed[node] = xr.DataTree(part.assign({variable: wrong(part[variable])}))
        assert {name for name, here in met(changed).items() if not here} - RANGES == lost


def test_errors_are_told_by_growth():
    growth = xr.DataArray(np.array([1.01, 1.02, 1.03, 1.25, 0.9]), dims="point")
    error = xr.DataArray(np.array([0.1, 0.2, 0.3, 0.5, 9.0]), dims="point")
    told = assessment._by_growth(error, growth)
    assert "0.2 (0.28) for 1 < |Λ| ≤ 1.05, 0.5 (0.5) for 1.2 < |Λ| ≤ 1.3" in told
    assert told.count("|Λ|") == 2


def test_one_point_of_each_map_by_both_routes():
    b = maps.amplitude(two_lobes, {"gain": np.array([0.4]), "strength": np.array([2.0])}, False)
    found = beyond.amplitude_beyond(b, 1).isel(gain=0, strength=0)
    assert found.exact.values == pytest.approx(found.simulated.values, rel=1e-9)
    assert np.abs(found.amplitude_order / found.exact.isel(family=1) - 1).max() < 0.05
    c = maps.wavenumber({"separation": np.array([4.0]), "strength": np.array([2.0])}, False)
    found = beyond.wavenumber_beyond(c, 1).isel(separation=0, strength=0)
    assert found.wavenumber == found.fastest == found["first"] == 4
    assert bool(found.stable.isel(k=4))
