"""Predictions judged by iteration: what a state, a verdict or an amplitude says against what layers do."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd

import numpy as np
from numpy.typing import NDArray

from amplitude import (
    ExactState,
    NormalForm,
    Oscillation,
    Solution,
    competition,
    find_oscillation,
    find_state,
    normal_form,
    partitions,
    stable_wavenumbers,
    standing_start,
)
from amplitude.exact.balloon import patterns
from amplitude.exact.resting import resting_state
from dispersion import ArgumentError, Block, Dispersion, Mode, dispersion_relation
from simulate import Trajectory, iterate_many

Floats = NDArray[np.float64]

ORDERS = (3, 5, 7, 9)
MOST = 60_000
"""Layers after which no block is iterated further."""
LARGE = 64
"""Size N·d of blocks from which on patterns are not followed from their onset, which takes long."""
SAMPLES = 512
"""Layers over which an amplitude is observed."""


def at_rest(block: Block) -> Dispersion:
    """J(q) at the state of rest."""
    return dispersion_relation(block, resting_state(block))


def layers(block: Block, times: float) -> int:
    """Layers, even in number, in which the leading mode at rest grows e^`times` times; `MOST` at most."""
    rate = abs(np.log(np.abs(at_rest(block).multipliers).max()))
    return 2 * int(min(MOST, times / max(rate, 1e-9)) / 2)


def noise(block: Block, seeds: int, size: float = 1e-3) -> Floats:
    """(seeds, N, d) noise of standard deviation `size` about the state of rest."""
    return resting_state(block) + size * np.random.default_rng(0).standard_normal((seeds, block.n, block.d))


def ends_of(block: Block, starts: Floats, depth: int) -> list[Trajectory]:
    """The ends of `depth` layers from each of `starts` (P, N, d)."""
    return iterate_many(block, starts, depth, every=depth)


# Amplitudes


@dataclass(frozen=True)
class FormCase:
    """What a form says and what is true.

    order; predicted, estimate : `amplitude` and `error`, NaN where it says nothing; true : the amplitude there, NaN if
    there is nothing; how : 'iterated' or 'exact', where `true` is from, or 'nothing'.
    """

    order: int
    predicted: float
    estimate: float
    true: float
    how: str

    @property
    def speaks(self) -> bool:
        """Whether the form gives an amplitude and an error for it."""
        return bool(np.isfinite(self.predicted) and np.isfinite(self.estimate))

    @property
    def error(self) -> float:
        """|predicted − true|/true; infinite if there is nothing."""
        return abs(self.predicted / self.true - 1) if np.isfinite(self.true) else float("inf")

    @property
    def right(self) -> bool:
        """Whether the error is at most the estimate, to the 1e-8 that iteration is sure of."""
        return self.error <= self.estimate + 1e-8


def judge_forms(block: Block, orders: Sequence[int] = ORDERS) -> list[FormCase]:
    """The forms of the leading mode of `block` at rest, each with the amplitude of the state that it means: of the
    trajectory that begins on it, or where that leaves, of an exact state nearby."""
    relation = at_rest(block)
    top = normal_form(block, relation.leading(), max(orders), relation.state)
    forms = [top.truncated(order) for order in orders]
    solutions = [form.solution for form in forms]
    fields = [
        form.field(solution=solution) for form, solution in zip(forms, solutions, strict=True) if solution is not None
    ]
    if not fields:
        return [FormCase(order, float("nan"), float("nan"), float("nan"), "nothing") for order in orders]
    # without noise: an unstable branch is left only by rounding
    seen = iter(observed(block, top.modes, ends_of(block, np.array(fields), layers(block, 12))))
    cases = []
    for form, solution in zip(forms, solutions, strict=True):
        if solution is None:
            cases.append(FormCase(form.order, float("nan"), float("nan"), float("nan"), "nothing"))
            continue
        predicted, true = float(form.amplitudes_of(solution).max()), next(seen)
        near = abs(predicted / true - 1) <= 0.5
        seen_here = (true, "iterated") if near else (float("nan"), "nothing")
        case = FormCase(form.order, predicted, form.error(), *seen_here)
        if not case.right:  # iteration may have left an unstable branch
            true = exact_amplitude(form, solution)
            exact = replace(case, true=true, how="exact" if np.isfinite(true) else "nothing")
            case = min(case, exact, key=lambda case: case.error)
        cases.append(case)
    return cases


def noise_amplitudes(block: Block, seeds: int = 3) -> list[float]:
    """What `seeds` starts from noise come to: the amplitude of the leading mode, NaN if diverged."""
    mode = at_rest(block).leading()
    return observed(block, [mode], ends_of(block, noise(block, seeds), layers(block, 25)))


def observed(block: Block, modes: Sequence[Mode], ends: Sequence[Trajectory]) -> list[float]:
    """For each of `ends` the largest |wᴴB_k| of `modes` from there on, relative to rest, of the one frequency that each
    has most of; NaN if diverged.
    """
    paths = iterate_many(block, np.array([end.state for end in ends]), SAMPLES, tolerance=None, every=1)
    found = []
    for end, path in zip(ends, paths, strict=True):
        if end.status == "diverged" or path.status == "diverged":
            found.append(float("nan"))
            continue
        spectra = np.fft.fft(path.states - resting_state(block), axis=1) / block.n
        found.append(max(line(spectra[:, mode.k] @ mode.left.conj()) for mode in modes))
    return found


def line(z: NDArray[np.complex128]) -> float:
    """The modulus of the strongest part e^{iΩl} of the series `z`."""
    window = np.hanning(len(z) + 2)[1:-1]
    weighed, place = window / window.sum() * z, np.arange(len(z))
    padded = np.abs(np.fft.fft(weighed, 16 * len(z)))
    angle = width = 2 * np.pi / len(padded)
    angle *= int(padded.argmax())
    for _ in range(30):  # the vertex of a parabola, ever closer
        a, b, c = np.abs(np.exp(-1j * np.outer([angle - width, angle, angle + width], place)) @ weighed)
        angle += 0.5 * width * (a - c) / (a - 2 * b + c) if a - 2 * b + c < 0 else 0.0
        width /= 2
    return float(np.abs(np.exp(-1j * angle * place) @ weighed))


def exact_amplitude(form: NormalForm, solution: Solution) -> float:
    """The amplitude of the exact state or oscillation that Newton's method reaches from a `solution`; NaN if none."""
    block, ahead = form.block, solution.phase_advances[solution.active]
    try:
        if np.abs(np.sin(ahead)).max() < 1e-6:
            kind = "steady" if np.cos(ahead).min() > 0 else "alternating"
            state: ExactState | Oscillation = find_state(block, form.field(solution=solution), kind)
        else:
            around = np.exp(2j * np.pi * np.arange(13) / 13)
            fields = np.array([form.field_at(solution.z * turn) for turn in around])
            state = find_oscillation(block, fields, float(ahead[0]))
    except ArgumentError:
        return float("nan")
    return max(state.projection(mode) for mode in form.modes)


# Regimes

ALONE, TOGETHER = 0.1, 0.5
"""Ratios of two amplitudes under which the smaller one is no mode of the state, and over which it is one."""


def judge_regimes(block: Block, first: int, second: int, orders: Sequence[int] = ORDERS) -> dict[object, str]:
    """For the closed form and each order the verdict on two modes of a scalar `block`: 'right', 'wrong: …', 'nothing'
    if undecided or excluded, or 'open' if iteration has not decided.
    """
    relation = dispersion_relation(block)
    top = normal_form(block, [relation.mode(first), relation.mode(second)], max(orders))
    said: dict[object, str] = {order: top.truncated(order).regime() for order in orders}
    try:
        said = {"closed": competition(block, first, second).regime, **said}
    except ArgumentError:
        said = {"closed": "undecided", **said}
    seen = two_mode_ends(block, first, second)
    return {name: _regime_judged(regime, seen) for name, regime in said.items()}


def _regime_judged(regime: str, seen: list[str]) -> str:
    one, two, both = {"1", "1 (2)"}, {"2", "2 (1)"}, {"1 (2)", "2 (1)", "12"}
    allowed = {
        "collapsed": [{"0"}] * 4,
        "mode 1": [one] * 4,
        "mode 2": [two] * 4,
        "bistable": [one, two, one | two, one | two],
        "coexistence": [both] * 4,
    }
    if regime == "undecided":
        return "nothing"
    pairs = list(zip(seen, allowed[regime], strict=True))
    if any(end != "open" and end not in fitting for end, fitting in pairs):
        return f"wrong: {regime!r}, iterated: {seen}"
    return "open" if "open" in seen else "right"


def two_mode_ends(block: Block, first: int, second: int) -> list[str]:
    """What becomes of the first mode with a trace of the other, the second with a trace of the first, both alike, and
    noise: '1', '2', '12', '1 (2)' and '2 (1)' in between, '0', 'k = …' of others, 'diverged'; 'open' if too slow.
    """
    rng, n = np.random.default_rng(3), block.n
    waves = np.array([np.cos(2 * np.pi * k * np.arange(n) / n + rng.uniform(0, 6)) for k in (first, second)])
    shares = np.array([[1, 1e-3], [1e-3, 1], [0.7, 0.7], [0, 0]])
    states = 0.02 * (shares @ waves)[:, :, None] + 1e-6 * rng.standard_normal((4, n, 1))
    states[3] = 1e-3 * rng.standard_normal((n, 1))
    chunk, before = layers(block, 30), np.zeros((4, n // 2 + 1))
    names = ["open"] * 4
    for _ in range(60):
        running = [p for p, name in enumerate(names) if name == "open"]
        if not running:
            break
        ends = ends_of(block, states[running], chunk)
        paths = iterate_many(block, np.array([end.state for end in ends]), 128, tolerance=None, every=1)
        for p, end, path in zip(running, ends, paths, strict=True):
            states[p] = path.state
            # means over layers, for what travels over few tokens breathes
            moduli = np.abs(np.fft.rfft(path.states[:, :, 0], axis=1)).mean(axis=0) / n
            # at rest, and what is small does not grow
            small = np.maximum(moduli, 1e-9 * moduli[1:].max())
            still = np.abs(moduli - before[p]).max() <= 1e-4 * moduli.max() and (small <= 1.02 * before[p] + 1e-9).all()
            if "diverged" in (end.status, path.status):
                names[p] = "diverged"
            elif still or moduli[1:].max() < 1e-9:
                names[p] = _named(moduli, first, second)
            before[p] = small
    return names


def _named(moduli: Floats, first: int, second: int) -> str:
    if moduli[1:].max() < 1e-9:
        return "0"
    lead = int(moduli[1:].argmax()) + 1
    if lead not in (first, second):
        return f"k = {lead}"
    own, other = ("1", "2") if lead == first else ("2", "1")
    ratio = moduli[[first, second]].min() / moduli[lead]
    return own if ratio < ALONE else "12" if ratio > TOGETHER else f"{own} ({other})"


# Exact states


def judge_states(block: Block) -> tuple[list[str], dict[str, int]]:
    """What is wrong with the exact states of `block`, a line for each, and how many were tried: `ends` of trajectories
    that settled, `states` and of them `stable`.
    """
    relation, n = at_rest(block), block.n
    rng, depth = np.random.default_rng(5), layers(block, 30)
    growing = [k for k in range(1, n // 2 + 1) if np.abs(relation.multipliers[k, 0]) > 1][:5]
    seeds = [
        relation.state + relation.mode(k).field(0.02, phase=rng.uniform(0, 6)) + 1e-6 * rng.normal(size=(n, block.d))
        for k in growing
    ]
    ends = ends_of(block, np.array([*noise(block, 2), *seeds]), 2 * depth)
    settled = [end for end in ends if end.status != "diverged" and np.ptp(end.state, axis=0).max() > 1e-6]
    faults = [fault for end in settled if (fault := end_fault(block, end))]
    followed = growing if block.n * block.d <= LARGE else []
    states = [state for k in followed for state in patterns(block, k) if state is not None]
    guesses = [end.state for end in settled] + [
        relation.state + relation.mode(k).field(rng.uniform(0.03, 0.5), phase=rng.uniform(0, 6)) for k in growing
    ]
    for guess in guesses:
        try:
            states.append(find_state(block, guess))
        except ArgumentError:
            continue
    faults += [fault for state in states if (fault := state_fault(block, state, depth))]
    if block.d == 1:
        faults += family_faults(block, settled)
    counts = {"ends": len(settled), "states": len(states), "stable": sum(state.stable for state in states)}
    return faults, counts


def end_fault(block: Block, end: Trajectory) -> str:
    """What `find_state` says wrongly about the `end` of a trajectory that came to rest, or ''."""
    kind = kind_of(block, end.state)
    if end.status != "settled" or kind == "moving":
        return ""
    seen = f"settled, {kind}, k = {end.wavenumber}, R = {end.amplitude:.6g}"
    try:
        state = find_state(block, end.state)
    except ArgumentError as error:
        return f"{seen}: refused, {error}"
    own = np.abs(np.fft.fft(end.state, axis=0)) - np.abs(np.fft.fft(state.field, axis=0))
    if state.kind != kind or np.abs(own).max() > 1e-5 * block.n * np.abs(end.state).max():
        return f"{seen}: said to be {state.kind}, R = {state.amplitude:.6g}"
    return "" if state.stable else f"{seen}: said to be unstable, |Λ| = {abs(state.critical[0]):.9f}"


def kind_of(block: Block, x: Floats) -> str:
    """'steady', 'alternating' or 'moving': what two layers do to `x`, to 1e-9 of its size."""
    one = block.forward(x)
    limit = 1e-9 * (1 + np.abs(x).max())
    if np.abs(one - x).max() <= limit:
        return "steady"
    return "alternating" if np.abs(block.forward(one) - x).max() <= limit else "moving"


def state_fault(block: Block, state: ExactState, depth: int) -> str:
    """What `depth` layers from an exact `state` and 1e-6 of noise show to be wrong with it, or ''."""
    name = f"{state.kind}, k = {state.k}, R = {state.amplitude:.6g}, |Λ| = {abs(state.critical[0]):.9f}"
    image = block.forward(state.field)
    image = block.forward(image) if state.kind == "alternating" else image
    if state.kind != "travelling" and np.abs(image - state.field).max() > 1e-10 * (1 + np.abs(image).max()):
        return f"{name}: residual {np.abs(image - state.field).max():.2g}"
    left = leaves(block, state, depth)
    if state.stable and left:
        return f"{name}, 'stable': {left}"
    rate = np.log(abs(state.critical[0])) / (2 if state.kind == "alternating" else 1)
    return f"{name}, 'unstable': it stays" if not state.stable and not left and rate * depth > 40 else ""


def leaves(block: Block, state: ExactState, depth: int) -> str:
    """How iteration leaves an exact `state` in `depth` layers, or ''."""
    swing = max(float(np.ptp(state.field, axis=0).max()), 1e-3 * float(np.abs(state.field).max()), 1e-9)
    start = state.field + 1e-6 * swing * np.random.default_rng(2).standard_normal(state.field.shape)
    (end,) = ends_of(block, start[None], depth)
    if end.status == "diverged":
        return "diverges"
    (path,) = iterate_many(block, end.state[None], 256, tolerance=None, every=1)
    R = np.linalg.norm(np.fft.fft(path.states, axis=1)[:, state.k], axis=-1) / block.n
    if state.kind == "travelling":
        away = max(abs(R.mean() / state.amplitude - 1), 0.1 * np.abs(R / state.amplitude - 1).max())
    else:
        moduli = [np.abs(np.fft.fft(x, axis=0)) / block.n for x in (path.states[-1], state.field)]
        away = np.abs(moduli[0] - moduli[1]).max() / swing
    return f"iterated to R = {R.min():.6g} … {R.max():.6g}, k = {end.wavenumber}" if away > 1e-3 else ""


def family_faults(block: Block, settled: Sequence[Trajectory]) -> list[str]:
    """Patterns of one wavenumber that iteration settled to and `stable_wavenumbers` does not know."""
    known, faults = stable_wavenumbers(block), []
    for end in settled:
        k = int(end.wavenumber)  # type: ignore[call-overload]
        if end.status != "settled" or kind_of(block, end.state) == "moving" or k in (0, *known):
            continue
        period, x = block.n // gcd(k, block.n), end.state[:, 0]
        mirrored = x[(np.arange(block.n)[:, None] - np.arange(block.n)) % block.n]
        if max(np.abs(x - np.roll(x, period)).max(), np.abs(x - mirrored).max(axis=1).min()) <= 1e-7:
            faults.append(f"settled at k = {k}, R = {end.amplitude:.6g}; the stable wavenumbers are said to be {known}")
    return faults


# Standing and travelling waves of complex multipliers in a symmetric kernel


def judge_standing(block: Block) -> str:
    """What is wrong with the standing wave of the leading mode of `block`, or ''."""
    relation = at_rest(block)
    mode = relation.leading()
    form = normal_form(block, mode, 3, relation.state)
    standing = [solution for solution in form.solutions if solution.active.all()]
    if not standing:
        return ""
    R = float(np.abs(standing[0].z).mean())
    try:
        wave = find_oscillation(
            block, standing_start(mode, R, state=relation.state), float(standing[0].phase_advances[0])
        )
    except ArgumentError:
        return ""
    name = f"standing wave, k = {mode.k}, R = {wave.amplitude:.6g}, |Λ| = {abs(wave.multipliers[0]):.9f}"
    if wave.defect > 1e-6:
        return ""
    swing = float(np.abs(wave.fields - relation.state).max())
    start = wave.field(0.3) + 1e-6 * swing * np.random.default_rng(2).standard_normal(wave.fields.shape[1:])
    depth = layers(block, 30)
    ends = ends_of(block, start[None], depth)
    (seen,) = observed(block, form.modes, ends)
    away = not abs(seen / wave.projection(mode) - 1) <= 1e-3
    if wave.stable and away:
        return f"{name}, 'stable': iterated to {seen:.6g} of {wave.projection(mode):.6g}"
    rate = np.log(abs(wave.multipliers[0]))
    return f"{name}, 'unstable': it stays" if not wave.stable and not away and rate * depth > 40 else ""


def judge_rotation(block: Block, orders: Sequence[int] = ORDERS[:3]) -> dict[object, str]:
    """As `judge_regimes`, of the leading mode of `block` and its mirror image: waves travel if alone, stand if both."""
    relation = at_rest(block)
    mode, n, d = relation.leading(), block.n, block.d
    top = normal_form(block, mode, max(orders), relation.state)
    rng, still = np.random.default_rng(3), np.cos(2 * np.pi * mode.k * np.arange(n) / n + 1)[:, None]
    starts = np.array([mode.field(0.02), 0.04 * still * mode.right.real, *1e-3 * rng.normal(size=(2, n, d))])
    states = relation.state + starts + 1e-6 * rng.normal(size=starts.shape)
    chunk, before, seen = layers(block, 30), np.zeros((4, 2)), ["open"] * 4
    for _ in range(20):
        running = [p for p, name in enumerate(seen) if name == "open"]
        if not running:
            break
        ends = ends_of(block, states[running], chunk)
        pairs = np.array([observed(block, [one], ends) for one in top.modes]).T
        for p, end, pair in zip(running, ends, pairs, strict=True):
            states[p] = end.state
            small = np.maximum(pair, 1e-9 * pair.max())
            still_there = np.abs(pair - before[p]).max() <= 1e-4 * pair.max() and (small <= 1.02 * before[p]).all()
            if end.status == "diverged" or end.wavenumber != mode.k:
                seen[p] = "other"
            elif still_there:
                stands = pair.min() / pair.max() > 1 - ALONE
                travels = pair.min() < ALONE * pair.max() or _slides(block, end.state)
                seen[p] = "travels" if travels else "stands" if stands else "between"
            before[p] = small
    return {order: _rotation_judged(top.truncated(order).regime(), seen) for order in orders}


def _slides(block: Block, x: np.ndarray) -> bool:
    """Whether layers only shift the field `x` (N, d) along the ring: |B_k| of each feature stays as it is.

    A wave that travels may force its mirror image, at its own rate; the projection on that mode alone does not tell.
    """
    moduli = []
    for _ in range(5):
        moduli.append(np.abs(np.fft.fft(x - x.mean(axis=0), axis=0)))
        x = block.forward(x)
    return bool(np.ptp(moduli, axis=0).max() < 1e-3 * np.max(moduli))


def _rotation_judged(regime: str, seen: list[str]) -> str:
    if regime == "undecided":
        return "nothing"
    expected = {"bistable": "travels", "coexistence": "stands"}.get(regime, "")
    if any(end not in (expected, "open") for end in seen):
        return f"wrong: {regime!r}, iterated: {seen}"
    return "open" if "open" in seen else "right"


def judge_clusters(block: Block) -> list[str]:
    """Partitions into two clusters whose stability is not that of iteration, a line for each."""
    faults, depth = [], layers(block, 40)
    for partition in partitions(block):
        x, largest = partition.tokens[:, None], abs(partition.multipliers[0])
        start = x + 1e-6 * np.ptp(x) * np.random.default_rng(2).standard_normal(x.shape)
        (end,) = ends_of(block, start[None], depth)
        left = end.status == "diverged" or np.abs(end.state - x).max() > 1e-3 * np.ptp(x)
        if left if partition.stable else not left and np.log(largest) * depth > 20:
            faults.append(f"{partition.counts}, {partition.state.values}, |Λ| {largest:.9f}: left {left}")
    return faults


# Tables


def forms_table(judged: Sequence[list[FormCase]]) -> list[str]:
    """Lines of a table of the forms of many blocks: how many speak, their errors, and errors over estimates."""
    heads = f"{'order':>5} {'say':>9} {'right':>7} {'median':>9} {'90 %':>9}"
    lines = [f"{heads} {'error/estimate: 50 %':>22} {'90 %':>7} {'max':>8}"]
    rows = {
        str(order): [case for cases in judged for case in cases if case.order == order]
        for order in sorted({case.order for cases in judged for case in cases})
    }
    rows["best"] = [case for cases in judged if (case := best_case(cases)) is not None]
    for name, cases in rows.items():
        speak = [case for case in cases if case.speaks]
        if not speak:
            lines.append(f"{name:>5} {0:>3} of {len(judged)}")
            continue
        error = np.array([case.error for case in speak])
        ratio = error / np.array([case.estimate for case in speak])
        right = sum(case.right for case in speak) / len(speak)
        e50, e90 = np.quantile(error, [0.5, 0.9], method="higher")
        r50, r90 = np.quantile(ratio, [0.5, 0.9], method="higher")
        lines.append(
            f"{name:>5} {len(speak):>3} of {len(judged):<2} {right:>6.1%} {e50:>9.2g} {e90:>9.2g} "
            f"{r50:>22.2g} {r90:>7.2g} {ratio.max():>8.2g}"
        )
    return lines


def best_case(cases: Sequence[FormCase]) -> FormCase | None:
    """The one of `cases` with the smallest estimate, or None if none speaks."""
    return min((case for case in cases if case.speaks), key=lambda case: case.estimate, default=None)


def regimes_table(judged: Sequence[dict[object, str]]) -> list[str]:
    """Lines of a table of the verdicts on many pairs of modes."""
    lines = [f"{'order':>6} {'right':>6} {'wrong':>6} {'nothing':>8} {'open':>5}"]
    for name in judged[0]:
        verdicts = [verdict[name].split(":")[0] for verdict in judged]
        right, wrong, nothing, late = (verdicts.count(word) for word in ("right", "wrong", "nothing", "open"))
        lines.append(f"{name:>6} {right:>6} {wrong:>6} {nothing:>8} {late:>5}")
    return lines
