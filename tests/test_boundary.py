"""Open and causal boundaries: bulk sets, boundary modes, spectra of finite chains, verdicts, pseudospectra."""

import mpmath
import numpy as np
import pytest

from dispersion import (
    Activation,
    ArgumentError,
    Block,
    FeedForward,
    Head,
    Kernel,
    RMSNorm,
    Rotary,
    dispersion_relation,
)
from dispersion.line.bulk import Symbol, bulk_set
from dispersion.line.chain import Chain
from dispersion.line.ends import boundary_modes
from dispersion.line.pseudospectra import pseudospectrum
from dispersion.line.sectors import chain_spectrum, sectors
from dispersion.line.verdict import stability

TRI = {-1: 0.1, 0: 0.2, 1: 0.7}
SKEW = {-2: 0.02, -1: 0.06, 0: 0.12, 1: 0.2, 2: 0.35, 3: 0.25}
GAP = {-1: 0.15, 0: 0.05, 1: 0.05, 2: 0.2, 3: 0.55}
CAUSAL = {0: 0.3, 1: 0.05, 2: 0.15, 3: 0.5}
EDGE = {0: 0.0, 1: 0.3, 2: 0.05, 3: 0.15}


def by_weight(weights, n=16):
    """The kernel on a ring of n tokens with these attention weights by lag."""
    logits = np.full(n, -np.inf)
    for lag, weight in weights.items():
        if weight:
            logits[lag % n] = np.log(weight)
    return Kernel.table(logits)


def scalar_block(weights, eta, content=0.0):
    """α_1 = 0.9."""
    return Block([Head(by_weight(weights), eta, content)], FeedForward.scalar("tanh", -0.1))


def linear(C):
    """A feed-forward with DH = C."""
    d = len(C)
    return FeedForward(C - np.eye(d), np.eye(d), Activation.polynomial([1.0]))


def mixed_block(seed=1):
    """Two heads of different kernels, d = 2, nothing commuting."""
    M = np.random.default_rng(seed).normal(size=(2, 2, 2)) / 2
    C = np.array([[0.9, 0.1], [-0.05, 0.8]])
    return Block([Head(by_weight(SKEW), M[0]), Head(by_weight(GAP), M[1])], linear(C))


def close(values, expected, tolerance=1e-8):
    """Each expected value is among `values`, and nothing else is."""
    values, expected = np.ravel(values), np.asarray(expected, dtype=complex)
    distance = np.abs(values[:, None] - expected)
    return values.size == expected.size and max(distance.min(0).max(), distance.min(1).max()) < tolerance


def pair(z):
    return [z, np.conj(z)]


# --- the reference kernels -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "saddles"),
    [
        (TRI, [0.2 + 2 * np.sqrt(0.07), 0.2 - 2 * np.sqrt(0.07)]),
        (SKEW, [0.5353286929, *pair(-0.0587106653 + 0.0485902525j)]),
    ],
)
def test_pinched_saddles(weights, saddles):
    (sector,) = sectors(scalar_block(weights, -1.0), "open")
    assert close(bulk_set(sector.symbol).saddles, saddles, 1e-9)
    slopes = np.roots([-lag * weights.get(lag, 0.0) for lag in range(-sector.symbol.p, sector.symbol.s + 1)])
    values = sector.symbol(slopes)[:, 0, 0]  # λ'(z) = 0 solved as a polynomial
    assert all(np.abs(values - saddle).min() < 1e-12 for saddle in bulk_set(sector.symbol).saddles)


def test_boundary_modes_of_the_reference_kernels():
    modes = {
        name: boundary_modes(sectors(scalar_block(w, -1.0), "open")[0])
        for name, w in {"skew": SKEW, "gap": GAP}.items()
    }
    assert modes["skew"].size == 0
    assert close(modes["gap"], [-0.3442801152, *pair(-0.0552273554 + 0.5235668517j)], 1e-9)


REFERENCE = [
    (TRI, -0.3, 1.062, 0.98887057, None, "bulk", "convectively unstable"),
    (SKEW, -1.2, 1.24206754, 0.96483570, None, "bulk", "convectively unstable"),
    (GAP, -0.4, 1.09002818, 0.99963826, 1.02394084, "boundary", "absolutely unstable"),
]


@pytest.mark.parametrize(("weights", "eta", "periodic", "bulk", "boundary", "by", "kind"), REFERENCE)
def test_reference_verdicts(weights, eta, periodic, bulk, boundary, by, kind):
    verdict = stability(scalar_block(weights, eta))
    assert verdict.periodic == pytest.approx(periodic, abs=6e-9)
    assert verdict.bulk == pytest.approx(bulk, abs=6e-9)
    assert verdict.boundary == pytest.approx(boundary or 0.0, abs=6e-9)
    assert verdict.homogeneous == pytest.approx(0.9 * (1 + eta) if eta > -1 else -0.9 * (1 + eta))
    assert (verdict.decided_by, verdict.kind, verdict.proven) == (by, kind, True)
    assert verdict.absolute == pytest.approx(abs(verdict.multiplier)) == pytest.approx(max(bulk, boundary or 0))
    assert kind in str(verdict)


def test_the_causal_reference():
    """Spectrum 1, 6/7, 3/5, 3/10, 3/10 …, read off the diagonal."""
    for boundary in ("causal", "open"):  # the kernel has no lag r < 0: the same chain
        verdict = stability(scalar_block(CAUSAL, -0.8), boundary)
        assert verdict.periodic == pytest.approx(1.08875, abs=5e-6)
        assert verdict.kind == "convectively unstable"
        assert verdict.absolute == pytest.approx(0.9 * (1 - 0.8 * 0.3))
        assert close(verdict.modes, [0.9 * (1 - 0.8 * 6 / 7), 0.9 * (1 - 0.8 * 0.6)], 1e-14)
        spectrum = chain_spectrum(Chain(scalar_block(CAUSAL, 1.0), 50, boundary)) / 0.9 - 1
        np.testing.assert_allclose(spectrum, [1, 0.3 / 0.35, 0.6, *[0.3] * 47], rtol=1e-14)


def test_upper_triangular_chains_are_read_too():
    spectrum = chain_spectrum(Chain(scalar_block({-r: w for r, w in CAUSAL.items()}, 1.0), 30, "open")) / 0.9 - 1
    np.testing.assert_allclose(spectrum, [1, 0.3 / 0.35, 0.6, *[0.3] * 27], rtol=1e-14)


def test_a_causal_mask_normalises_the_lags_it_leaves():
    """GAP without its lag −1: A_0/Σ_{0≤r≤i} A_r."""
    verdict = stability(scalar_block(GAP, -0.4), "causal")
    total = 0.85
    diagonal = 0.05 / np.array([0.05, 0.1, 0.3, total])
    assert verdict.bulk == pytest.approx(0.9 * (1 - 0.4 * diagonal[3]))
    assert close(verdict.modes, 0.9 * (1 - 0.4 * diagonal[1:3]), 1e-14)
    q = np.linspace(0, np.pi, 20001)
    symbol = sum(w * np.exp(-1j * q * r) for r, w in GAP.items() if r >= 0) / total
    assert verdict.periodic == pytest.approx(np.abs(0.9 * (1 - 0.4 * symbol)).max(), abs=1e-7)


@pytest.mark.parametrize("n", [16, 64])
def test_two_slope_alibi_has_a_real_bulk_interval(n):
    """(1−p_+)(1−p_−)/(1 ± √(p_+p_−))²."""
    behind, ahead = 0.5, 0.3
    weights = {r: behind**r if r >= 0 else ahead**-r for r in range(-n // 2, n // 2)}
    (sector,) = sectors(Block([Head(by_weight(weights, n), -1.0)]), "open")
    bulk = bulk_set(sector.symbol, 24)
    ends = (1 - behind) * (1 - ahead) / (1 + np.array([1, -1]) * np.sqrt(behind * ahead)) ** 2
    tolerance = 3 * 0.4 ** (n // 2)
    assert close(bulk.saddles, ends, 1e-8 + 30 * tolerance)
    assert np.abs(bulk.values.imag).max() < 1e-10
    np.testing.assert_allclose(bulk.moduli, np.sqrt(behind / ahead), rtol=1e-6 + 30 * tolerance)


# --- finite chains ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "expected"), [(30, 0.96305797), (60, 0.96420011), (120, 0.96464286)])
def test_finite_chains_by_scaling(n, expected):
    chain = Chain(scalar_block(SKEW, -1.2), n, "open")
    spectrum = chain_spectrum(chain)
    assert spectrum.shape == (n,)
    assert abs(spectrum[0]) == pytest.approx(expected, abs=6e-9)
    assert spectrum.sum() == pytest.approx(np.trace(chain.jacobian()), abs=1e-7)
    if n == 120:  # where the usual way fails
        assert np.abs(np.linalg.eigvals(chain.jacobian())).max() > 1.02


@pytest.mark.parametrize("weights", [SKEW, GAP])
def test_leading_eigenvalues_to_forty_digits(weights):
    """Inverse iteration in 40-digit arithmetic does not move what the scaled method gave at n = 60."""
    chain = Chain(scalar_block(weights, -0.9), 60, "open")
    start = chain_spectrum(chain)[0]
    v = mpmath.matrix(np.random.default_rng(0).normal(size=60).tolist())
    with mpmath.workdps(40):
        shift = mpmath.mpc(start) + mpmath.mpf(10) ** -10
        J = mpmath.matrix(chain.jacobian().tolist()) - shift * mpmath.eye(60)
        for _ in range(4):
            w = mpmath.lu_solve(J, v)
            k = max(range(60), key=lambda i: abs(w[i]))
            value, v = shift + v[k] / w[k], w / w[k]
        assert abs(complex(value) - start) < 1e-9


def test_short_chains_agree_with_dense_eigenvalues(random_block):
    for block in (mixed_block(), random_block(3, n=19, heads=2), random_block(4, n=19, heads=1)):
        chain = Chain(block, 9, "open")
        dense = np.linalg.eigvals(chain.jacobian(np.array([0.2, -0.1])))
        assert close(chain_spectrum(chain, np.array([0.2, -0.1])), dense, 1e-7)


def test_multiple_eigenvalues_are_all_kept():
    """Two features that do the same thing: everything twice."""
    single = chain_spectrum(Chain(scalar_block(GAP, -0.4), 25, "open"))
    rotation = np.array([[0.8, -0.6], [0.6, 0.8]])
    heads = [Head(by_weight(GAP), -0.4 * np.eye(2)), Head(by_weight(GAP), 0.0 * rotation)]
    double = chain_spectrum(Chain(Block(heads, linear(0.9 * np.eye(2))), 25, "open"))
    np.testing.assert_allclose(np.abs(double), np.abs(np.repeat(single, 2)), atol=1e-9)
    apart = Block(
        [Head(by_weight(GAP), -0.4 * np.eye(2)), Head(by_weight(SKEW), 1e-13 * rotation)], linear(0.9 * np.eye(2))
    )
    np.testing.assert_allclose(
        np.abs(chain_spectrum(Chain(apart, 25, "open"))), np.abs(np.repeat(single, 2)), atol=1e-9
    )


@pytest.mark.parametrize("weights", [SKEW, GAP])
def test_boundary_modes_stay_as_the_chain_doubles(weights):
    """The definition: eigenvalues of the scaled chain, inside their gap, the same on N and 2N tokens."""
    (sector,) = sectors(scalar_block(weights, -1.0), "open")
    unmoved = []
    for radius in np.geomspace(1.2, 2.6, 12):
        short, long = (np.linalg.eigvals(sector.scaled(n, radius)) for n in (60, 120))
        for value in short:
            low, high = sector.symbol.middle(value)
            if low * 1.1 < radius < high / 1.1 and np.abs(long - value).min() < 1e-9 and abs(value - 1) > 1e-9:
                unmoved.append(value)
    modes = boundary_modes(sector)
    assert all(np.abs(np.array(unmoved) - mode).min() < 1e-9 for mode in modes)
    assert all(np.abs(modes - value).min() < 1e-9 for value in unmoved)


def test_one_is_always_an_eigenvalue():
    for weights in (TRI, SKEW, GAP):
        spectrum = chain_spectrum(Chain(scalar_block(weights, 1.0), 40, "open")) / 0.9 - 1
        assert np.abs(spectrum - 1).min() < 1e-12


def test_symmetric_kernels_have_real_spectra_and_edge_modes():
    """A° = D^{-1}W with symmetric W: real; EDGE has modes below the range of its symbol."""
    weights = {sign * lag: w for lag, w in EDGE.items() for sign in (1, -1)}
    (sector,) = sectors(scalar_block(weights, 1.0), "open")
    q = np.linspace(0, np.pi, 4001)
    lowest = np.real(sum(w * np.exp(1j * q * r) for r, w in weights.items())).min()
    modes = boundary_modes(sector)
    below = modes[modes.real < lowest]
    assert below.size == 1
    assert np.abs(modes.imag).max() < 1e-12
    chain = Chain(scalar_block(weights, 1.0), 800, "open")
    A = chain.attention()[0]
    root = np.sqrt(A.max(axis=1))  # ∝ 1/√(row sum)
    exact = np.linalg.eigvalsh(A * root[None, :] / root[:, None])
    np.testing.assert_allclose(exact[:2], below.real.repeat(2), atol=1e-9)
    assert np.abs(chain_spectrum(Chain(scalar_block(weights, 1.0), 40, "open")).imag).max() < 1e-9
    assert np.abs(bulk_set(sector.symbol).values.imag).max() < 1e-10


# --- verdicts --------------------------------------------------------------------------------------------------------


def peaks(chain, layers, size, seed=0):
    """max|x| by layer from a random start of this size."""
    x, peak = size * np.random.default_rng(seed).normal(size=chain.n), []
    for _ in range(layers):
        peak.append(np.abs(x).max())
        x = chain.forward(x)
    return np.array(peak)


def test_convective_grows_then_dies():
    """Nonlinear, n = 30 and 60: carried to the end and gone, though the ring is unstable."""
    for n, gain in ((30, 100.0), (60, 1e4)):
        chain = Chain(scalar_block(SKEW, -1.2, content=1.0), n, "open")
        peak = peaks(chain, 1500, 1e-6)
        assert peak.max() > gain * peak[0]
        assert peak[-1] < 1e-9 * peak[0]
    ring = peaks(Chain(scalar_block(SKEW, -1.2, content=1.0), 60, "periodic"), 1500, 1e-6)
    assert ring[-1] > 0.1


def test_convective_decays_at_the_absolute_rate_in_exact_arithmetic():
    """The linear open chain of 60 tokens in whole numbers: the late rate is |Λ| of the chain, below 1."""
    chain = Chain(scalar_block(SKEW, -1.2), 60, "open")
    unit = 2**200
    J = np.array([[int(entry * 2**60) for entry in row] for row in chain.jacobian().tolist()], dtype=object)
    x = np.array([unit * k for k in np.random.default_rng(0).integers(-9, 10, size=60).tolist()], dtype=object)
    norm = []
    for _ in range(1201):
        norm.append(float(max(abs(x)) / unit))
        x = (J @ x) // 2**60
    rate = (norm[1200] / norm[600]) ** (1 / 600)
    assert max(norm) > 1e5 * norm[0]
    assert rate == pytest.approx(abs(chain_spectrum(chain)[0]), abs=2e-3)


def test_absolute_grows_where_it_is():
    """GAP grows at the rate of its boundary mode, from the end where that sits, and saturates."""
    chain, verdict = Chain(scalar_block(GAP, -0.4), 40, "open"), stability(scalar_block(GAP, -0.4))
    J, x = chain.jacobian(), np.random.default_rng(0).normal(size=40)
    for _ in range(3000):
        x = J @ x
        x /= np.linalg.norm(x)
    assert np.linalg.norm(J @ x) == pytest.approx(verdict.absolute, abs=1e-7)
    for n in (30, 60):
        assert peaks(Chain(scalar_block(GAP, -0.4, content=1.0), n, "open"), 2500, 1e-6)[-1] > 0.5


def test_the_homogeneous_perturbation_decides():
    verdict = stability(scalar_block(SKEW, 0.3))
    assert (verdict.decided_by, verdict.kind) == ("homogeneous", "absolutely unstable")
    assert verdict.multiplier == pytest.approx(0.9 * 1.3)
    assert verdict.periodic == pytest.approx(0.9 * 1.3)
    assert verdict.wavenumber == pytest.approx(0, abs=1e-6)


def test_stable():
    verdict = stability(scalar_block(SKEW, -0.3))
    assert verdict.kind == "stable"
    assert verdict.absolute <= verdict.periodic < 1


def test_one_head_with_features_is_read_through_its_eigenvalues():
    """Λ runs over the eigenvalues of C(1 + ℓV), whatever C and V."""
    C, V = np.array([[0.9, 0.2], [-0.1, 0.7]]), np.array([[-0.5, 0.4], [-0.6, -0.3]])
    block = Block([Head(by_weight(GAP), V)], linear(C))
    verdict = stability(block)
    modes = [-0.3442801152, *pair(-0.0552273554 + 0.5235668517j)]
    expected = np.concatenate([np.linalg.eigvals(C @ (np.eye(2) + ell * V)) for ell in modes])
    assert close(verdict.modes, expected, 1e-8)
    spectrum = chain_spectrum(Chain(block, 60, "open"))
    assert abs(spectrum[0]) == pytest.approx(verdict.absolute, abs=2e-3)
    twin = Block([Head(by_weight(GAP), V / 4), Head(by_weight(GAP), 3 * V / 4)], linear(C))
    assert stability(twin).absolute == pytest.approx(verdict.absolute, abs=1e-12)


def test_scalar_heads_add_up():
    """d = 1, two kernels: one scalar symbol; a boundary mode decides, and the finite chain has it."""
    block = Block([Head(by_weight(SKEW), -0.8), Head(by_weight(GAP), -0.4)], FeedForward.scalar("tanh", -0.1))
    verdict = stability(block)
    assert (verdict.kind, verdict.decided_by, verdict.proven) == ("convectively unstable", "boundary", True)
    assert abs(chain_spectrum(Chain(block, 60, "open"))[0]) == pytest.approx(verdict.absolute, abs=1e-8)


def test_commuting_heads_split_into_scalars():
    """C, M_1, M_2 with common eigenvectors: the union of the scalar problems."""
    P = np.array([[1.0, 0.3], [-0.2, 1.0]])
    turned = [P @ np.diag(x) @ np.linalg.inv(P) for x in ([0.9, 0.8], [-0.8, 0.3], [-0.4, -0.6])]
    block = Block([Head(by_weight(SKEW), turned[1]), Head(by_weight(GAP), turned[2])], linear(turned[0]))
    verdict = stability(block)
    parts = [
        stability(Block([Head(by_weight(SKEW), m), Head(by_weight(GAP), k)], linear(np.array([[c]]))))
        for c, m, k in ((0.9, -0.8, -0.4), (0.8, 0.3, -0.6))
    ]
    assert verdict.proven
    for name in ("periodic", "bulk", "boundary", "homogeneous"):
        assert getattr(verdict, name) == pytest.approx(max(getattr(part, name) for part in parts), abs=1e-9)


def test_blocks_that_do_not_split():
    """The middle pair of d(p+s) roots (derived only) against the spectra of chains, which approach it like 1/n²."""
    block = mixed_block()
    verdict = stability(block, points=24)
    assert not verdict.proven
    spectra = {n: chain_spectrum(Chain(block, n, "open")) for n in (20, 40)}
    fixed = [verdict.multiplier, *verdict.modes.ravel()]
    assert all(np.abs(spectra[40] - mode).min() < 1e-3 for mode in fixed)
    largest = []
    for spectrum in spectra.values():
        bulk = [value for value in spectrum if np.abs(np.array(fixed) - value).min() > 1e-2]
        largest.append(max(np.abs(bulk)))
    extrapolated = largest[1] + (largest[1] - largest[0]) * 21**2 / (41**2 - 21**2)
    assert extrapolated == pytest.approx(verdict.bulk, abs=1e-3)
    assert largest[0] < largest[1] < verdict.bulk


def test_causal_blocks_are_read_off_their_diagonal():
    block, n = mixed_block(), 6
    C, (first, second) = np.array([[0.9, 0.1], [-0.05, 0.8]]), block.heads
    A = Chain(block, n, "causal").attention()
    expected = [
        np.linalg.eigvals(C @ (np.eye(2) + A[0, i, i] * first.value + A[1, i, i] * second.value)) for i in range(n)
    ]
    assert close(chain_spectrum(Chain(block, n, "causal")), np.concatenate(expected), 1e-12)
    assert stability(block, "causal").proven


def test_normalised_and_rotary_blocks():
    """One rotary head behind an RMSNorm: the weights depend on the state, and finite chains bear the verdict out."""
    rng = np.random.default_rng(3)
    rotary = Rotary(rng.normal(size=(4, 2)), rng.normal(size=(4, 2)), 2 * np.pi * np.array([1, 3]) / 16)
    block = Block([Head(by_weight(GAP), -0.9 * np.eye(2), rotary=rotary)], None, 0.5, RMSNorm(np.ones(2)))
    a = np.array([0.6, -0.5])
    verdict = stability(block, state=a)
    spectrum = chain_spectrum(Chain(block, 50, "open"), a)
    assert abs(spectrum[0]) == pytest.approx(verdict.absolute, abs=3e-3)
    relation = dispersion_relation(block, a)
    assert verdict.periodic == pytest.approx(
        np.abs(np.linalg.eigvals(relation(np.linspace(0, np.pi, 4001)))).max(), abs=1e-5
    )


def test_lags_that_cancel_inside_do_not_cancel_at_the_ends():
    """0.6·0.3 − 0.3·0.6 = 0 at lag −1: the symbol is one-sided, the rows at the ends are not."""
    heads = [Head(by_weight({-1: 0.3, 0: 0.2, 1: 0.5}), 0.6), Head(by_weight({-1: 0.6, 0: 0.4}), -0.3)]
    block = Block(heads, FeedForward.scalar("tanh", -0.1))
    verdict, n = stability(block), 12
    assert verdict.bulk == pytest.approx(0.9 * (1 + 0.6 * 0.2 - 0.3 * 0.4))
    with mpmath.workdps(60):
        exact = mpmath.eig(mpmath.matrix(Chain(block, n, "open").jacobian().tolist()), left=False, right=False)
    exact = np.array([complex(value) for value in exact])
    for mode in (*verdict.modes.ravel(), 0.9 * 1.3):
        assert np.abs(exact - mode).min() < 1e-6


def test_the_state_matters():
    block = Block([Head(by_weight(SKEW), -1.2)], FeedForward.scalar("tanh", -0.1))
    assert stability(block, state=2.0).periodic > stability(block).periodic  # H' = 1 − 0.1 sech² is larger there


def test_singular_outer_matrices_count_roots_at_zero_and_infinity():
    """det z(J(z) − Λ) of rank-one outer matrices: one root at 0, one at infinity, and the pair in the middle."""
    ahead, behind = np.diag([0.3, 0.0]), np.diag([0.6, 0.0])
    symbol = Symbol(np.stack([ahead, np.array([[0.1, 0.2], [0.1, 0.4]]), behind]), 1, 1)
    roots = np.abs(symbol.roots(0.2 + 0.1j))
    assert roots[0] < 1e-12
    assert np.isinf(roots[3])
    z = symbol.roots(0.2 + 0.1j)[1]
    assert abs(np.linalg.det(symbol(z) - (0.2 + 0.1j) * np.eye(2))) < 1e-12


# --- pseudospectra ---------------------------------------------------------------------------------------------------


def test_smallest_singular_values():
    chain = Chain(mixed_block(), 12, "open")
    points = np.array([[1.2, 0.5j], [2.0, 1.1 + 0.3j]])
    result, J = pseudospectrum(chain, points), chain.jacobian()
    expected = [1 / np.linalg.norm(np.linalg.inv(z * np.eye(24) - J), 2) for z in points.ravel()]
    np.testing.assert_allclose(result.smallest.ravel(), expected, rtol=1e-9)
    assert result.smallest.shape == points.shape


def test_the_resolvent_foretells_transient_growth():
    """(|z| − 1)/σ_min ≤ sup_L ‖J^L‖; inside the symbol's curve σ_min falls exponentially with n."""
    points = np.exp(1j * np.linspace(0, np.pi, 30)) * np.array([1.05, 1.1, 1.2])[:, None]
    bounds = []
    for n in (20, 40):
        chain = Chain(scalar_block(SKEW, -1.2), n, "open")
        J, power, largest = chain.jacobian(), np.eye(n), 0.0
        for _ in range(200):
            power = power @ J
            largest = max(largest, np.linalg.norm(power, 2))
        bound = pseudospectrum(chain, points).kreiss
        assert 1 < bound <= largest <= np.e * n * max(bound, 1)
        bounds.append(bound)
    assert bounds[1] > 10 * bounds[0]
    assert pseudospectrum(Chain(scalar_block(SKEW, -1.2), 8, "open"), [0.5]).kreiss == 0


# --- refusals --------------------------------------------------------------------------------------------------------


def test_refusals(monkeypatch):
    block = mixed_block()
    with pytest.raises(ArgumentError, match="boundary: got 'periodic'"):
        stability(block, "periodic")
    with pytest.raises(ArgumentError, match="state"):
        stability(block, state=[1.0])
    with pytest.raises(ArgumentError, match="block: got Head"):
        stability(block.heads[0])
    with pytest.raises(ArgumentError, match="tokens"):
        stability(block, tokens=1.5)
    values = np.random.default_rng(0).normal(size=(2, 4, 4))
    large = Block([Head(Kernel.alibi(32, slope), M) for slope, M in zip((0.5, 0.6), values, strict=True)])
    with pytest.raises(ArgumentError, match=r"d²\(p\+s\)"):
        stability(large)
    with pytest.raises(ArgumentError, match="no key for token 0"):
        stability(scalar_block({1: 0.5, 2: 0.5}, -1.0))
    with pytest.raises(ArgumentError, match="lag ≥ 0"):
        stability(scalar_block({-1: 0.5, -2: 0.5}, -1.0), "causal")
    with pytest.raises(ArgumentError, match="periodic"):
        chain_spectrum(Chain(block, 16, "periodic"))
    monkeypatch.setattr("dispersion.memory.available_memory", lambda: 2**29)
    with pytest.raises(ArgumentError, match="^n: got 2500, a spectrum of 5,000² that needs [0-9,]+ bytes"):
        chain_spectrum(Chain(block, 2500, "open"))
    with pytest.raises(ArgumentError, match="n·d"):
        pseudospectrum(Chain(block, 300, "open"), [1.0])
    with pytest.raises(ArgumentError, match="points"):
        pseudospectrum(Chain(block, 20, "open"), [np.nan])
    with pytest.raises(ArgumentError, match="chain"):
        pseudospectrum(block, [1.0])
