"""Sweeps that are killed, resumed, spread over workers and measured by functions: always the same dataset."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import simulate.plan
from dispersion import ArgumentError, Block, FeedForward, Head, Kernel
from simulate import STATUS, load, sweep

SETTINGS = {"eta": [-0.3, -0.5, -0.7, -0.9, 1.5], "strength": [1.0, 2.5]}


def make_block(eta, strength):
    kernel = Kernel.gaussian_lobes(16, separation=3, width=1.0, strength=strength)
    return Block([Head(kernel, value=eta, content=1.5)], FeedForward.scalar("tanh", scale=-0.1))


def peaks(path):
    return {"peak": np.abs(path.state).max(), "pair": path.state[:2, 0]}


def run(path, **keywords):
    defaults = {"depth": 300, "resume": True, "group": 2, "measure": ["amplitude", "state", peaks]}
    return sweep(make_block, SETTINGS, path=path, **defaults | keywords)


class Killed(BaseException):
    """Ends a sweep without giving it a chance to tidy up."""


def kill_after(monkeypatch, points):
    """Let the process 'die' when the block after `points` others is built."""
    build, count = simulate.plan.build, []

    def dying(*arguments):
        count.append(1)
        if len(count) > points:
            raise Killed
        return build(*arguments)

    monkeypatch.setattr(simulate.plan, "build", dying)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "a.nc"
    run(path)
    return path


@pytest.mark.parametrize("points", [0, 1, 5, 9])
def test_a_killed_sweep_resumes_to_the_same_file(tmp_path, monkeypatch, whole, points):
    path = tmp_path / "b.nc"
    with monkeypatch.context() as patch:
        kill_after(patch, points)
        with pytest.raises(Killed):
            run(path)
    assert not path.exists()
    log = tmp_path / "b.nc.parts" / "log.jsonl"
    assert (log.read_bytes().count(b"\n") if log.exists() else 0) == points // 2
    with open(log, "ab") as torn:
        torn.write(b'{"first": 8, "la')
    resumed = run(path, group=3)
    assert path.read_bytes() == whole.read_bytes()
    assert resumed.identical(load(whole))
    assert os.listdir(tmp_path) == ["b.nc"]


def test_only_what_is_left_is_run(tmp_path, monkeypatch):
    path, built = tmp_path / "b.nc", []

    def counting(eta, strength):
        built.append(eta)
        return make_block(eta, strength)

    with monkeypatch.context() as patch:
        kill_after(patch, 6)
        with pytest.raises(Killed):
            sweep(counting, SETTINGS, 30, path=path, group=2, resume=True)
    iterated, evolve = [], simulate.plan.evolve

    def watched(system, states, *arguments, **keywords):
        iterated.append(len(states))
        return evolve(system, states, *arguments, **keywords)

    monkeypatch.setattr(simulate.plan, "evolve", watched)
    before = len(built)
    sweep(counting, SETTINGS, 30, path=path, group=2, resume=True)
    assert iterated == [2, 2]  # points 6 to 9
    assert len(built) - before == 1 + 6 + 4  # the first block, for the sizes; those of the points done, to compare
    again = sweep(counting, SETTINGS, 30, path=path, resume=True)
    assert iterated == [2, 2]
    assert again.identical(load(path))


def test_an_interrupted_sweep_goes_on(tmp_path, monkeypatch, whole):
    path, build = tmp_path / "a.nc", simulate.plan.build

    def stopping(make, axes, point):
        if point == 5:
            raise KeyboardInterrupt
        return build(make, axes, point)

    with monkeypatch.context() as patch:
        patch.setattr(simulate.plan, "build", stopping)
        with pytest.warns(UserWarning, match="6 of 10 points not run"):
            part = run(path)
    assert (part.status == STATUS.index("not run")).sum() == 6
    assert np.isnan(part.pair.values.reshape(10, 2)[4:]).all()
    assert load(path).identical(part)
    assert run(path).identical(load(whole))
    assert path.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"depth": 301}, "depth"),
        ({"rng": 1}, "rng"),
        ({"tolerance": None}, "tolerance"),
        ({"start": 0.5}, "start"),
        ({"start": np.zeros(16)}, "start"),
        ({"measure": ["amplitude"]}, "measure"),
        ({"parameters": SETTINGS | {"eta": [-0.3, -0.5, -0.7, -0.9, 1.0]}}, "parameters"),
        ({"make_block": lambda eta, strength: make_block(eta, strength)}, "make_block"),
    ],
)
def test_another_sweep_is_not_continued(tmp_path, monkeypatch, whole, other, named):
    path = tmp_path / "b.nc"
    with monkeypatch.context() as patch:
        kill_after(patch, 5)
        with pytest.raises(Killed):
            run(path)
    keywords = {"make_block": make_block, "parameters": SETTINGS, "depth": 300, "resume": True}
    keywords |= {"measure": ["amplitude", "state", peaks]}
    with pytest.raises(ArgumentError, match=f"unfinished sweep with another {named}"):
        sweep(**keywords | other, path=path)
    with pytest.raises(ArgumentError, match=f"another sweep, with another {named}"):
        sweep(**keywords | other, path=whole)
    with pytest.raises(ArgumentError, match="resume=True"):
        sweep(make_block, SETTINGS, 300, path=path)


def test_a_closure_that_makes_other_blocks_is_another_sweep(tmp_path, monkeypatch):
    def maker(content):
        def make(eta):
            return Block([Head(Kernel.uniform(8), eta, content)])

        return make

    path = tmp_path / "a.nc"
    sweep(maker(1.0), {"eta": [-0.5]}, 5, path=path, resume=True)
    sweep(maker(1.0), {"eta": [-0.5]}, 5, path=path, resume=True)
    with pytest.raises(ArgumentError, match="another sweep, with other blocks or start states"):
        sweep(maker(2.0), {"eta": [-0.5]}, 5, path=path, resume=True)


def test_lazy_results_are_opened_not_read(tmp_path, whole):
    with run(tmp_path / "a.nc", lazy=True) as found:
        assert found.identical(load(whole))
    for keyword in ("resume", "lazy"):
        with pytest.raises(ArgumentError, match="path"):
            sweep(make_block, SETTINGS, **{keyword: True})


def test_functions_measure(whole):
    found = load(whole)
    assert found.pair.dims == ("eta", "strength", "pair_0")
    assert "spectrum" not in found
    alive = found.status < STATUS.index("diverged")
    np.testing.assert_array_equal(found.peak.where(alive), np.abs(found.state).max("token").where(alive))
    assert np.isnan(found.peak.values[4]).all()  # diverged
    assert int(found.status[4, 0]) == STATUS.index("diverged")


def test_what_a_measure_may_return():
    few = {"eta": [-0.3, -0.9], "strength": [1.0]}

    def only_patterns(path):
        if path.wavenumber == 0:
            raise ValueError("no pattern")
        return {"clusters": path.cluster_count()}

    found = sweep(make_block, few, 1500, measure=only_patterns)
    assert [STATUS[s] for s in found.status.values.ravel()] == ["failed", "unsettled"]
    assert found.reason.values[0, 0] == "no pattern"
    named = sweep(make_block, few, 1500, measure=["cluster_count", "cluster_separation", "heterogeneity"])
    assert int(named.cluster_count[1, 0]) == int(found.clusters[1, 0]) > 1
    for bad, message in [
        (lambda path: {"state": 1.0}, "'state'"),
        (lambda path: {"z": 1j}, "z of type complex"),
        (["speed"], "'speed'"),
    ]:
        with pytest.raises(ArgumentError, match=message):
            sweep(make_block, {"eta": [-0.1, -0.9], "strength": [2.5]}, 300, measure=bad)


@pytest.mark.parametrize("keywords", [{"n_jobs": 2, "backend": "threading"}, {"n_jobs": 1}])
def test_workers_change_nothing(keywords):
    pytest.importorskip("joblib")
    alone = sweep(make_block, SETTINGS, depth=200)
    assert sweep(make_block, SETTINGS, depth=200, **keywords).identical(alone)


def test_an_active_configuration_of_joblib_is_used(monkeypatch):
    joblib = pytest.importorskip("joblib")
    import simulate.runs.work

    seen, outcomes = [], simulate.runs.work.outcomes

    def watched(*arguments):
        seen.append(1)
        return outcomes(*arguments)

    monkeypatch.setattr(simulate.runs.work, "outcomes", watched)
    alone = sweep(make_block, SETTINGS, depth=200)
    assert not seen
    with joblib.parallel_config(backend="threading", n_jobs=2):
        starts = np.random.default_rng(0).normal(size=(5, 2, 16))
        assert sweep(make_block, SETTINGS, depth=200).identical(alone)
        spread = sweep(make_block, SETTINGS, depth=20, start=starts)
    assert len(seen) == 2
    assert spread.identical(sweep(make_block, SETTINGS, depth=20, start=starts))


def test_unknown_workers_are_refused():
    pytest.importorskip("joblib")
    with pytest.raises(ArgumentError, match="backend"):
        sweep(make_block, SETTINGS, depth=2, backend="none of this name")
    with pytest.raises(ArgumentError, match="n_jobs"):
        sweep(make_block, SETTINGS, depth=2, n_jobs=0)


@pytest.mark.slow
def test_processes_change_nothing():
    pytest.importorskip("joblib")
    alone = sweep(make_block, SETTINGS, depth=200)
    for backend in ("loky", "multiprocessing"):
        assert sweep(make_block, SETTINGS, depth=200, n_jobs=2, backend=backend).identical(alone)


def test_a_local_dask_cluster_gives_the_same_dataset(tmp_path):
    joblib = pytest.importorskip("joblib")
    distributed = pytest.importorskip("distributed")
    alone = run(tmp_path / "a.nc")
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0")
    with cluster, distributed.Client(cluster), joblib.parallel_config(backend="dask"):
        spread = run(tmp_path / "b.nc")
    assert spread.identical(alone)
    assert (tmp_path / "a.nc").read_bytes() == (tmp_path / "b.nc").read_bytes()


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_kill_nine_loses_at_most_the_running_group(tmp_path):
    path, log = tmp_path / "a.nc", tmp_path / "a.nc.parts" / "log.jsonl"
    code = (
        "import numpy as np\nfrom test_simulate_resume import make_block\nfrom simulate import sweep\n"
        "axes = {'eta': np.linspace(-.9, -.3, 40), 'strength': np.linspace(1, 3, 40)}\n"
        f"sweep(make_block, axes, depth=2000, tolerance=None, path={str(path)!r}, resume=True, group=32)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    for groups in (5, 20):
        process = subprocess.Popen([sys.executable, "-c", code], env=environment)
        while process.poll() is None and (not log.exists() or log.read_bytes().count(b"\n") < groups):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    finished = sum(json.loads(line)["last"] - json.loads(line)["first"] for line in log.read_bytes().splitlines()[:-1])
    assert finished >= 19 * 32
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    killed = path.read_bytes()
    path.unlink()
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert path.read_bytes() == killed
