"""Figure 1: the five patterns are told apart from states alone, and the claims notice when they are not met."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from dispersion import dispersion_relation
from figures import fig1
from figures.files import read_data, write_data
from figures.making import figure_of
from figures.style import style
from simulate import iterate

J, L = np.arange(32), np.arange(60)
PHASE = 2 * np.pi * 3 * J / 32
"""3 waves over the ring."""


@pytest.fixture(scope="module")
def data():
    return fig1.compute(quick=True)


def turning(theta):
    """(T, N, 2) unit vectors at the angles `theta` (T, N)."""
    return np.stack([np.cos(theta), np.sin(theta)], axis=-1)


class TestMorphology:
    """Planted fields."""

    in_place = np.cos(PHASE)[None, :, None]

    @pytest.mark.parametrize(
        ("states", "expected"),
        [
            (0.3 * in_place + np.zeros((60, 1, 1)), "standing"),
            (np.cos(PHASE - 0.1 * L[:, None])[..., None], "travelling"),
            (in_place * turning(0.2 * L[:, None] + 0 * J), "rotating"),
            (turning(PHASE + 0.2 * L[:, None]), "mixed"),
        ],
    )
    def test_told_from_the_states(self, states, expected):
        assert fig1.observed_morphology(states) == expected


class TestBlocks:
    @pytest.mark.parametrize("name", fig1.PANELS)
    def test_all_grow_alike(self, name):
        relation = dispersion_relation(fig1.block_of(name))
        assert relation.growth.max() == pytest.approx(fig1.GROWTH, abs=1e-12)
        if name != "clusters":
            assert relation.leading().morphology == name

    def test_rotation_and_mixed_share_their_heads(self):
        parts = [fig1.block_of(name).heads[0] for name in ("rotating", "mixed")]
        for matrix in ("value", "content"):
            a, b = (getattr(head, matrix) for head in parts)
            np.testing.assert_allclose(a / np.linalg.norm(a), b / np.linalg.norm(b), atol=1e-14)


class TestClaims:
    def test_all_met(self, data):
        claims = fig1.claims(data)
        assert [claim.id for claim in claims if not claim.met] == []
        parts = ("morphology", "wavenumber", "growth", "phase_advance", "amplitude")
        assert [claim.id for claim in claims] == [f"fig1.{name}.{part}" for name in fig1.PANELS for part in parts]

    def test_the_normal_form_says_that_the_rotation_stands(self, data):
        assert data["rotating"].predicted == data["rotating"].observed == "rotating"
        # in the images: tokens keep their power, features go round
        late = data["rotating"].state.values[-60:]
        power = (late**2).sum(axis=2).mean(axis=0)
        assert power.max() > 20 * power.min()
        assert np.ptp(np.linalg.norm(data["mixed"].state.values[-1], axis=1)) < 0.05

    def test_two_values_remain(self, data):
        last = data["clusters"].state.values[-1, :, 0]
        assert 0 < data["clusters"].upper < fig1.N
        assert np.ptp(last[last > 0]) + np.ptp(last[last < 0]) < 0.1 * np.ptp(last)

    @pytest.mark.parametrize(
        ("quantity", "change", "lost"),
        [("amplitude", 1.02, "amplitude"), ("k", 2.0, "wavenumber"), ("rate", 1.05, "growth")],
    )
    def test_a_wrong_number_is_noticed(self, data, quantity, change, lost):
        wrong = data.copy(deep=True)
        wrong["mixed"].simulated.loc[{"quantity": quantity}] *= change
        assert [claim.id for claim in fig1.claims(wrong) if not claim.met] == [f"fig1.mixed.{lost}"]

    def test_a_wrong_pattern_is_noticed(self, data):
        wrong = data.copy(deep=True)
        wrong["rotating"].attrs["observed"] = "mixed"
        assert [claim.id for claim in fig1.claims(wrong) if not claim.met] == ["fig1.rotating.morphology"]

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("name", fig1.PANELS[1:])
    def test_other_noise_makes_the_same_pattern(self, name, seed):
        block = fig1.block_of(name)
        path = iterate(block, 2000, fig1.START, rng=seed, tolerance=None, every=1)
        assert fig1.observed_morphology(path.states[-fig1.LATE :]) == name


class TestDrawing:
    def test_saved_data_redraw_it(self, data, tmp_path):
        again = read_data(write_data(data, tmp_path / "fig1.nc"))
        with style():
            figure = figure_of(fig1, again)
            figure.canvas.draw()
        assert {name for row in fig1.MOSAIC for name in row} == {ax.get_label() for ax in figure.axes}
        assert [claim.row() for claim in fig1.claims(again)] == [claim.row() for claim in fig1.claims(data)]

    def test_numbers_stand_beside_each_other(self, data):
        with style():
            figure = figure_of(fig1, data)
        (ax,) = (ax for ax in figure.axes if ax.get_label() == "standing numbers")
        words = [text.get_text() for text in ax.texts]
        assert words.count("3") == 2
        assert words.count("0") == 4
        assert f"{float(data['standing'].simulated.sel(quantity='amplitude')):.4f}" in words

    def test_colours_of_directions(self):
        axes = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0], [0.0, 0.0]])
        colours = fig1.direction_colours(axes)
        np.testing.assert_allclose(colours[:4], [to_rgb(colour) for colour in fig1.WHEEL])
        np.testing.assert_allclose(colours[4], 1.0)
        near = fig1.direction_colours(turning(np.array([np.pi - 1e-9, np.pi + 1e-9])))
        np.testing.assert_allclose(near[0], near[1], atol=1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_a_travelling_wave_of_one_feature_advances_as_its_mode_does(seed):
    """k and −k of real states are of one size but for rounding, which does not choose the sign."""
    mode = dispersion_relation(fig1.block_of("travelling")).leading()
    crest, turn = 2 * np.pi * np.random.default_rng(seed).uniform(), 0.0123 * (-1) ** seed
    theta = 2 * np.pi * mode.k * np.arange(fig1.N) / fig1.N
    states = np.cos(theta + crest + turn * np.arange(60)[:, None])[..., None]
    _, found = fig1._saturated(states, mode)
    assert found == pytest.approx(turn, abs=1e-12)
