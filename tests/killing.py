"""Sweeps killed by SIGKILL at random moments and gone on with, in forks of one process: python killing.py WHERE KILLS.

WHERE : 'work' for any moment, 'writing' for those since the result file is begun, or a backend of joblib. A moment is a
block that is made, a file of the sweep that is opened, renamed or removed, or a variable that is read for the result.
Prints how many kills hit and how many sweeps came to their end; exits with 1 if one ended in another file.
"""

import os
import random
import signal
import sys
import tempfile
from pathlib import Path

import numpy as np

import simulate.plan
import simulate.runs.journal
from dispersion import Block, FeedForward, Head, Kernel
from simulate import sweep

EVENTS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.listdir")
AXES = {"gain": np.linspace(0.2, 1.2, 6), "strength": np.linspace(1, 3, 5)}


def make_block(gain, strength):
    if gain > 1.1 and strength > 2:
        raise ZeroDivisionError("no block here")
    kernel = Kernel.gaussian_lobes(8, separation=2, width=0.7, strength=strength)
    return Block([Head(kernel, -gain, 1.5)], FeedForward.scalar("tanh", -0.1))


def pair(path):
    if path.wavenumber == 0:
        raise ValueError("no pattern")
    return {"pair": path.state[:2, 0]}


def run(path, **keywords):
    sweep(make_block, AXES, 100, path=path, resume=True, group=4, measure=["state", "layers", pair], **keywords)


class Moments:
    """Counts the moments of a sweep in `folder` and kills this process at number `last`."""

    def __init__(self, folder, where, last):
        self.count, self.last, self.begun, self.process = 0, last, where != "writing", os.getpid()
        build, rows = simulate.plan.build, simulate.runs.journal.Journal.rows

        def counted_build(*arguments):
            self.pass_one()
            return build(*arguments)

        def counted_rows(*arguments):
            self.begun = self.begun or where == "writing"
            self.pass_one()
            return rows(*arguments)

        def hook(name, arguments):
            if name in EVENTS and str(arguments[0]).startswith(str(folder)):
                self.pass_one()

        simulate.plan.build = counted_build
        simulate.runs.journal.Journal.rows = counted_rows
        sys.addaudithook(hook)

    def pass_one(self):
        if self.begun and os.getpid() == self.process:
            self.count += 1
            if self.count == self.last:
                os.kill(os.getpid(), signal.SIGKILL)


def in_a_fork(path, where, last, keywords):
    """Whether the sweep came to its end, and the moments that passed."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            moments = Moments(path.parent, where, last)
            run(path, **keywords)
            os.write(writer, str(moments.count).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    status = os.waitpid(child, 0)[1]
    with os.fdopen(reader) as told:
        count = told.read()
    if status and os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
        sys.exit("a sweep failed")
    return not status, int(count or 0)


def main(where, kills):
    keywords = {} if where in ("work", "writing") else {"backend": where, "n_jobs": 2}
    draw = random.Random(where)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(os.path.realpath(folder)) / "a.nc"
        run(path)
        expected = path.read_bytes()
        path.unlink()
        ended, total = in_a_fork(path, where, 0, keywords)
        hits = ends = 0
        while hits < kills:
            if ended:
                ends += 1
                if path.read_bytes() != expected or os.listdir(path.parent) != ["a.nc"]:
                    sys.exit(f"another file after {hits} kills: {os.listdir(path.parent)}")
                path.unlink()
            ended, _ = in_a_fork(path, where, draw.randint(1, total), keywords)
            hits += not ended
        if not ended:
            in_a_fork(path, where, 0, keywords)
        if path.read_bytes() != expected or os.listdir(path.parent) != ["a.nc"]:
            sys.exit("another file after the last kill")
    print(f"{where}: {hits} kills at {total} moments, {ends + 1} sweeps ended, all in the same file")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
