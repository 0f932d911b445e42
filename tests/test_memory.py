"""What a call would allocate is known and refused with the number before; a container's limit counts."""

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

import dispersion.memory as memory
from amplitude import balloon, find_oscillation, find_state, normal_form, partitions
from amplitude.normal_forms.monomials import Monomials
from dispersion import (
    ArgumentError,
    Block,
    Chain,
    FeedForward,
    Head,
    Kernel,
    alibi_slopes,
    along_orbit,
    asymptotic_rate,
    attention_spectrum,
    dispersion_relation,
    fixed_points,
    full_jacobian,
    leading_multipliers,
    orbit,
    sinusoidal,
    stability,
    symbols,
    through_layers,
    toeplitz_part,
    translation_invariant_share,
)
from simulate import iterate, iterate_many, sweep, token_clusters

GIB = 2**30
TANH = FeedForward.scalar("tanh", -0.1)


@pytest.fixture
def little(monkeypatch):
    """A machine with 64 MiB left."""
    monkeypatch.setattr(memory, "available_memory", lambda: 2**26)
    monkeypatch.setattr(memory, "SMALL", 2**20)


def ring(n, d=1):
    forward = TANH if d == 1 else FeedForward.elementwise("tanh", d, -0.1)
    return Block([Head(Kernel(np.zeros(n)), -0.5 * np.eye(d), np.eye(d))], forward)


def torus(size, d=1):
    return Block([Head(Kernel(np.zeros((size, size))), -0.5 * np.eye(d), np.eye(d))])


SHAPED = {
    "alibi": lambda n: Kernel.alibi(n, 0.5),
    "uniform": lambda n: Kernel.uniform(n),
    "uniform torus": lambda n: Kernel.uniform((n, n)),
    "gaussian_lobes": lambda n: Kernel.gaussian_lobes(n, 4, 1.0, 2.0),
    "skewed_lobe": lambda n: Kernel.skewed_lobe(n, 4, 0.7, 2.0, 1.0),
    "von_mises": lambda n: Kernel.von_mises(n, 3, 1.0),
    "convit": lambda n: Kernel.convit((n, n), (1, 1), 1.0),
    "swin": lambda n: Kernel.swin((n, n), np.zeros((3, 3))),
    "alibi_slopes": alibi_slopes,
    "sinusoidal": lambda n: sinusoidal(n, 64),
}


@pytest.mark.parametrize("name", SHAPED)
@pytest.mark.parametrize("n", [10**12, 10**18])
def test_shapes_that_no_machine_holds(name, n):
    with pytest.raises(ArgumentError, match=r"that needs [\d,]{12,} bytes; accepted: at most [\d,]+ bytes of memory$"):
        SHAPED[name](n)


WAVE = 0.1 * np.cos(np.pi / 8 * np.arange(10**5))
LARGE = {
    "attention_spectrum": (lambda: attention_spectrum(ring(10**6)), "block"),
    "full_jacobian": (lambda: full_jacobian(ring(10**6)), "block"),
    "leading_multipliers": (lambda: leading_multipliers(ring(10**6)), "block"),
    "iterate, two features": (lambda: iterate(ring(10**6, 2), 10), "block"),
    "iterate, a torus": (lambda: iterate(torus(1000), 10), "block"),
    "iterate, every layer": (lambda: iterate(ring(32), 10**10, every=1), "block"),
    "iterate_many": (lambda: iterate_many(ring(10**5, 2), np.zeros((2, 10**5, 2))), "block"),
    "forward": (lambda: ring(10**6).forward(np.zeros(10**6)), "x"),
    "attention": (lambda: ring(10**6).heads[0].attention(np.zeros((10**6, 1))), "block"),
    "find_state": (lambda: find_state(ring(10**5), WAVE), "block"),
    "find_oscillation": (lambda: find_oscillation(ring(4096), np.tile(WAVE[:4096], (201, 1))[..., None], 0.1), "block"),
    "balloon": (lambda: balloon(LONG, [12500]), "blocks"),
    "partitions": (lambda: partitions(ring(10**6), 3), "block"),
    "fixed_points": (lambda: fixed_points(ring(4), starts=10**9), "starts"),
    "orbit": (lambda: orbit(ring(4), 0.1, 10**10), "layers"),
    "along_orbit": (lambda: along_orbit(ring(4), 0.1, 10**10), "layers"),
    "asymptotic_rate": (lambda: asymptotic_rate(ring(4), 0.1, 10**10), "layers"),
    "relation at many q": (lambda: dispersion_relation(ring(10**5))(np.zeros(10**6)), "q"),
    "symbols": (lambda: symbols(np.broadcast_to(0.0, (10**9, 8))), "logits"),
    "kernel at many q": (lambda: Kernel(np.zeros(10**6))(np.zeros(10**6)), "q"),
    "J(q) of many features": (lambda: dispersion_relation(ring(2**17, 512)).matrices, "block"),
    "multipliers of many features": (lambda: dispersion_relation(ring(2**17, 512)).multipliers, "block"),
    "stability": (lambda: stability(Block([Head(Kernel.alibi(9, 2.0), -0.5)]), points=10**10), "points"),
    "Chain": (lambda: Chain(ring(32), 10**6, "causal"), "n"),
    "sweep": (lambda: sweep(lambda eta: ring(10**5, 2), {"eta": [1.0]}, 10), "parameters"),
    "normal form, two modes": (
        lambda: normal_form(COMPETING, [RELATION.mode(4), RELATION.mode(10)], order=30),
        "order",
    ),
    "normal form, two features": (lambda: normal_form(ROTATING, dispersion_relation(ROTATING).leading(), 30), "order"),
    "monomials": (lambda: Monomials(6, 60), "order"),
}
TURN = np.array([[np.cos(1.3), -np.sin(1.3)], [np.sin(1.3), np.cos(1.3)]])
ROTATING = Block(
    [Head(Kernel.gaussian_lobes(32, 5, 1.0, 2.0), -0.83 * TURN @ np.diag([1, 0.9]), 2 * np.eye(2))],
    FeedForward.elementwise("tanh", 2, -0.1),
)
COMPETING = Block([Head(Kernel.gaussian_lobes(31, 4, 1.0, 2.0), -0.4, 1.5)], TANH)
RELATION = dispersion_relation(COMPETING)
SPARSE = np.full(10**5, -np.inf)
SPARSE[[-4, 4]] = 0.0
LONG = Block([Head(Kernel(SPARSE), -0.7, 1.5)], TANH)  # Λ = .9 (1 − .7 cos 4q), largest at q = π/4


@pytest.mark.parametrize("name", LARGE)
def test_what_does_not_fit_is_refused_before_it_is_allocated(name, little):
    call, argument = LARGE[name]
    tracemalloc.start()
    try:
        with pytest.raises(ArgumentError, match=r"[\d,]{8,} bytes") as refused:
            call()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert refused.value.argument == argument
    assert peak < 2**28


def test_clusters_of_many_alike_tokens_are_pairs(little):
    with pytest.raises(ArgumentError, match=r"^tolerance: got 0\.1, with 100,000,000 pairs .* bytes"):
        token_clusters(np.zeros((10**4, 1)), 0.1)
    assert len(token_clusters(np.arange(10**4)[:, None], 0.1)) == 10**4


def test_long_products_and_tables(little):
    with pytest.raises(ArgumentError, match=r"^logits: got 1,500 tokens"):
        translation_invariant_share(np.zeros((1500, 1500)))
    with pytest.raises(ArgumentError, match=r"^logits: got 1,500 tokens"):
        toeplitz_part(np.zeros((1500, 1500)))
    wide = [Block([Head(Kernel(np.zeros(2**12)), 0.1 * seed * np.eye(8))]) for seed in range(8)]
    for layers in (through_layers(wide).relations, along_orbit(wide[0], layers=3).relations):
        assert len(layers) in (8, 3)
    with pytest.raises(ArgumentError, match=r"^relations: got 3,000 layers of 4,096 wavenumbers .* bytes"):
        _ = along_orbit(wide[0], layers=3000).log_growth


class TestAvailable:
    """What the system, the address space and the control groups leave, from files like those of the kernel."""

    @pytest.fixture
    def system(self, tmp_path, monkeypatch):
        proc, groups = tmp_path / "proc", tmp_path / "cgroup"
        (proc / "self").mkdir(parents=True)
        groups.mkdir()
        (proc / "meminfo").write_text(f"MemTotal: {64 * 2**20} kB\nMemFree: 1 kB\nMemAvailable:   {32 * 2**20} kB\n")
        monkeypatch.setattr(memory, "PROC", proc)
        monkeypatch.setattr(memory, "GROUPS", groups)
        return proc, groups

    @staticmethod
    def group(folder, files):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(f"{text}\n")

    def second(self, folder, limit, used, droppable=0):
        stat = f"anon 5\ninactive_file {droppable}"
        self.group(folder, {"memory.max": limit, "memory.current": used, "memory.stat": stat})

    def test_without_groups_it_is_what_the_system_has(self, system):
        assert memory.available_memory() == 32 * GIB

    def test_version_two(self, system):
        proc, groups = system
        (proc / "self" / "cgroup").write_text("0::/user/job\n")
        self.second(groups / "user" / "job", 4 * GIB, GIB, GIB // 2)
        assert memory.available_memory() == 3.5 * GIB
        self.second(groups / "user" / "job", "max", GIB)
        assert memory.available_memory() == 32 * GIB
        self.second(groups / "user", 2 * GIB, GIB)  # a group that holds it
        assert memory.available_memory() == GIB
        self.second(groups / "user" / "job", 0, GIB)  # over its limit
        assert memory.available_memory() == 0

    def test_version_two_seen_from_a_container(self, system):
        """The path is that of the host, and the group of the container is the root."""
        proc, groups = system
        for path in ("/", "/docker/0123", "/../../other"):
            (proc / "self" / "cgroup").write_text(f"0::{path}\n")
            self.second(groups, 2 * GIB, GIB)
            assert memory.available_memory() == GIB

    def test_version_one(self, system):
        proc, groups = system
        lines = "11:cpu,cpuacct:/x\n4:memory:/docker/ab\n1:name=systemd:/\n0::/\n"
        (proc / "self" / "cgroup").write_text(lines)
        full = {"memory.limit_in_bytes": 6 * GIB, "memory.stat": "rss 1"}
        files = {"memory.limit_in_bytes": 8 * GIB, "memory.usage_in_bytes": 6 * GIB}
        self.group(groups / "memory", files | {"memory.stat": f"cache 1\ntotal_inactive_file {GIB}"})
        assert memory.available_memory() == 3 * GIB
        self.group(groups / "memory" / "docker" / "ab", files | full)
        assert memory.available_memory() == 0
        unlimited = {"memory.limit_in_bytes": 2**63 - 4096}
        for folder in (groups / "memory", groups / "memory" / "docker" / "ab"):
            self.group(folder, unlimited)
        assert memory.available_memory() == 32 * GIB

    def test_files_that_say_nothing(self, system):
        proc, groups = system
        (proc / "self" / "cgroup").write_text("0::/\nnonsense\n")
        self.group(groups, {"memory.max": "", "memory.current": "x", "memory.stat": ""})
        assert memory.available_memory() == 32 * GIB
        (proc / "meminfo").unlink()
        assert memory.available_memory() > 0

    def test_a_container_refuses_what_the_system_has(self, system):
        proc, groups = system
        (proc / "self" / "cgroup").write_text("0::/\n")
        self.second(groups, 2**28, 2**27)
        with pytest.raises(ArgumentError, match=r"^block: .* bytes; accepted: at most 107,374,182 bytes of memory$"):
            full_jacobian(ring(4000))

    @pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space are set otherwise")
    def test_the_limit_of_the_address_space(self):
        code = (
            "import resource; resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30,) * 2)\n"
            "import dispersion.memory as memory; print(memory.available_memory())"
        )
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        assert 0 < int(said) < 3 * GIB
