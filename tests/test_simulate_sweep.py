"""Sweeps: every point as if it were alone, its own outcome, the file."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import xarray
from conftest import SMOOTH

from dispersion import Activation, ArgumentError, Block, FeedForward, Head, Kernel, dispersion_relation
from simulate import STATUS, iterate, load, save, sweep

N = 16
SETTINGS = {"eta": [-0.3, -0.7, -0.9], "strength": [1.0, 2.5]}


def make_block(eta, strength):
    kernel = Kernel.gaussian_lobes(N, separation=3, width=1.0, strength=strength)
    return Block([Head(kernel, value=eta, content=1.5)], FeedForward.scalar("tanh", scale=-0.1))


@pytest.fixture(scope="module")
def swept():
    return sweep(make_block, SETTINGS, depth=1500)


def status_of(dataset):
    return [STATUS[number] for number in dataset.status.values.ravel()]


def test_points_equal_single_trajectories(swept):
    assert swept.status.dims == ("eta", "strength")
    assert swept.state.dims == ("eta", "strength", "token")
    for point, (i, j) in enumerate(np.ndindex(3, 2)):
        block = make_block(SETTINGS["eta"][i], SETTINGS["strength"][j])
        seed = np.random.SeedSequence(0, spawn_key=(point,))
        path, here = iterate(block, depth=1500, rng=seed), swept.isel(eta=i, strength=j)
        np.testing.assert_array_equal(here.state, path.state[:, 0])
        assert STATUS[int(here.status)] == path.status
        assert int(here.layers) == path.depth
        assert int(here.wavenumber) == path.wavenumber
        assert float(here.amplitude) == pytest.approx(path.amplitude, rel=1e-12)
        assert float(here["mean"]) == pytest.approx(path.mean, abs=1e-15)
        np.testing.assert_allclose([here.cluster_low, here.cluster_high], path.cluster_values)
        np.testing.assert_allclose(here.spectrum, path.spectrum)
        np.testing.assert_allclose(np.exp(1j * here.phase_advance), np.exp(1j * path.phase_advance), atol=1e-12)
        assert float(here.critical_amplitude) == path.spectrum[int(here.critical_wavenumber)]


def test_groups_change_nothing(swept, monkeypatch):
    monkeypatch.setattr("simulate.sweeps.GROUP", 4)
    assert sweep(make_block, SETTINGS, depth=1500).identical(swept)


def test_the_seed_matters_and_is_kept(swept):
    again = sweep(make_block, SETTINGS, depth=1500, rng=7)
    assert again.attrs["seed"] == 7
    assert not np.array_equal(again.state, swept.state)


def linear_blocks():
    rng = np.random.default_rng(3)
    for activation in (*SMOOTH, "relu_squared", "polynomial", None):
        for heads in (1, 3):
            tables = [Kernel.table(rng.normal(size=9)) for _ in range(heads)] + [Kernel.alibi(9, 0.4)]
            made = [Head(kernel, rng.normal(), rng.normal()) for kernel in tables]
            name = activation
            if activation == "polynomial":
                name = Activation.polynomial(rng.normal(size=heads + 1))
            forward = (
                None
                if name is None
                else FeedForward(rng.normal(size=(2, 1)), rng.normal(size=(1, 2)), name, rng.normal(size=2), [0.1])
            )
            yield Block(made, forward, 0.8)


def test_leading_multiplier_is_that_of_the_dispersion_relation():
    for block in linear_blocks():
        found = sweep(lambda case, block=block: block, {"case": [0]}, depth=1)
        mode = dispersion_relation(block).leading()
        assert int(found.critical_wavenumber[0]) == mode.k
        assert float(found.critical_growth[0]) == pytest.approx(abs(mode.multiplier), rel=1e-12)
        assert np.exp(1j * float(found.critical_phase[0])) == pytest.approx(np.exp(1j * mode.phase), abs=1e-12)


def test_relu_has_no_multiplier_at_zero():
    def relu(eta):
        return Block([Head(Kernel.alibi(8, 0.5), eta)], FeedForward.scalar("relu", -0.1))

    found = sweep(relu, {"eta": [-0.5]}, depth=3)
    assert int(found.critical_wavenumber[0]) == -1
    assert np.isnan(found.critical_growth[0])
    assert np.isnan(found.critical_amplitude[0])


def test_failed_and_diverged_points_leave_the_others(swept):
    def partly(eta, strength):
        if strength == 2.0:
            raise ArgumentError("strength", strength, "another one")
        return make_block(eta, strength)

    found = sweep(partly, {"eta": [-0.3, 1.5], "strength": [1.0, 2.0]}, depth=1500)
    assert status_of(found) == ["settled", "failed", "diverged", "failed"]
    assert found.reason.values[0, 1] == "strength: got 2.0; accepted: another one"
    assert found.reason.values[0, 0] == found.reason.values[1, 0] == ""
    np.testing.assert_array_equal(found.state[0, 0], swept.state[0, 0])
    assert np.isnan(found.amplitude.values.ravel()).tolist() == [False, True, True, True]
    assert np.isfinite(found.state[1, 0]).all()
    assert int(found.layers[1, 0]) < 100
    assert found.wavenumber.values[:, 1].tolist() == [-1, -1]


def test_starts():
    rng = np.random.default_rng(1)
    shared, each = 0.2 * rng.normal(size=N), 0.2 * rng.normal(size=(3, 2, N))
    for given in (shared, each):
        found = sweep(make_block, SETTINGS, depth=2, start=given, tolerance=None)
        for i, j in np.ndindex(3, 2):
            block = make_block(SETTINGS["eta"][i], SETTINGS["strength"][j])
            expected = block.forward(block.forward(np.broadcast_to(given, (3, 2, N))[i, j]))
            np.testing.assert_allclose(found.state[i, j], expected, atol=1e-15)
        np.testing.assert_array_equal(found.start, given)

    def by_block(block, generator):
        return block.heads[0].value[0, 0] * np.ones(block.n) if block.heads[0].value > -0.8 else np.ones(3)

    found = sweep(make_block, SETTINGS, depth=1, start=by_block)
    assert status_of(found)[4:] == ["failed", "failed"]
    assert "shape (3,)" in str(found.reason.values[2, 0])
    assert "failed" not in status_of(found)[:4]


def test_no_early_stop_runs_the_whole_depth():
    found = sweep(make_block, {"eta": [-0.3], "strength": [1.0]}, depth=700, tolerance=None)
    assert int(found.layers[0, 0]) == 700
    assert status_of(found) == ["unsettled"]
    assert found.attrs["tolerance"] == 0


def test_interrupt_keeps_finished_groups(monkeypatch, tmp_path):
    monkeypatch.setattr("simulate.sweeps.GROUP", 2)
    calls = []

    def interrupted(eta, strength):
        calls.append(eta)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return make_block(eta, strength)

    path = tmp_path / "part.nc"
    with pytest.warns(UserWarning, match="2 of 6 points not run"):
        found = sweep(interrupted, SETTINGS, depth=1500, path=path)
    assert status_of(found)[4:] == ["not run", "not run"]
    assert found.attrs["interrupted"] == 1
    whole = sweep(make_block, SETTINGS, depth=1500)
    np.testing.assert_array_equal(found.state[:2], whole.state[:2])
    assert load(path).identical(found)


def test_interrupt_before_anything_is_finished_is_an_interrupt():
    def interrupted(eta):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(interrupted, {"eta": [1.0]})


def test_file_round_trip_and_same_bytes(tmp_path):
    first, second = tmp_path / "a.nc", tmp_path / "b.nc"
    found = sweep(make_block, SETTINGS, depth=50, path=first)
    assert load(first).identical(found)
    time.sleep(1.1)  # a time stamp in the file would differ
    sweep(make_block, SETTINGS, depth=50, path=second)
    assert first.read_bytes() == second.read_bytes()
    assert sweep(make_block, SETTINGS, depth=50).identical(found)
    for name in ("c.nc", "d.nc"):
        assert save(load(first), tmp_path / name) == tmp_path / name
        assert load(tmp_path / name).identical(found)
    assert (tmp_path / "c.nc").read_bytes() == (tmp_path / "d.nc").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["a.nc", "b.nc", "c.nc", "d.nc"]
    with xarray.open_dataset(first) as opened:
        assert opened.status.attrs["flag_meanings"].split() == [name.replace(" ", "_") for name in STATUS]


def test_the_file_says_how_it_was_made(swept):
    expected = {"depth": 1500, "tolerance": 1e-12, "seed": 0, "start": 1e-3, "make_block": "make_block"}
    assert expected.items() <= swept.attrs.items()
    assert swept.attrs["numpy_version"] == np.__version__
    assert {"python_version", "numba_version", "tokenwaves_version", "title"} <= swept.attrs.keys()
    assert all({"units", "long_name"} <= variable.attrs.keys() for variable in swept.data_vars.values())


def test_a_failed_write_leaves_the_old_file(tmp_path, swept, monkeypatch):
    path = tmp_path / "a.nc"
    path.write_text("old")

    def full(*args, **keywords):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(xarray.Dataset, "to_netcdf", full)
    with pytest.raises(ArgumentError, match=r"a\.nc.*No space left"):
        save(swept, path)
    assert os.listdir(tmp_path) == ["a.nc"]
    assert path.read_text() == "old"


def never(eta, strength):
    raise AssertionError("the sweep should have been refused before any block was made")


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"parameters": {}}, "one name or more"),
        ({"parameters": {"eta": [1.0], "spread": [1.0]}}, "spread"),
        ({"parameters": {"eta": [1.0]}}, "strength"),
        ({"parameters": {"eta": [1.0], "strength": 2.0}}, "strength.*one axis"),
        ({"parameters": {"eta": [], "strength": [1.0]}}, "eta.*not empty"),
        ({"parameters": {"eta": [1.0], "state": [1.0]}}, "'state'"),
        ({"depth": 0}, "depth"),
        ({"rng": None}, "rng"),
        ({"tolerance": -1.0}, "tolerance"),
        ({"path": "/no/such/directory/a.nc"}, "/no/such/directory"),
    ],
)
def test_refusals_come_before_the_work(keywords, message):
    with pytest.raises(ArgumentError, match=message):
        sweep(**{"make_block": never, "parameters": SETTINGS} | keywords)


@pytest.mark.parametrize("start", [np.nan, np.full(N, np.inf), np.zeros(N + 1), np.zeros((2, 3, N))])
def test_bad_starts_are_refused(start):
    with pytest.raises(ArgumentError, match="start"):
        sweep(make_block, SETTINGS, depth=5, start=start)


def test_unlike_points_are_refused():
    def sized(n):
        return Block([Head(Kernel.uniform(n), -0.5)])

    with pytest.raises(ArgumentError, match=r"point 1.*N = 9.*N = 8"):
        sweep(sized, {"n": [8, 9]}, depth=2)

    def named(name):
        return Block([Head(Kernel.uniform(8), -0.5)], FeedForward.scalar(name))

    with pytest.raises(ArgumentError, match=r"point 1.*'sine'"):
        sweep(named, {"name": ["tanh", "sine"]}, depth=2)
    with pytest.raises(ArgumentError, match="make_block"):
        sweep(lambda n: n, {"n": [8]})
    with pytest.raises(ArgumentError, match=r"no usable point.*at least 2"):
        sweep(sized, {"n": [0, 1]})


def test_too_much_memory_is_refused(monkeypatch):
    monkeypatch.setattr("dispersion.memory.available_memory", lambda: 1e4)
    monkeypatch.setattr("dispersion.memory.SMALL", 0)
    with pytest.raises(ArgumentError, match=r"^parameters: got 6 points.* needs [\d,]+ bytes"):
        sweep(make_block, SETTINGS)


def test_reading_what_is_not_there(tmp_path):
    with pytest.raises(ArgumentError, match=r"none\.nc"):
        load(tmp_path / "none.nc")
    (tmp_path / "text.nc").write_text("not netCDF")
    with pytest.raises(ArgumentError, match=r"text\.nc"):
        load(tmp_path / "text.nc")


def test_no_progress_bar_unless_on_a_terminal(capfd):
    sweep(make_block, SETTINGS, depth=2)
    assert capfd.readouterr().err == ""
    sweep(make_block, SETTINGS, depth=2, progress=True)
    assert "12.0/12.0" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_a_real_interrupt_ends_a_long_sweep(tmp_path):
    code = (
        "import numpy as np, sys\n"
        "from test_simulate_sweep import make_block\nfrom simulate import sweep\n"
        "print('ready', flush=True)\n"
        f"sweep(make_block, {{'eta': np.linspace(-.9, -.3, 200), 'strength': np.linspace(1, 3, 200)}}, depth=5000,"
        f" tolerance=None, path={str(tmp_path / 'a.nc')!r})\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    log = tmp_path / "a.nc.parts" / "log.jsonl"
    while not (log.exists() and log.stat().st_size):
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 0
    found = load(tmp_path / "a.nc")
    assert found.attrs["interrupted"] == 1
    assert {"not run", "unsettled"} == set(status_of(found))
