"""Exact states of a block: Newton's method on the full map with complex-step derivatives, and plain iteration."""

import numpy as np
from scipy.optimize import brentq


def jacobian(block, x):
    """(N·d, N·d) DF at the real state `x` (N, d) or (N,), by complex steps."""
    size = x.size
    steps = x + 1e-30j * np.eye(size).reshape(size, *x.shape)
    return block.forward(steps).imag.reshape(size, size).T / 1e-30


def newton(block, start, flip=False, tolerance=1e-13):
    """x with F(x) = x, or F(F(x)) = x, and the derivative of that map there; least steps, so phases stay put."""
    x = np.array(start, dtype=float)
    identity = np.eye(x.size)
    for _ in range(60):
        image, derivative = block.forward(x), jacobian(block, x)
        if flip:
            derivative = jacobian(block, image) @ derivative
            image = block.forward(image)
        residual = (image - x).ravel()
        if np.abs(residual).max() < tolerance * 1e-2 + 4e-16 * np.abs(x).max():
            return x, derivative
        x = x - np.linalg.lstsq(derivative - identity, residual, rcond=1e-13)[0].reshape(x.shape)
    assert np.abs(residual).max() < tolerance, np.abs(residual).max()
    return x, derivative


def multipliers(derivative):
    """Eigenvalues, the largest modulus first."""
    values = np.linalg.eigvals(derivative)
    return values[np.argsort(-np.abs(values))]


def shifted(x, angle):
    """T_φ x: x moved by the Fourier shift under which e^{ikj} turns by kφ, at any real φ."""
    n = len(x)
    k = np.fft.fftfreq(n, 1 / n)
    phases = np.exp(1j * k * angle)
    if n % 2 == 0:
        phases[n // 2] = phases[n // 2].real
    return np.fft.ifft(phases * np.fft.fft(x)).real


def travelling(block, start, k, advance):
    """x and Ω with F(x) = T_{Ω/k} x: a wave that moves rigidly, up to the lattice."""
    x, phase = np.array(start, dtype=float), advance
    n = len(x)
    pin = np.sin(2 * np.pi * k * np.arange(n) / n) / n
    for _ in range(30):
        slope = (shifted(x, (phase + 1e-6) / k) - shifted(x, (phase - 1e-6) / k)) / 2e-6
        residual = np.append(block.forward(x) - shifted(x, phase / k), pin @ x)
        turn = np.array([shifted(unit, phase / k) for unit in np.eye(n)]).T
        matrix = np.block([[jacobian(block, x) - turn, -slope[:, None]], [pin, np.zeros(1)]])
        step = np.linalg.solve(matrix, residual)
        x, phase = x - step[:-1], phase - step[-1]
        if np.abs(step).max() < 1e-14:
            break
    assert np.abs(residual).max() < 1e-12, np.abs(residual).max()
    return x, phase


def iterate(block, x, layers):
    """F applied `layers` times."""
    for _ in range(layers):
        x = block.forward(x)
    return x


def component(x, k):
    """B of x = B e^{iqj} + c.c. + …: fft(x)[k]/N; k = 0 gives the mean."""
    return np.fft.fft(x, axis=0)[k] / len(x)


def cosine(n, k, amplitude, phase=0.0):
    """2R cos(qj + ψ): the state with B = R e^{iψ}; for q = π, R cos(πj)."""
    wave = amplitude * np.cos(2 * np.pi * k * np.arange(n) / n + phase)
    return wave if 2 * k == n else 2 * wave


def gain_at(multiplier, mu, low, high):
    """η in (low, high) with |multiplier(η)| = 1 + μ."""
    return brentq(lambda eta: abs(multiplier(eta)) - 1 - mu, low, high, xtol=1e-15, rtol=1e-15)
