"""Figures: their data against independent solutions, drawings from data alone, files that repeat, honest claims."""

import json

import matplotlib
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import tokenwaves
from dispersion import ArgumentError, Block, FeedForward, Head, Kernel
from figures import NAMES, fig2, fig14
from figures.files import read_data, write_data
from figures.making import figure_of, load
from figures.report import Claim, write_report
from figures.style import centred, style
from simulate import sweep
from simulate.sweeps import GROUP

MODULES = {"fig2": fig2, "fig14": fig14}


@pytest.fixture(scope="module")
def data():
    """The quick data of each figure."""
    return {name: module.compute(quick=True) for name, module in MODULES.items()}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two folders, each with a quick run of both figures."""
    folders = [tmp_path_factory.mktemp("run") / "new" / "folder" for _ in range(2)]
    for folder in folders:
        assert tokenwaves.main(["figures", "fig2", "fig14", "--out", str(folder), "--quick"]) == 0
    return folders


def claims_of(module, data):
    return {claim.id: claim for claim in module.claims(data)}


class TestFiles:
    def test_all_written_and_nothing_left_over(self, made):
        names = {f"{name}.{extension}" for name in MODULES for extension in ("pdf", "png", "nc")}
        assert {path.name for path in made[0].iterdir()} == names | {"report.json", "report.md"}

    def test_two_runs_are_identical(self, made):
        for path in made[0].iterdir():
            assert path.read_bytes() == (made[1] / path.name).read_bytes(), path.name

    def test_fonts_are_embedded_as_truetype(self, made):
        assert b"/Type3" not in (made[0] / "fig2.pdf").read_bytes()

    @pytest.mark.parametrize("name", MODULES)
    def test_saved_data_redraw_the_figure(self, made, name):
        with style():
            figure = figure_of(MODULES[name], read_data(made[0] / f"{name}.nc"))
            figure.canvas.draw()
        assert all(ax.has_data() for ax in figure.axes[: len(MODULES[name].MOSAIC)])

    def test_failed_write_leaves_the_old_file(self, tmp_path, data):
        path = write_data(data["fig2"], tmp_path / "a.nc")
        before = path.read_bytes()
        broken = data["fig2"].copy()
        broken.attrs["bad"] = object()
        with pytest.raises(TypeError):
            write_data(broken, path)
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]


class TestStyle:
    def test_comes_and_goes(self):
        with matplotlib.rc_context({"font.size": 13.0, "lines.linewidth": 5.0}):
            with style():
                assert matplotlib.rcParams["pdf.fonttype"] == 42
                assert matplotlib.rcParams["font.size"] == 8
            assert matplotlib.rcParams["font.size"] == 13
            assert matplotlib.rcParams["lines.linewidth"] == 5

    def test_drawing_opens_no_pyplot_figure(self, data):
        import matplotlib.pyplot as plt

        before, backend = plt.get_fignums(), matplotlib.get_backend()
        with style():
            figure_of(fig2, data["fig2"])
        assert plt.get_fignums() == before
        assert matplotlib.get_backend() == backend

    def test_centred(self):
        scale = centred([0.5, np.nan, 1.2], centre=1.0)
        assert (scale.vmin, scale.vmax) == (0.5, 1.5)
        flat = centred([1.0], centre=1.0)
        assert flat.vmin < 1 < flat.vmax


class TestModules:
    @pytest.mark.parametrize("name", MODULES)
    def test_named_as_registered(self, name):
        assert load(name) is MODULES[name]
        assert name == MODULES[name].NAME
        assert MODULES[name].TITLE

    def test_unknown_name_lists_the_others(self, tmp_path):
        with pytest.raises(ArgumentError, match="fig99.*" + ", ".join(NAMES)):
            load("fig99")
        assert tokenwaves.main(["figures", "fig2", "fig99", "--out", str(tmp_path / "out")]) == 2
        assert not (tmp_path / "out").exists()


class TestReport:
    def test_schema(self, made):
        report = json.loads((made[0] / "report.json").read_text())
        assert list(report) == ["claims", "settings", "versions"]
        assert all(list(row) == ["id", "claim", "paper", "here", "met", "note"] for row in report["claims"])
        assert [row["id"] for row in report["claims"]] == [
            "fig2.minima.single",
            "fig2.regime.coexistence",
            "fig2.regime.winner",
            "fig14.amplitude",
            "fig14.wavenumber",
            "fig14.scaling",
        ]
        assert all(row["met"] is True for row in report["claims"])
        assert report["settings"]["figures"] == ["fig2", "fig14"]
        assert report["settings"]["quick"] is True
        assert report["settings"]["fig14"]["seed"] == fig14.SEED
        assert {"python", "numpy", "scipy", "numba", "xarray", "matplotlib", "tokenwaves"} <= set(report["versions"])

    def test_markdown_has_a_row_per_claim(self, made):
        rows = [line for line in (made[0] / "report.md").read_text().splitlines() if line.startswith("| `")]
        assert len(rows) == 6
        # an unescaped bar inside a cell would add a column
        assert all(line.replace(r"\|", "").count("|") == 7 for line in rows)

    def test_values_that_json_lacks(self, tmp_path):
        claims = [
            Claim("a", "nan", float("nan"), np.float64("inf"), np.bool_(False)),
            Claim("b", "numpy", None, np.int64(4), True),
        ]
        write_report(claims, tmp_path, {"seeds": np.arange(2), "nested": {"x": np.nan}})
        report = json.loads((tmp_path / "report.json").read_text(), parse_constant=pytest.fail)
        assert report["claims"][0]["paper"] is None
        assert report["claims"][0]["here"] is None
        assert report["claims"][0]["met"] is False
        assert report["claims"][1]["here"] == 4
        assert report["settings"] == {"seeds": [0, 1], "nested": {"x": None}}

    def test_repeated_id_is_refused(self, tmp_path):
        with pytest.raises(ArgumentError, match="same more than once"):
            write_report([Claim("same", "", 1, 1, True)] * 2, tmp_path, {})

    def test_interrupted_sweep_is_no_figure(self, tmp_path, monkeypatch):
        def compute(quick, progress):
            def make(eta):
                if eta == 2:
                    raise KeyboardInterrupt
                return Block([Head(Kernel.gaussian_lobes(8, 2, 1.0, 1.0), eta, 1.0)], FeedForward.scalar("tanh", -0.1))

            # more points than a sweep builds at once, so that some are done when the interruption comes
            return sweep(make, {"eta": np.append(np.linspace(-0.2, -0.1, GROUP), 2)}, depth=2)

        monkeypatch.setattr(fig2, "compute", compute)
        assert tokenwaves.main(["figures", "fig2", "--out", str(tmp_path)]) == 130
        assert list(tmp_path.iterdir()) == []

    def test_interrupted_run_keeps_what_was_finished(self, tmp_path, monkeypatch):
        def interrupted(quick, progress):
            raise KeyboardInterrupt

        monkeypatch.setattr(fig14, "compute", interrupted)
        assert tokenwaves.main(["figures", "fig2", "fig14", "--out", str(tmp_path), "--quick"]) == 130
        assert len(json.loads((tmp_path / "report.json").read_text())["claims"]) == 3
        assert {path.name for path in tmp_path.iterdir()} == {
            "fig2.nc",
            "fig2.pdf",
            "fig2.png",
            "report.json",
            "report.md",
        }


class TestFig2:
    def test_stationary_points(self, data):
        points = data["fig2"]["two_mode_points"].to_dataset()
        for ratio, mixed_are_minima in ((0.4, True), (2.5, False)):
            here = points.where(points["ratio"] == ratio, drop=True)
            R = np.stack([here["R1"], here["R2"]], axis=1)
            expected = [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]
            mixed = 1 / np.sqrt(1 + ratio)
            expected += [(a * mixed, b * mixed) for a in (1, -1) for b in (1, -1)]
            assert len(R) == 9
            assert all(np.abs(R - point).max(axis=1).min() < 1e-8 for point in expected)
            minimum = here["curvature_low"].values > 0
            assert minimum.sum() == 4
            assert (np.abs(R[minimum]).min(axis=1) > 0.1).all() == mixed_are_minima

    def test_one_mode_points(self, data):
        points = data["fig2"]["one_mode_points"].to_dataset()
        minima = points.where(points["curvature"] > 0, drop=True)
        rows = np.round([minima["mu"].values, minima["beta"].values, minima["R"].values], 9).T
        found = {tuple(row) for row in rows}
        assert found == {(-1, 1, 0), (-1, -1, 0), (1, 1, -1), (1, 1, 1)}

    def test_claims_follow_the_data(self, data):
        wrong = data["fig2"].copy(deep=True)
        V = wrong["one_mode/V"]
        wrong["one_mode/V"] = V + 0.02 * V.R
        wrong["two_modes/V"] = wrong["two_modes/V"].isel(ratio=[1, 0]).assign_coords(ratio=wrong["two_modes/ratio"])
        before, after = claims_of(fig2, data["fig2"]), claims_of(fig2, wrong)
        assert all(claim.met for claim in before.values())
        assert not any(claim.met for claim in after.values())

    def test_claim_without_a_minimum_is_not_met(self, data):
        wrong = data["fig2"].copy(deep=True)
        wrong["one_mode/V"] = 0 * wrong["one_mode/V"] - wrong["one_mode/R"]
        claim = claims_of(fig2, wrong)["fig2.minima.single"]
        assert np.isnan(claim.here)
        assert not claim.met


class TestFig14:
    @pytest.mark.parametrize("alpha_1", [0.0, 0.5])
    def test_evolution_against_a_galerkin_scheme(self, alpha_1, monkeypatch):
        monkeypatch.setattr(fig14, "WAVES", 2)
        points, mu, end = 32, 0.3, 20.0
        start = 0.3 * np.fft.irfft(np.fft.rfft(np.random.default_rng(1).normal(size=points))[:5], points)
        k = np.fft.fftfreq(points, 1 / points) * fig14.Q0 / 2

        def flow(_, v):
            u = np.fft.ifft(v).real
            return (mu - (1 - k**2) ** 2) * v + np.fft.fft(alpha_1 * u**2 - u**3)

        exact = solve_ivp(flow, (0, end), np.fft.fft(start), "BDF", rtol=1e-10, atol=1e-10).y[:, -1]
        u = fig14.evolve(start, mu, alpha_1, np.array([0.0, end]))[-1]
        np.testing.assert_allclose(u, np.fft.ifft(exact).real, rtol=0, atol=3e-6)

    def test_everything_settles_at_the_critical_wavenumber(self, data):
        branch = data["fig14"]["branch"].to_dataset()
        assert (branch["drift"] < 1e-5).all()
        assert (branch["k"] == fig14.Q0).all()

    def test_error_of_the_cubic_law_shrinks_towards_onset(self, data):
        branch = data["fig14"]["branch"].to_dataset()
        error = np.abs(branch["amplitude"] / np.sqrt(branch["sigma"] / branch["g"]) - 1)
        assert (np.diff(error, axis=1) > 0).all()

    def test_saturation_coefficient(self):
        np.testing.assert_allclose(fig14.saturation([0.0, 0.5]), [3, 3 - 38 / 36], rtol=1e-14)

    def test_claims_follow_the_data(self, data):
        wrong = data["fig14"].copy(deep=True)
        wrong["branch/amplitude"] = wrong["branch/amplitude"] ** 1.1
        x = wrong["pattern/x"]
        wrong["pattern/u"] = wrong["pattern/u"] * 0 + np.cos(x * 13 / 12)
        before, after = claims_of(fig14, data["fig14"]), claims_of(fig14, wrong)
        assert all(claim.met for claim in before.values())
        assert not any(claim.met for claim in after.values())
        assert after["fig14.wavenumber"].here == pytest.approx(13 / 12)

    @pytest.mark.slow
    def test_full_data_meet_the_claims(self):
        assert all(claim.met for claim in fig14.claims(fig14.compute()))
