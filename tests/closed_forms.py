"""The closed forms of the scalar map as printed, one function a formula, and random blocks to try them on.

Independent of `amplitude`: the α's come from Cauchy integrals of H, λ from its defining sum.
"""

from dataclasses import dataclass, replace

import numpy as np

from dispersion import Activation, Block, FeedForward, Head, Kernel


@dataclass
class Scalars:
    """α, η_h, χ_h, λ_h(k) and a* of a scalar block."""

    alpha: tuple
    eta: np.ndarray
    chi: np.ndarray
    weights: np.ndarray  # (heads, N) by lag
    a: float = 0.0

    @classmethod
    def of(cls, block, a=0.0):
        eta = block.attention_scale * np.array([head.value[0, 0] for head in block.heads])
        circle = 0.5 * np.exp(2j * np.pi * np.arange(64) / 64)
        H = block.pointwise((a * (1 + eta.sum()) + circle)[:, None])[:, 0]
        taylor = np.fft.fft(H).real / 64 / 0.5 ** np.arange(64)
        weights = np.array([np.exp(head.kernel.logits) / np.exp(head.kernel.logits).sum() for head in block.heads])
        chi = np.array([head.content[0, 0] for head in block.heads])
        return cls(tuple(taylor[1:4]), eta, chi, weights, a)

    def lam(self, k):
        """(heads,) λ(q) = Σ_r A_r e^{−iqr}."""
        n = self.weights.shape[1]
        return self.weights @ np.exp(-2j * np.pi * k * np.arange(n) / n)

    def L(self, k):
        return 1 + self.eta @ self.lam(k)

    def J(self, k):
        return self.alpha[0] * self.L(k)

    def at_onset(self, k):
        """All η scaled to |J_k| = 1, by the positive factor nearest to 1 that leaves a real J_k its sign; else None."""
        s, a1 = self.L(k) - 1, self.alpha[0]
        roots = np.roots([abs(s) ** 2, 2 * s.real, 1 - 1 / a1**2])
        factors = [t.real for t in roots if abs(t.imag) < 1e-12 and t.real > 0]
        if abs(s.imag) <= 1e-12 * abs(s):
            factors = [t for t in factors if (1 + t * s.real) * (1 + s.real) > 0]
        return replace(self, eta=min(factors, key=lambda t: abs(t - 1)) * self.eta) if factors else None


def single_mode(s, k, multiplier):
    """c at a* = 0."""
    a1, a2, a3 = s.alpha
    l_c, l_2 = s.lam(k), s.lam(2 * k)
    L_c, L_0, L_2 = s.L(k), s.L(0), s.L(2 * k)
    D_0 = abs(multiplier) ** 2 - s.J(0)
    D_2 = multiplier**2 - s.J(2 * k)
    content = a1 * (s.eta * s.chi) @ (2 * (1 - abs(l_c) ** 2) + l_2 - l_c**2)
    return content + 3 * a3 * abs(L_c) ** 2 * L_c + 2 * a2**2 * L_c * abs(L_c) ** 2 * (2 * L_0 / D_0 + L_2 / D_2)


def single_mode_at_state(s, k, multiplier):
    """c at a* ≠ 0 (App. F): ηξ f(λ) → Σ_h η_h ξ_h f(λ_h), ξ_h = χ_h a*."""
    a1, a2, a3 = s.alpha
    l_c, l_2 = s.lam(k), s.lam(2 * k)
    L_c, L_0, L_2 = s.L(k), s.L(0), s.L(2 * k)
    D_0 = abs(multiplier) ** 2 - s.J(0)
    D_2 = multiplier**2 - s.J(2 * k)
    chi, xi, xi2 = s.eta * s.chi, s.eta * s.chi * s.a, s.eta * (s.chi * s.a) ** 2
    p_0 = a2 * abs(L_c) ** 2 + a1 * xi @ (1 - abs(l_c) ** 2)
    p_2 = a2 * L_c**2 + a1 * xi @ (l_2 - l_c**2)
    Q = a2 * np.conj(L_c) * L_2 + a1 * xi @ (l_c - np.conj(l_c) * l_2)
    return (
        3 * a3 * abs(L_c) ** 2 * L_c
        + a1 * chi @ (2 * (1 - abs(l_c) ** 2) + l_2 - l_c**2)
        + a1 * xi2 @ (-3 * l_c - 3 * l_2 * np.conj(l_c) + 6 * abs(l_c) ** 2 * l_c) / 2
        + 2 * a2 * xi @ (2 * L_c * (1 - abs(l_c) ** 2) + np.conj(L_c) * (l_2 - l_c**2))
        + 4 * a2 * L_c * L_0 * p_0 / D_0
        + 2 * Q * p_2 / D_2
    )


def cross(s, i, j, multiplier_i, multiplier_j):
    """β_ij at a* = 0 (Eq. 139)."""
    a1, a2, a3 = s.alpha
    l_i, l_j = s.lam(i), s.lam(j)
    L_i, L_j = s.L(i), s.L(j)
    content = 1 - abs(l_j) ** 2 + s.lam(i + j) + s.lam(i - j) - 2 * l_i * l_j.real
    resolvents = (
        s.L(0) / (abs(multiplier_j) ** 2 - s.J(0))
        + s.L(i + j) / (multiplier_i * multiplier_j - s.J(i + j))
        + s.L(i - j) / (multiplier_i * np.conj(multiplier_j) - s.J(i - j))
    )
    cubic = 6 * a3 * L_i * abs(L_j) ** 2
    return 2 * a1 * (s.eta * s.chi) @ content + cubic + 4 * a2**2 * L_i * abs(L_j) ** 2 * resolvents


def period_two(s, k, multiplier):
    """γ and m/B² at q = π."""
    a1, a2, a3 = s.alpha
    l_c, L_c, L_0, D_0 = s.lam(k), s.L(k), s.L(0), multiplier**2 - s.J(0)
    gamma = a1 * (s.eta * s.chi) @ (1 - l_c**2) + a3 * L_c**3 + 2 * a2**2 * L_c**3 * L_0 / D_0
    return gamma, a2 * L_c**2 / D_0


def period_four(s, k, multiplier):
    """c_1 and c_3 at q = π/2."""
    a1, a2, a3 = s.alpha
    l_c, l_pi, L_c, L_pi = s.lam(k), s.lam(2 * k), s.L(k), s.L(2 * k)
    content = a1 * (s.eta * s.chi) @ (l_pi - l_c**2)
    c3 = a3 * L_c**3 + content + 2 * a2**2 * L_c**3 * L_pi / (multiplier**2 - s.J(2 * k))
    return single_mode(s, k, multiplier), c3


def period_three(s, k, multiplier):
    """a_2 and c_1 at q = 2π/3; a_2 at any a*, c_1 at a* = 0."""
    a1, a2, a3 = s.alpha
    l_c, L_c, L_0 = s.lam(k), s.L(k), s.L(0)
    square = a2 * L_c**2 + a1 * (s.eta * s.chi * s.a) @ (l_c - l_c**2)
    content = a1 * (s.eta * s.chi) @ (2 + l_c - 3 * l_c**2)
    c1 = content + 3 * a3 * L_c**3 + 4 * a2**2 * L_c**3 * L_0 / (multiplier**2 - s.J(0))
    return square, c1


def homogeneous(s):
    """The coefficients of B² and B³ at q = 0, a* = 0."""
    return s.alpha[1] * s.L(0) ** 2, s.alpha[2] * s.L(0) ** 3


def cluster_coefficients(s):
    """β_cl and m/u² at onset, α_1 = 1."""
    _, a2, a3 = s.alpha
    eta = s.eta.sum()
    return -s.eta @ s.chi - a3 + 2 * (1 + eta) * a2**2 / eta, -a2 / eta


def planted(heads, weights_in, weights_out, activation, bias_in, a=0.0, attention_scale=1.0):
    """A scalar block of which 1⊗a is a fixed point: the output bias is set to make it one."""
    y = a * (1 + attention_scale * sum(float(head.value[0, 0]) for head in heads))
    hidden = Activation.of(activation)(np.multiply(weights_in, y) + bias_in)
    bias_out = [a - y - np.dot(weights_out, hidden)]
    ff = FeedForward(np.reshape(weights_in, (-1, 1)), np.reshape(weights_out, (1, -1)), activation, bias_in, bias_out)
    return Block(heads, ff, attention_scale)


def polynomial(kernel, eta, chi, alpha, a=0.0):
    """One head and H(y* + s) = a + α_1s + α_2s² + α_3s³, y* = (1+η)a."""
    coefficients = [alpha[0] - 1, *alpha[1:]]
    return planted([Head(kernel, eta, chi)], [1.0], [1.0], Activation.polynomial(coefficients), [-(1 + eta) * a], a)


def random_block(seed, n, heads=1, symmetric=True, activation="gelu", a=0.0, strength=1.0, signs=(-1, 1)):
    """A random scalar block with the fixed point a, α_2 ≠ 0, and α_1 in about (−1, 1), its sign one of `signs`."""
    rng = np.random.default_rng(seed)
    attention = []
    for _ in range(heads):
        logits = rng.normal(size=n)
        logits = (logits + np.roll(logits[::-1], 1)) / 2 if symmetric else logits
        attention.append(Head(Kernel.table(logits), strength * rng.normal() / heads, 1.5 * rng.normal()))
    hidden = rng.integers(1, 4)
    weights_in, bias_in = rng.uniform(-1.2, 1.2, hidden), rng.normal(size=hidden)
    weights_out = rng.uniform(-1, 1, hidden)
    y = a * (1 + sum(float(head.value[0, 0]) for head in attention))
    slope = weights_out @ (Activation.of(activation).taylor(weights_in * y + bias_in, 1)[:, 1] * weights_in)
    weights_out *= (rng.choice(signs) * rng.uniform(0.3, 0.9) - 1) / slope if abs(slope) > 0.1 else 1.0
    return planted(attention, weights_in, weights_out, activation, bias_in, a)


def replanted(s, block):
    """The block with the η's and kernels of `s` and a feed-forward of exactly its α's at its fixed point."""
    heads = [Head(h.kernel, eta, chi) for h, eta, chi in zip(block.heads, s.eta, s.chi, strict=True)]
    coefficients = [s.alpha[0] - 1, *s.alpha[1:]]
    y = (1 + s.eta.sum()) * s.a
    return planted(heads, [1.0], [1.0], Activation.polynomial(coefficients), [-y], s.a)


def designed(n, targets, alpha=(0.9, 0.1, -0.3), chi=1.5, a=0.0):
    """A block of many one-lag heads with J_k = `targets[k]`; real targets alone give symmetric kernels."""
    real = all(np.isreal(value) for value in targets.values())
    bumps = [2.0 * (np.arange(n) == lag) for lag in range(n)]
    bumps = [(bump + np.roll(bump[::-1], 1)) / 2 for bump in bumps[: n // 2 + 1]] if real else bumps
    kernels = [Kernel.table(bump) for bump in bumps]
    symbols = np.array([[kernel.symbol[k % n] for kernel in kernels] for k in targets])
    wanted = np.array([value / alpha[0] - 1 for value in targets.values()], dtype=complex)
    rows, values = np.vstack([symbols.real, symbols.imag]), np.concatenate([wanted.real, wanted.imag])
    eta = np.linalg.lstsq(rows, values, rcond=1e-12)[0]
    heads = [Head(kernel, value, chi) for kernel, value in zip(kernels, eta, strict=True)]
    coefficients = Activation.polynomial([alpha[0] - 1, *alpha[1:]])
    return planted(heads, [1.0], [1.0], coefficients, [-(1 + eta.sum()) * a], a)


def one_head(n, targets, alpha=(0.9, 0.1, -0.3), chi=1.5):
    """A one-head block on n tokens with J_k = `targets[k]`, k = 0 … n//2, all real; None if no kernel has these."""
    eta = targets[0] / alpha[0] - 1
    symbol = np.array([(targets[min(k, n - k)] / alpha[0] - 1) / eta for k in range(n)])
    weights = np.fft.ifft(symbol).real
    return polynomial(Kernel.table(np.log(weights)), eta, chi, alpha) if weights.min() > 1e-3 else None


def even_logits(n, values):
    """The kernel on n tokens with b_{±r} = v for r, v in `values`, 0 elsewhere."""
    logits = np.zeros(n)
    for r, v in values.items():
        logits[[r, -r]] = v
    return Kernel.table(logits)


def tanh_block(kernel, eta):
    """The scalar block of Fig. 3: φ = −0.1 tanh, so α = (0.9, 0, 1/30), and χ = 1.5."""
    return Block([Head(kernel, eta, 1.5)], FeedForward.scalar("tanh", -0.1))


def eta_for(multiplier, alpha1, symbol):
    """η with α_1(1 + ηλ) = `multiplier`, real λ."""
    return (multiplier / alpha1 - 1) / symbol.real
