"""Branches: continuation through folds, bifurcations located at planted and known parameters, switching, drawing."""

import time

import exact
import matplotlib.pyplot as plt
import numpy as np
import pytest

from amplitude import standing_wave
from amplitude.exact.bifurcations import directions
from amplitude.exact.branch import branch
from amplitude.exact.branching import pattern_branch, switch
from amplitude.exact.drawing import MARKERS
from amplitude.exact.states import find_state
from dispersion import Activation, ArgumentError, Block, FeedForward, Head, Kernel, dispersion_relation

TANH = FeedForward.scalar("tanh", scale=-0.1)
LOBES = Kernel.gaussian_lobes(32, 4, 1.0, 2.0)
SKEWED = Kernel.skewed_lobe(32, 4, 0.7, 2.0, 1.0)
ONSET = (1 / 0.9 - 1) / LOBES.symbol[4].real


def standing(eta):
    return Block([Head(LOBES, eta, 1.5)], TANH)


def travelling(eta):
    return Block([Head(SKEWED, eta, 1.5)], TANH)


def thirds(mu):
    """The 2π/3 sector of the theory reference."""
    kernel = Kernel.table([0, 2, 1.4, 0, 1.4, 2])
    feedforward = FeedForward.scalar(Activation.polynomial([-0.1, 0.1, -0.3]))
    return Block([Head(kernel, ((1 + mu) / 0.9 - 1) / kernel.symbol[2].real, 1.5)], feedforward)


def cubic_map(a):
    """x⁺ = ax − x³ on two tokens that do not interact: ±√(a−1) from a = 1 on, with Λ = 3 − 2a."""
    return Block([Head(Kernel.uniform(2), 0.0)], FeedForward.scalar(Activation.polynomial([a - 1, 0, -1])))


def delayed_logistic(a):
    """(x, y)⁺ = (ax(1 − y), x): x = y = 1 − 1/a, a Neimark–Sacker point at a = 2 with Λ = e^{±iπ/3}."""
    # act(h) = h + h²: act(h) − act(−h) = 2h, act(h) + act(−h) = 2h²; 4xy = (x+y)² − (x−y)²
    weight_in = np.array([[1, 1], [-1, -1], [1, -1], [-1, 1], [1, 0], [-1, 0], [0, 1], [0, -1]])
    to_x = np.array([-a / 8, -a / 8, a / 8, a / 8, (a - 1) / 2, -(a - 1) / 2, 0, 0])
    to_y = np.array([0, 0, 0, 0, 1 / 2, -1 / 2, -1 / 2, 1 / 2])
    feedforward = FeedForward(weight_in, np.array([to_x, to_y]), Activation.polynomial([1, 1]))
    return Block([Head(Kernel.uniform(2), np.zeros((2, 2)))], feedforward)


def kinds(path):
    return [event.kind for event in path.bifurcations]


class TestFolds:
    def test_the_fold_of_the_transcritical_branch(self):
        start = find_state(thirds(-1e-3), exact.cosine(6, 2, 0.0092))
        path = branch(thirds, (-1e-3, -5e-3), start, name="μ")
        assert kinds(path) == ["fold"]
        fold = path.bifurcations[0]
        assert f"{fold.value:.8f}" == "-0.00236164"
        assert abs(fold.multiplier - 1) < 1e-7
        assert path.ended == "the parameter reached -0.001"
        assert path.values[-1] == -1e-3
        assert f"{path.amplitude[0]:.8f} {path.amplitude[-1]:.8f}" == "0.00921456 0.06654305"
        turn = int(fold.place)
        assert path.stable.tolist() == [place > turn for place in range(len(path))]
        assert path.residual < 1e-11

    def test_both_sides_of_the_transcritical_point(self):
        below = pattern_branch(thirds, (-5e-3, 5e-3), 2, phase=0.0)
        above = pattern_branch(thirds, (-5e-3, 5e-3), 2, phase=np.pi / 3)
        assert below.values[0] == pytest.approx(0, abs=1e-12)
        assert kinds(below) == ["fold"]
        assert below.values[1] < 0
        assert (above.values[1:] > 0).all()

    def test_given_values_do_not_pass_it(self):
        start = find_state(thirds(-1e-3), exact.cosine(6, 2, 0.068))
        values = np.linspace(-1e-3, -4e-3, 31)
        path = branch(thirds, values, start)
        assert path.values[-1] > -0.00236165
        np.testing.assert_array_equal(path.values, values[: len(path)])
        assert path.ended == f"no state near the last one at {values[len(path)]:.6g}"


class TestPlanted:
    def test_a_pitchfork_and_a_flip(self):
        zero = branch(cubic_map, (0.5, 1.5), np.zeros(2), name="a")
        assert [(e.kind, round(e.value, 7), e.multiplicity) for e in zero.bifurcations] == [("branch point", 1.0, 2)]
        root = branch(cubic_map, (1.2, 2.5), np.full(2, np.sqrt(0.2)), name="a")
        np.testing.assert_allclose(root.states[-1].field, np.sqrt(1.5), rtol=0, atol=1e-11)
        assert [(e.kind, round(e.value, 7), e.multiplicity) for e in root.bifurcations] == [("flip", 2.0, 2)]
        np.testing.assert_allclose(root.multipliers[:, 0], 3 - 2 * root.values, rtol=0, atol=1e-9)

    def test_a_neimark_sacker_point(self):
        path = branch(delayed_logistic, (1.5, 2.5), np.full((2, 2), 1 / 3), name="a")
        assert kinds(path) == ["Neimark–Sacker"]
        event = path.bifurcations[0]
        assert event.value == pytest.approx(2, abs=1e-7)
        assert event.multiplicity == 4
        assert abs(np.angle(event.multiplier)) == pytest.approx(np.pi / 3, abs=1e-6)
        np.testing.assert_allclose(path.states[-1].field, 0.6, rtol=0, atol=1e-11)

    def test_the_cycle_after_a_flip(self):
        """x⁺ = ax − x³ has the cycle x⁺ = −x, x² = a + 1, and from a = 2 on also x² = [a ± √(a²−4)]/2."""
        root = branch(cubic_map, (1.2, 2.5), np.full(2, np.sqrt(0.2)), name="a")
        flip = root.bifurcations[0]
        cycles = [switch(root, flip, family, values=(2, 2.2)) for family in range(len(directions(flip)))]
        assert all(cycle.states[-1].kind == "alternating" for cycle in cycles)
        a = 2.2
        expected = [(a - np.sqrt(a**2 - 4)) / 2, (a + np.sqrt(a**2 - 4)) / 2]
        for cycle in cycles:
            assert cycle.values[-1] == pytest.approx(a)
            for value in cycle.states[-1].field.ravel() ** 2:
                assert min(abs(value - np.array(expected))) < 1e-10


class TestPatterns:
    def test_onset_and_amplitude(self):
        path = pattern_branch(standing, (-0.2, -0.5), 4, name="η")
        assert path.values[0] == pytest.approx(ONSET, abs=1e-12)
        assert path.amplitude[0] == pytest.approx(0, abs=1e-12)
        assert path.ended == "the parameter reached -0.5"
        assert path.stable[1:].all()
        for place in (2, 10, -1):
            x = path.states[place].field
            np.testing.assert_allclose(standing(path.values[place]).forward(x), x, rtol=0, atol=1e-12)
        mu = path.states[1].block.heads[0].value[0, 0] / ONSET - 1
        assert path.amplitude[1] == pytest.approx(standing_wave(standing(path.values[1]), 4).amplitude, rel=mu + 0.01)

    def test_the_family_that_the_lattice_holds(self):
        """At k = 8 of 32 tokens c_3 > 0: ψ = 0 is stable."""
        kernel = Kernel.gaussian_lobes(32, 1.8, 1.0, 2.0)
        make = lambda eta: Block([Head(kernel, eta, 1.5)], TANH)  # noqa: E731
        chosen = pattern_branch(make, (-0.55, -0.6), 8)
        assert f"{chosen.states[-1].amplitude:.8f}" == "0.04134419"
        assert chosen.states[-1].stable
        other = pattern_branch(make, (-0.55, -0.6), 8, phase=np.pi / 4)
        assert f"{other.states[-1].amplitude:.8f}" == "0.04071356"
        assert not other.stable[1:].any()

    def test_travelling(self):
        path = pattern_branch(travelling, (-1.0, -1.3), 3, name="η")
        assert path.values[0] == pytest.approx(-1.1279089, abs=1e-7)
        assert path.phase_advance[0] == pytest.approx(0.0304227, abs=1e-7)
        last = path.states[-1]
        assert (last.kind, last.k, path.stable.all()) == ("travelling", 3, True)
        assert last.lattice_defect < 1e-12
        after = last.block.forward(last.field)
        turned = np.angle(exact.component(after, 3)[0] / exact.component(last.field, 3)[0])
        assert path.phase_advance[-1] == pytest.approx(turned, abs=1e-12)

    @pytest.mark.parametrize(
        ("content", "R", "advance", "stable"),
        [(2 * np.eye(2), "0.028660", "0.25015", True), ([[0, -1], [1, 2]], "0.026083", "0.25087", False)],
    )
    def test_travelling_waves_of_a_symmetric_kernel(self, content, R, advance, stable):
        """O(2): the same multiplier; content attention decides whether travelling waves are stable."""
        turn = np.array([[np.cos(1.3), -np.sin(1.3)], [np.sin(1.3), np.cos(1.3)]])
        kernel = Kernel.gaussian_lobes(32, 5, 1.0, 2.0)
        make = lambda g: Block(  # noqa: E731
            [Head(kernel, -g * turn @ np.diag([1, 0.9]), content)], FeedForward.elementwise("tanh", 2, -0.1)
        )
        path = pattern_branch(make, (0.8, 0.8116654721), 3, name="g")
        assert path.values[0] == pytest.approx(0.8085104380, abs=1e-9)
        last = path.states[-1]
        assert (f"{last.amplitude_at(3):.6f}", f"{last.phase_advance:.5f}") == (R, advance)
        assert last.stable == stable
        x = exact.iterate(last.block, last.field, 3)
        assert np.linalg.norm(exact.component(x, 3)) == pytest.approx(last.amplitude_at(3), abs=1e-12)

    def test_alternating(self):
        feedforward = FeedForward.scalar(Activation.polynomial([-1.9, 0.1, 0.3]))
        make = lambda eta: Block([Head(LOBES, eta, 1.5)], feedforward)  # noqa: E731
        path = pattern_branch(make, (-0.2, -0.33), 4)
        assert path.states[-1].kind == "alternating"
        assert path.values[0] == pytest.approx(-0.3183047140, abs=1e-9)
        image = path.states[-1].block.forward(path.states[-1].field)
        assert np.abs(image - path.states[-1].field).max() > 0.1
        np.testing.assert_allclose(path.states[-1].block.forward(image), path.states[-1].field, rtol=0, atol=1e-11)

    def test_homogeneous_onset(self):
        feedforward = FeedForward.scalar(Activation.polynomial([-0.1, 0, -0.3]))
        make = lambda eta: Block([Head(LOBES, eta, 1.5)], feedforward)  # noqa: E731
        path = pattern_branch(make, (0.05, 0.2), 0)
        a = path.states[-1].field[0, 0]
        assert path.values[0] == pytest.approx(1 / 0.9 - 1)
        assert make(0.2).homogeneous_map([a]) == pytest.approx(a)


@pytest.mark.parametrize(("seed", "kind"), [(0, "steady"), (9, "travelling"), (19, "travelling"), (26, "steady")])
def test_random_vector_blocks(seed, kind):
    """Several heads, dense weights, kernels of every kind: what the branch says, the iterated map does."""
    rng = np.random.default_rng(seed)
    n, d = [(12, 4), (16, 2)][seed % 2]
    heads = []
    for _ in range(2):
        logits = 1.5 * rng.normal(size=n)
        if kind == "steady":
            logits = (logits + np.roll(logits[::-1], 1)) / 2
        heads.append(Head(Kernel.table(logits), rng.normal(size=(d, d)), rng.normal(size=(d, d))))
    weight = rng.normal(size=(d + 2, d)) / np.sqrt(d)
    make = lambda scale: Block(heads, FeedForward(weight, -0.12 * weight.T, "tanh"), scale)  # noqa: E731
    growth = dispersion_relation(make(1.5)).growth[1 : n // 2]
    path = pattern_branch(make, (0.0, 1.5), int(growth.argmax()) + 1, points=20)
    assert path.residual < 1e-11
    for state in path.states[3::4]:
        x = exact.iterate(state.block, state.field, 2)
        before, after = (np.fft.fft(y, axis=0)[state.k] for y in (state.field, x))
        slip = 20 * (state.lattice_defect if state.kind == "travelling" else 0) + 1e-9
        turned = np.exp(1j * 2 * state.phase_advance) * before
        np.testing.assert_allclose(after, turned, rtol=0, atol=slip * n)


class TestSwitching:
    def test_from_the_homogeneous_state(self):
        zero = branch(standing, (-0.2, -0.45), np.zeros(32), name="η")
        turing = zero.bifurcations[0]
        assert (turing.kind, turing.multiplicity) == ("branch point", 2)
        assert turing.value == pytest.approx(ONSET, abs=1e-7)
        families = directions(turing)
        assert len(families) == 2
        found = [switch(zero, turing, family).states[-1] for family in range(2)]
        for state in found:
            assert state.k == 4
            assert state.block.heads[0].value[0, 0] == pytest.approx(-0.45)
        crests = sorted(state.field.max() for state in found)
        assert crests[1] > crests[0] + 1e-2
        direct = pattern_branch(standing, (-0.2, -0.45), 4, phase=0.0).states[-1]
        assert min(abs(direct.amplitude - state.amplitude) for state in found) < 1e-12

    def test_a_wave_from_a_neimark_sacker_point(self):
        zero = branch(travelling, (-1.1, -1.2), np.zeros(32), name="η")
        assert kinds(zero)[0] == "Neimark–Sacker"
        path = switch(zero, zero.bifurcations[0])
        last = path.states[-1]
        direct = pattern_branch(travelling, (-1.1, -1.2), 3).states[-1]
        assert last.kind == "travelling"
        assert last.amplitude == pytest.approx(direct.amplitude, abs=1e-11)

    def test_where_the_families_exchange_stability(self):
        """Two standing families of k = 4 swap stability near η = −0.5694; a pattern without a reflection joins them."""
        path = pattern_branch(standing, (-0.2, -0.62), 4, phase=0.0, name="η")
        assert kinds(path) == ["branch point"]
        event = path.bifurcations[0]
        assert event.value == pytest.approx(-0.5693461, abs=1e-6)
        between = switch(path, event, amplitude=0.01, points=30, longest=0.02)
        assert all(-0.56941 < value < -0.56934 for value in between.values[:5])
        x = between.states[3].field[:, 0]
        images = [np.roll(x[::-1], shift) for shift in range(32)]
        assert min(np.abs(image - x).max() for image in images) > 1e-3


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "argument"),
        [
            ({"values": [1.0]}, "values"),
            ({"values": (0.1, 0.1)}, "values"),
            ({"values": [0.0, 0.2, 0.1]}, "values"),
            ({"make_block": 3}, "make_block"),
            ({"start": np.zeros(4)}, "start"),
            ({"kind": "none"}, "kind"),
            ({"points": 0}, "points"),
            ({"longest": -1.0}, "longest"),
            ({"make_block": lambda a: cubic_map(a) if a < 0.6 else thirds(a)}, "make_block"),
            ({"make_block": lambda a: cubic_map(a) if a < 0.6 else a}, "make_block"),
        ],
    )
    def test_branch(self, changes, argument):
        with pytest.raises(ArgumentError) as refused:
            branch(**({"make_block": cubic_map, "values": (0.5, 1.5), "start": np.zeros(2)} | changes))
        assert refused.value.argument == argument

    def test_pattern_branch(self):
        with pytest.raises(ArgumentError, match="onset"):
            pattern_branch(standing, (-0.1, -0.2), 4)
        with pytest.raises(ArgumentError) as refused:
            pattern_branch(standing, (-0.2, -0.4), 40)
        assert refused.value.argument == "k"

    def test_nothing_travels_at_pi(self):
        turn = np.array([[0.6, -0.8], [0.8, 0.6]])
        make = lambda g: Block([Head(Kernel.table([0, 2, 0, 2]), -g * turn)], FeedForward.elementwise("tanh", 2, -0.1))  # noqa: E731
        with pytest.raises(ArgumentError, match="complex"):
            pattern_branch(make, (0.0, 1.0), 2)

    def test_switch(self):
        path = branch(thirds, (-1e-3, -5e-3), find_state(thirds(-1e-3), exact.cosine(6, 2, 0.0092)))
        with pytest.raises(ArgumentError, match="fold"):
            switch(path, path.bifurcations[0])
        zero = branch(cubic_map, (0.5, 1.5), np.zeros(2))
        with pytest.raises(ArgumentError, match="family"):
            switch(zero, zero.bifurcations[0], family=9)
        circle = branch(delayed_logistic, (1.5, 2.5), np.full((2, 2), 1 / 3))
        with pytest.raises(ArgumentError, match="k = 0"):
            switch(circle, circle.bifurcations[0])


class TestDrawing:
    def test_stable_solid_unstable_dashed(self):
        path = pattern_branch(thirds, (-5e-3, 5e-3), 2, phase=0.0, name="μ")
        figure, ax = plt.subplots()
        assert path.plot(ax) is ax
        curves = [line for line in ax.lines if line.get_marker() == "None"]
        assert len(curves) == 2
        below, above = (curve.get_xydata() for curve in curves)
        assert curves[0].get_linestyle() == "--"
        assert curves[1].get_linestyle() == "-"
        np.testing.assert_allclose(below[-1], above[0])
        np.testing.assert_allclose(below[-1, 0], -0.00236164, rtol=0, atol=1e-8)
        (mark,) = (line for line in ax.lines if line.get_marker() == MARKERS["fold"][0])
        assert mark.get_label() == "fold"
        assert ax.get_xlabel() == "μ"
        plt.close(figure)

    def test_current_axes_and_style(self):
        path = branch(cubic_map, (1.2, 1.6), np.full(2, np.sqrt(0.2)), name="a")
        figure = plt.figure()
        ax = path.plot(k=0, color="red", label="x")
        assert [line.get_label() for line in ax.lines] == ["x"]
        plt.close(figure)


def test_speed():
    """100 points at N = 32 in under 2 s; twice that here, for busy machines."""
    start = standing_wave(standing(-0.33), 4).field()
    begin = time.perf_counter()
    path = branch(standing, (-0.33, -1.2), start, points=100, longest=0.01)
    took = time.perf_counter() - begin
    assert len(path) == 100
    assert took < 4.0


def test_two_runs_agree_bit_for_bit():
    first, second = (pattern_branch(standing, (-0.2, -0.4), 4) for _ in range(2))
    np.testing.assert_array_equal(first.values, second.values)
    np.testing.assert_array_equal(first.states[-1].field, second.states[-1].field)
