"""Sweeps killed at any moment, by the system or with their workers, go on to the same file."""

import functools
import os
import select
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from killing import make_block

from dispersion import ArgumentError, Block, FeedForward, Head, Kernel
from simulate import iterate, sweep

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs fork and signals")


FEW = [("work", 20), ("writing", 10), ("multiprocessing", 3)]
MANY = [("work", 100), ("writing", 50), ("multiprocessing", 35), ("loky", 15)]


@pytest.mark.parametrize(
    ("where", "kills"),
    [
        *(pytest.param(*few, marks=pytest.mark.slow) for few in FEW),
        *(pytest.param(*many, marks=pytest.mark.exhaustive) for many in MANY),
    ],
)
def test_killed_sweeps_go_on_to_the_same_file(where, kills):
    script = Path(__file__).with_name("killing.py")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "ignore", str(script), where, str(kills)]
    if where in ("loky", "multiprocessing"):
        pytest.importorskip("joblib")
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1800, check=False)
    print(ended.stdout)
    assert ended.returncode == 0, ended.stderr
    assert f"{where}: {kills} kills" in ended.stdout


GAINS = {"gain": np.linspace(0.2, 1.0, 16)}


def deadly():
    """A function that makes blocks, and at one point kills any process but this one."""
    here, kill = os.getpid(), signal.SIGKILL

    def make(gain):
        if 0.75 < gain < 0.8 and os.getpid() != here:
            os.kill(os.getpid(), kill)
        return Block([Head(Kernel.uniform(8), -gain, 1.5)], FeedForward.scalar("tanh", -0.1))

    return make


@contextmanager
def workers(where):
    joblib = pytest.importorskip("joblib")
    if where == "loky":
        with joblib.parallel_config(backend="loky", n_jobs=2):
            yield
        return
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
    with cluster, distributed.Client(cluster), joblib.parallel_config(backend="dask"):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("where", ["loky", "dask"])
def test_a_point_that_kills_its_workers_ends_the_sweep_with_one_line(tmp_path, where):
    path, make = tmp_path / "a.nc", deadly()
    with workers(where), pytest.raises(ArgumentError, match="worker that was killed") as caught:
        sweep(make, GAINS, 50, group=2, path=path, resume=True)
    assert "\n" not in str(caught.value)
    sweep(make, GAINS, 50, path=path, resume=True)
    sweep(make, GAINS, 50, path=tmp_path / "b.nc")
    assert path.read_bytes() == (tmp_path / "b.nc").read_bytes()


def amplitude(gain):
    return iterate(deadly()(gain), 50, start=0.1).amplitude


def test_a_process_forked_after_threads_have_run_has_threads_of_its_own():
    alone = amplitude(0.5)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, np.float64(amplitude(0.5)).tobytes())
        os._exit(0)
    os.close(writer)
    assert select.select([reader], [], [], 60)[0], "the forked process waits for threads that it has not"
    assert os.read(reader, 8) == np.float64(alone).tobytes()
    os.waitpid(child, 0)


@pytest.mark.slow
def test_forked_workers_after_threads_give_the_same():
    pytest.importorskip("joblib")
    make = functools.partial(make_block, strength=1.0)
    axes = {"gain": [0.2, 0.5, 0.6]}
    alone = sweep(make, axes, 50)
    assert sweep(make, axes, 50, n_jobs=2, backend="multiprocessing").identical(alone)
