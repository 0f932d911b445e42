"""The journal of a sweep trusts nothing: what is damaged is refused or worked on again, what is not ours is left."""

import os
import random
import shutil
import subprocess
import sys
from collections import Counter

import pytest
from fuzzing import budget, fuzz
from hypothesis import strategies as st
from test_sweep_identity import GAINS, go_on, make_block, named, sweep_half

import simulate.plan
from dispersion import ArgumentError
from simulate import STATUS, sweep
from simulate.runs.lock import Lock, Locked


def pair(path):
    if path.wavenumber == 0:
        raise ValueError("no pattern")
    return {"pair": path.state[:2, 0]}


MEASURE = ["state", "amplitude", pair]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "a.nc"
    go_on(path, measure=MEASURE)
    return path.read_bytes()


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """A folder with the journal of a sweep that was killed after four points of six."""
    folder = tmp_path_factory.mktemp("half")
    sweep_half(folder / "a.nc", measure=MEASURE)
    return folder / "a.nc.parts"


def resumed(tmp_path, half, damage):
    """The sweep of `half` after `damage` to its journal: the bytes of the file, or the one line that refuses it."""
    folder = tmp_path / "a.nc.parts"
    for old in (folder, tmp_path / "a.nc"):
        shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)
    shutil.copytree(half, folder)
    damage(folder)
    before = set(os.listdir(folder))
    try:
        go_on(tmp_path / "a.nc", measure=MEASURE)
    except ArgumentError as error:
        line = str(error)
        assert not (tmp_path / "a.nc").exists()
        assert before <= set(os.listdir(folder))
        return line
    assert os.listdir(tmp_path) == ["a.nc"]
    return (tmp_path / "a.nc").read_bytes()


def fine(found, whole):
    """Whether a damaged sweep gave the same file, or one line."""
    return found == whole if isinstance(found, bytes) else "a.nc" in found and "\n" not in found


def cut(file, length):
    content = file.read_bytes()
    file.write_bytes(content[: int(length * len(content))])


def flip(file, place):
    content = bytearray(file.read_bytes())
    if content:
        content[int(place * len(content))] ^= 1 << int(8e3 * place) % 8
    file.write_bytes(content)


def zero(file, place):
    content = bytearray(file.read_bytes())
    first = int(place * len(content))
    content[first : first + 64] = bytes(len(content[first : first + 64]))
    file.write_bytes(content)


def insert(file, place):
    content = file.read_bytes()
    first = int(place * len(content))
    file.write_bytes(content[:first] + random.Random(place).randbytes(8) + content[first:])


def swap(file, place):
    lines = file.read_bytes().splitlines(keepends=True)
    random.Random(place).shuffle(lines)
    file.write_bytes(b"".join(lines))


def repeat(file, place):
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines + lines[int(place * len(lines)) :]))


def text(content):
    return lambda file, place: file.write_bytes(content)


def lose(file, place):
    file.unlink()


def replace_by_folder(file, place):
    file.unlink()
    file.mkdir()


DAMAGES = [
    cut,
    flip,
    zero,
    insert,
    swap,
    repeat,
    lose,
    replace_by_folder,
    *map(text, (b"", b"{}", b"[]", b"null\n", b"{}\n" * 3, b'{"first": 0, "last": 6}\n', b"\xff\xfe", b"[" * 10**5)),
]


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["settings.json", "log.jsonl", "state.raw", "pair.raw", "status.raw", "lock"])
@pytest.mark.parametrize("place", [0.0, 0.4])
def test_damage_is_refused_or_worked_on_again(tmp_path, half, whole, damage, name, place):
    found = resumed(tmp_path, half, lambda folder: damage(folder / name, place))
    assert fine(found, whole)


@budget(short=8, long=500)
def test_random_damage_is_refused_or_worked_on_again(tmp_path, half, whole, examples):
    counted = Counter()

    def prop(hurts):
        def damage(folder):
            for kind, number, place in hurts:
                files = sorted(file for file in folder.iterdir() if file.is_file())
                if files:
                    kind(files[number % len(files)], place)

        found = resumed(tmp_path, half, damage)
        assert fine(found, whole)
        counted["the same file" if found == whole else "refused"] += 1

    hurt = st.tuples(st.sampled_from(DAMAGES), st.integers(0, 99), st.floats(0, 1, exclude_max=True))
    fuzz(prop, examples, hurts=st.lists(hurt, min_size=1, max_size=4))
    print(dict(counted))
    assert counted["the same file"] > 0


def test_what_is_whole_is_not_worked_on_again(tmp_path, half, whole, monkeypatch):
    ran, evolve = [], simulate.plan.evolve

    def watched(system, states, *arguments, **keywords):
        ran.append(len(states))
        return evolve(system, states, *arguments, **keywords)

    monkeypatch.setattr(simulate.plan, "evolve", watched)
    probe, witnesses = [1], [1, 1, 1]
    assert resumed(tmp_path, half, lambda folder: None) == whole
    assert ran == probe + witnesses + [2]
    ran.clear()
    assert resumed(tmp_path, half, lambda folder: flip(folder / "state.raw", 0.1)) == whole
    assert ran[-2:] == [2, 2]


def test_the_lines_of_another_sweep_do_not_count(tmp_path, half, whole):
    other = tmp_path / "other"
    other.mkdir()
    sweep_half(other / "a.nc", measure=MEASURE, depth=21)

    def mix(folder):
        for name in ("log.jsonl", "state.raw"):
            shutil.copy(other / "a.nc.parts" / name, folder / name)

    folder = tmp_path / "here"
    folder.mkdir()
    assert resumed(folder, half, mix) == whole
    found = resumed(folder, half, lambda parts: shutil.copy(other / "a.nc.parts" / "settings.json", parts))
    assert "another depth" in found


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("names", [["notes.txt"], ["DSC001.raw"], ["settings.json"], ["log.jsonl", "state.raw"]])
def test_a_folder_that_is_not_ours_is_left_alone(tmp_path, names, resume):
    folder = tmp_path / "a.nc.parts"
    folder.mkdir()
    for name in names:
        (folder / name).write_text('{"depth": "20"}')
    with pytest.raises(ArgumentError, match="no journal of a sweep"):
        go_on(tmp_path / "a.nc", resume=resume)
    assert sorted(os.listdir(folder)) == sorted(names)
    assert {file.read_text() for file in folder.iterdir()} == {'{"depth": "20"}'}


def test_what_else_lies_in_our_folder_stays(tmp_path, half, whole):
    path = tmp_path / "a.nc"
    shutil.copytree(half, tmp_path / "a.nc.parts")
    (tmp_path / "a.nc.parts" / "notes.txt").write_text("mine")
    go_on(path, measure=MEASURE)
    assert path.read_bytes() == whole
    assert os.listdir(tmp_path / "a.nc.parts") == ["notes.txt"]


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_file_or_link_in_the_place_of_the_folder_is_refused(tmp_path, half, kind):
    folder = tmp_path / "a.nc.parts"
    folder.write_text("mine") if kind == "file" else folder.symlink_to(half)
    with pytest.raises(ArgumentError, match="path"):
        go_on(tmp_path / "a.nc", measure=MEASURE)
    assert folder.is_symlink() or folder.read_text() == "mine"


def test_a_sweep_that_is_refused_leaves_nothing(tmp_path):
    with pytest.raises(ArgumentError):
        go_on(tmp_path / "a.nc", make_block=lambda gain: None)
    with pytest.raises(ArgumentError, match="activation"):
        go_on(tmp_path / "a.nc", parameters={"name": ["tanh", "sine"]}, make_block=named)
    assert os.listdir(tmp_path) == []


def test_one_lock_at_a_time(tmp_path):
    file = tmp_path / "lock"
    lock = Lock(file)
    with pytest.raises(Locked):
        Lock(file)
    lock.release()
    again = Lock(file)
    again.remove()
    assert not file.exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_does_not_keep_the_lock(tmp_path):
    lock = Lock(tmp_path / "lock")
    (ready, began), (waits, ends) = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.write(began, b"x")
        os.close(ends)
        os.read(waits, 1)  # until the parent closes the pipe
        os._exit(0)
    os.read(ready, 1)
    os.close(lock._handle)  # as when the parent is killed
    Lock(tmp_path / "lock").remove()
    os.close(ends)
    os.waitpid(child, 0)


def test_a_second_sweep_on_one_path_is_refused(tmp_path):
    path = tmp_path / "a.nc"
    lines = []

    def inside(gain):
        if gain > 1.1 and not lines:
            lines.append("")
            for resume in (True, False):
                with pytest.raises(ArgumentError, match="being written by another process") as caught:
                    go_on(path, resume=resume)
                lines.append(str(caught.value))
        return make_block(gain)

    found = sweep(inside, GAINS, 20, path=path)
    assert len(lines) == 3
    assert not any("\n" in line for line in lines)
    assert [STATUS[number] for number in found.status.values].count("failed") == 0


def sweeper(path, seconds=0.0):
    """A process that sweeps to `path`, `seconds` after it is ready."""
    code = (
        "import time\nimport numpy as np\nfrom test_sweep_identity import make_block\n"
        "from dispersion import ArgumentError\nfrom simulate import sweep\n"
        "axes = {'gain': np.linspace(.2, 1.2, 60)}\nsweep(make_block, axes, 20)\nprint(flush=True)\ninput()\n"
        f"time.sleep({seconds})\nbegan = time.perf_counter()\n"
        f"try:\n    sweep(make_block, axes, depth=2000, tolerance=None, path={str(path)!r}, resume=True, group=2)\n"
        "except ArgumentError as error:\n    print(error)\n    raise SystemExit(2)\n"
        "print(time.perf_counter() - began)\n"
    )
    places = [os.path.dirname(__file__), *sys.path]
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(places)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.skipif(os.name != "posix", reason="needs locks")
@pytest.mark.parametrize(
    "runs",
    [
        pytest.param(3, marks=pytest.mark.slow),
        pytest.param(50, marks=pytest.mark.exhaustive),
    ],
)
def test_two_processes_on_one_path_never_mix(tmp_path, runs):
    alone = sweeper(tmp_path / "alone.nc")
    lasting, error = alone.communicate("\n")
    assert alone.returncode == 0, error
    expected = (tmp_path / "alone.nc").read_bytes()
    ended = Counter()
    for run in range(runs):
        path = tmp_path / f"{run}.nc"
        pair = [sweeper(path), sweeper(path, 1.5 * float(lasting) * run / runs)]
        for process in pair:
            process.stdout.readline()
        for process in pair:
            process.stdin.write("\n")
            process.stdin.flush()
        for process in pair:
            output, error = process.communicate()
            assert process.returncode in (0, 2), error
            assert "Traceback" not in error
            if process.returncode:
                assert "being written by another process" in output
            ended[process.returncode] += 1
        assert path.read_bytes() == expected
        assert sorted(os.listdir(tmp_path)) == sorted({"alone.nc", f"{run}.nc"})
        path.unlink()
    print(dict(ended))
    assert ended[0] >= runs
