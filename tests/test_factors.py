"""A head made of its factors is the head of their products: forward, J(q), chains and files."""

import copy

import numpy as np
import pytest

from dispersion import (
    ArgumentError,
    Block,
    Chain,
    FeedForward,
    Head,
    Kernel,
    LayerNorm,
    OutputValue,
    QueryKey,
    Rotary,
    dispersion_relation,
    full_jacobian,
)
from simulate import iterate

RNG = np.random.default_rng(7)
D, D_H, D_V, N = 5, 3, 2, 12
Q, K = RNG.normal(size=(2, D_H, D))
B_Q, B_K = RNG.normal(size=(2, D_H))
O, V = RNG.normal(size=(D, D_V)), RNG.normal(size=(D_V, D))
W = Q.T @ K / np.sqrt(D_H)
KERNEL = Kernel.skewed_lobe(N, 2.0, 0.7, 2.0, 1.0)
X = RNG.normal(size=(2, N, D))
A = RNG.normal(size=D)


def block(head):
    second = Head(Kernel.alibi(N, 0.5), 0.1 * np.eye(D))
    return Block([head, second], FeedForward.elementwise("tanh", D, -0.1), 0.7, LayerNorm(np.ones(D), eps=0.3))


def pairs():
    """(factors, dense): heads that are the same map."""
    yield Head(KERNEL, OutputValue(O, V), QueryKey(Q, K)), Head(KERNEL, O @ V, W)
    biased = Head(KERNEL, OutputValue(O, V), QueryKey(Q, K, B_Q, B_K), gate=0.3)
    yield biased, Head(KERNEL, O @ V, W, gate=0.3, key_bias=K.T @ B_Q / np.sqrt(D_H))
    yield Head(KERNEL, OutputValue(O @ V), QueryKey(Q, K, None, B_K)), Head(KERNEL, O @ V, W)
    rotary = Rotary(Q[:2], K[:2], [2 * np.pi / N], "half", B_Q[:2], B_K[:2])
    yield Head(KERNEL, OutputValue(O, V), rotary), Head(KERNEL, O @ V, rotary=rotary)


@pytest.mark.parametrize("number", range(4))
def test_factors_are_their_product(number, tmp_path):
    factors, dense = (block(head) for head in list(pairs())[number])
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)  # noqa: E731
    close(factors.forward(X), dense.forward(X))
    close(factors.heads[0].value, dense.heads[0].value)
    close(factors.heads[0].content, dense.heads[0].content)
    close(dispersion_relation(factors, A).matrices, dispersion_relation(dense, A).matrices)
    close(full_jacobian(factors, A), full_jacobian(dense, A))
    close(iterate(factors, 4, X[0]).state, iterate(dense, 4, X[0]).state)
    if not factors.heads[0].gate:
        chains = [Chain(each, 5, "open") for each in (factors, dense)]
        close(chains[0].forward(X[:, :5]), chains[1].forward(X[:, :5]))
    factors.save(tmp_path / "block.toml")
    loaded = Block.load(tmp_path / "block.toml")
    loaded.save(tmp_path / "again.toml")
    assert (tmp_path / "block.toml").read_bytes() == (tmp_path / "again.toml").read_bytes()
    assert type(loaded.heads[0].query_key) is type(factors.heads[0].query_key)
    assert (loaded.forward(X) == factors.forward(X)).all()


def test_slopes_are_those_of_queries_and_keys():
    position, step = np.arange(N)[:, None], 1e-6
    for head in (head for pair in pairs() for head in pair):
        part, x = head.query_key, X[0]
        for values, slope in ((part.queries, part.query_slope), (part.keys, part.key_slope)):
            found = np.eye(D) if slope(position) is None else slope(position)
            change = (values(x + step * A, position) - values(x - step * A, position)) / (2 * step)
            np.testing.assert_allclose(np.broadcast_to(found @ A, change.shape), change, atol=1e-8)
        logits = part.queries(x, position) @ part.keys(x, position).T / part.root
        np.testing.assert_allclose(part.logits(x, position), logits, atol=1e-13)


def test_no_square_matrix_unless_asked():
    """A head of rank 1 with 20,000 features: W and M would take 3.2 GB each."""
    d = 20_000
    u = np.cos(np.arange(d)) / np.sqrt(d)
    head = Head(Kernel.alibi(4, 0.5), OutputValue(u[:, None], u[None]), QueryKey(u[None], u[None]))
    copied = copy.deepcopy(head)
    x = np.outer([1.0, -1.0, 0.5, 0.0], u)
    want = head.attention(x) @ x @ u
    np.testing.assert_allclose(Block([copied]).forward(x), x + np.outer(want, u), atol=1e-14)
    assert not {"matrix"} & (vars(copied.output_value).keys() | vars(copied.query_key).keys())


def test_arguments_make_the_head_again():
    for head in (head for pair in pairs() for head in pair):
        again = Head(**head.arguments)
        assert (block(again).forward(X) == block(head).forward(X)).all()
        assert again.arguments.keys() == head.arguments.keys()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OutputValue(O), "output: got shape (5, 2); accepted: (d, d_v) with a value (d_v, d), or (d, d)"),
        (lambda: OutputValue(O, V.T), "value: got shape (5, 2); accepted: finite real numbers of shape (2×5)"),
        (lambda: QueryKey(Q, K[:2]), "key: got shape (2, 5); accepted: finite real numbers of shape (3×5)"),
        (lambda: QueryKey(Q, K, A), "query_bias: got shape (5,); accepted: finite real numbers of shape (3)"),
        (lambda: Rotary(Q, K, [0.1]), "query: got shape (3, 5); accepted: (d_h, d) with d_h even"),
        (lambda: Head(KERNEL, 0.5, QueryKey(Q, K)), "content: got query of 5 features; accepted: 1 as in value"),
        (
            lambda: Head(KERNEL, O @ V, QueryKey(Q, K), key_bias=A),
            "key_bias: got key_bias besides queries and keys; accepted: the query_bias of the QueryKey",
        ),
        (
            lambda: Head(KERNEL, O @ V, Rotary(Q[:2], K[:2], [[0.1, 0.2]])),
            "rotary: got frequencies for 2 axes; accepted: 1 as in the kernel",
        ),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ArgumentError) as refused:
        make()
    assert str(refused.value) == message


def test_a_file_names_the_factor_at_fault(tmp_path):
    path = tmp_path / "block.toml"
    path.write_text(
        '[block]\nn = 4\n[[head]]\nkernel = {type = "uniform"}\nvalue = {output = [[1.0]], value = [[2.0, 1.0]]}'
    )
    with pytest.raises(ArgumentError, match=r"^block.toml: head\[0\].value.value: got shape \(1, 2\)"):
        Block.load(path)
