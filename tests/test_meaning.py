"""What a check means, on planted multipliers: each criterion on a map made to meet it."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tokenwaves  # noqa: E402
from models.check import check  # noqa: E402
from models.meaning import COLLAPSE, EVEN  # noqa: E402

V = np.array([0.6, 0.8])


def planted(growth, turn=0.0):
    """A linear map on 8 tokens whose multiplier at k = 0 … 4 is `growth`, and at k = 1 … 3 turned by q·`turn`."""
    k = np.arange(8)
    half = np.minimum(k, 8 - k)
    signs = np.where(k > 4, -1, 1) * ((half > 0) & (half < 4))
    symbol = torch.fft.ifft(torch.tensor(np.array(growth)[half] * np.exp(-2j * np.pi / 8 * half * turn * signs))).real
    i, j = np.indices((8, 8))
    mixing, projector = symbol[(i - j) % 8], torch.tensor(np.outer(V, V))
    return lambda x: mixing @ x @ projector


SAYS = {
    "all wavenumbers grow alike": [1.0, 1.0 + 0.9 * EVEN, 1.0, 1.05, 1.0],
    "tokens collapse to their common mode: what they share grows 20 times": [2.0, 0.1, 0.1, 0.05, 0.1],
    "a low-pass filter: what all tokens share grows 1.33 times": [2.0, 1.5, 1.2, 1.0, 0.9],
    "a low-pass filter: what all tokens share grows 2 times": [2.0, 1.0, 1.0, 1.0, 1.0],
    "a high-pass filter: what differs between tokens grows 4 times": [0.5, 1.0, 1.2, 1.5, 2.0],
    "a high-pass filter: what differs between tokens grows 3 times": [0.5, 1.5, 1.5, 1.5, 1.5],
    "a band at k = 2 grows most": [1.0, 1.1, 1.5, 1.2, 1.0],
    "no simple filter: k = 0 grows most": [2.0, 0.5, 1.2, 0.7, 1.0],
}


@pytest.mark.parametrize("said", SAYS)
def test_what_grows(said):
    found = check([planted(SAYS[said])], V, 8)
    assert found.confirmed
    assert found.meaning.startswith(said)


def test_growth_counts_against_the_state():
    growth = [2.0, 1.5, 1.2, 1.0, 0.9]
    found = check([planted(growth)] * 2, V, 8)
    assert found.stretch == pytest.approx(4, rel=1e-12)
    np.testing.assert_allclose(found.relative, np.square(growth) / 4, rtol=1e-12)
    assert found.meaning.endswith("and the largest growth is 1 times that of the state")
    scaled = check([planted([1.0, 3.0, 1.0, 1.0, 1.0])], V, 8)
    assert scaled.meaning.endswith("and the largest growth is 3 times that of the state")
    nothing = check([planted(growth)], np.zeros(2), 8)
    assert np.isnan(nothing.stretch)
    assert np.isnan(nothing.relative).all()
    assert nothing.meaning.endswith("and the largest growth is 2")


@pytest.mark.parametrize(("turn", "said"), [(0.4, "0.4 tokens towards later"), (-1.5, "1.5 tokens towards earlier")])
def test_a_leading_wave_that_travels(turn, said):
    found = check([planted([1.0, 1.1, 1.5, 1.2, 1.0], turn)], V, 8)
    assert found.confirmed
    assert f"the leading wave travels {said} ones" in found.meaning
    assert "travels" not in check([planted([1.0, 1.1, 1.5, 1.2, 1.0])], V, 8).meaning
    assert "travels" not in check([planted([2.0, 1.1, 1.5, 1.2, 1.0], turn)], V, 8).meaning


def test_nothing_is_read_from_what_failed():
    ramp = torch.linspace(0.5, 1.0, 8, dtype=torch.float64)[:, None]
    assert check([lambda x: x + ramp * torch.tanh(x)], [0.1, 0.2], 8).meaning.startswith("nothing can be read")


def test_a_collapse_needs_the_common_mode_to_be_far_ahead():
    for share, said in ((0.99 * COLLAPSE, "tokens collapse"), (1.01 * COLLAPSE, "a low-pass")):
        assert check([planted([1.0] + [share] * 4)], V, 8).meaning.startswith(said)


def test_equal_rows_are_printed_once(tmp_path, monkeypatch, capsys):
    (tmp_path / "mean.py").write_text("def layer(x): return x + 0.5 * (x.mean(-2, keepdim=True) - x)\n")
    monkeypatch.chdir(tmp_path)
    assert tokenwaves.main(["check", "mean:layer", "--state", "1.0,2.0", "--tokens", "8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    head = next(place for place, line in enumerate(lines) if "predicted growth" in line)
    table = lines[head + 1 : lines.index("", head)]
    assert [line[:7].strip() for line in table] == ["0", "1 … 4"]
    assert tokenwaves.main(["check", "mean:layer", "--state", "1.0,2.0", "--tokens", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["k"] for row in found["rows"]] == [[0], [1, 4]]
    assert [wave["k"] for wave in found["waves"]] == [0, 1, 2, 3, 4]
    assert found["rows"][1]["error"] == max(wave["error"] for wave in found["waves"][1:])
    assert found["waves"][1]["against_state"] == pytest.approx(0.5)
    assert found["stretch"] == pytest.approx(1.0)
    assert found["meaning"].startswith("a low-pass filter: what all tokens share grows 2 times")
