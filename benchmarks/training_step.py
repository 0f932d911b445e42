"""A training step of 16 networks side by side, in CPU time for each network, beside other ways to take the same step.

python benchmarks/training_step.py [--rounds 12] [--models 16] [--peers 4]

Ways take turns, on one thread, from the same weights and with the same batch; a ratio is the time of a way over that of
the faster plain single-model step of the round. CPU time is what a step takes on a core of its own, whatever else the
machine does. Before the clock starts the losses of all ways are compared. JAX is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from importlib.util import find_spec
from time import process_time
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from dispersion import Block, FeedForward, Head, Kernel
from dispersion.block.factors import OutputValue, QueryKey
from training import Code, Looped, fast

B, N, D, H, M_FF, LOOPS, LEVELS = 64, 32, 32, 4, 64, 8, 8
WIDTH, RATE = D // H, 1e-4
Weights = dict[str, np.ndarray]
Step = Callable[[], Any]


def draw(rng: np.random.Generator) -> Weights:
    """The weights of one network: rows of `qkv` are queries, keys and values, head by head."""
    sizes = {
        "embedding": (LEVELS + 1, D),
        "qkv": (3 * D, D),
        "output": (D, D),
        "logits": (H, N),
        "weight_in": (M_FF, D),
        "bias_in": (M_FF,),
        "weight_out": (D, M_FF),
        "bias_out": (D,),
        "readout": (LEVELS, D),
        "bias": (LEVELS,),
    }
    return {name: rng.normal(size=size) / (2 * np.sqrt(D)) for name, size in sizes.items()}


def block(weights: Weights) -> Block:
    """The block of these weights."""
    queries, keys, values = weights["qkv"].reshape(3, H, WIDTH, D)
    outputs = weights["output"].reshape(D, H, WIDTH).swapaxes(0, 1)
    heads = [
        Head(Kernel.table(b), OutputValue(o, v), QueryKey(q, k))
        for b, q, k, v, o in zip(weights["logits"], queries, keys, values, outputs, strict=True)
    ]
    branch = [weights[name] for name in ("weight_in", "weight_out", "bias_in", "bias_out")]
    return Block(heads, FeedForward(branch[0], branch[1], "tanh", *branch[2:]))


class Plain(nn.Module):
    """One network as it is written in PyTorch, with attention by matmul and softmax, or `fused` by PyTorch."""

    index: Tensor

    def __init__(self, weights: Weights, fused: bool = False) -> None:
        super().__init__()
        for name, value in weights.items():
            self.register_parameter(name, nn.Parameter(torch.tensor(value, dtype=torch.float32)))
        token = torch.arange(N)
        self.register_buffer("index", (token[:, None] - token) % N)
        self.fused = fused

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, N, levels) logits."""
        w: Any = self
        x, pairs = w.embedding[tokens], w.logits[:, self.index]
        for _ in range(LOOPS):
            q, k, v = functional.linear(x, w.qkv).unflatten(-1, (3, H, WIDTH)).permute(2, 0, 3, 1, 4)
            if self.fused:
                mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=pairs)
            else:
                mixed = torch.softmax(q @ k.transpose(-1, -2) / WIDTH**0.5 + pairs, dim=-1) @ v
            x = x + functional.linear(mixed.transpose(1, 2).flatten(2), w.output)
            hidden = torch.tanh(functional.linear(x, w.weight_in, w.bias_in))
            x = x + functional.linear(hidden, w.weight_out, w.bias_out)
        return functional.linear(x, w.readout, w.bias)


def plain(weights: Weights, tokens: Tensor, labels: Tensor, fused: bool = False) -> Step:
    """A step of one network."""
    net = Plain(weights, fused)
    optimiser = torch.optim.Adam(net.parameters(), lr=RATE)

    def step() -> float:
        optimiser.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(net(tokens).flatten(0, 1), labels.flatten())
        loss.backward()
        optimiser.step()
        return float(loss.detach())

    return step


def stacked(each: list[Weights], tokens: Tensor, labels: Tensor, compiled: bool = True, autocast: bool = False) -> Step:
    """A step of `Looped`, with its compiled parts or in PyTorch alone."""
    codes = [Code(weights["embedding"], weights["readout"], weights["bias"]) for weights in each]
    net = Looped([block(weights) for weights in each], codes, LOOPS)
    optimiser = torch.optim.Adam(net.parameters(), lr=RATE, fused=True)
    labels = labels.expand(len(each), B, N)
    takes = fast._compiled

    def step() -> float:
        optimiser.zero_grad(set_to_none=True)
        fast._compiled = takes if compiled else lambda x: False
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logits = net(tokens).float()
        loss = functional.cross_entropy(logits.movedim(-1, 1), labels, reduction="none").mean((1, 2))
        loss.sum().backward()
        fast._compiled = takes
        optimiser.step()
        return float(loss[0].detach())

    return step


def vmapped(each: list[Weights], tokens: Tensor, labels: Tensor) -> Step:
    """A step of torch.func.vmap over networks of torch.func.grad."""
    net = Plain(each[0])
    held = {"index": net.index}
    stack = {name: torch.tensor(np.array([w[name] for w in each]), dtype=torch.float32) for name in each[0]}
    optimiser = torch.optim.Adam([nn.Parameter(value) for value in stack.values()], lr=RATE, fused=True)
    parameters = dict(zip(stack, optimiser.param_groups[0]["params"], strict=True))

    def loss_of(weights: dict[str, Tensor]) -> Tensor:
        logits = torch.func.functional_call(net, {**weights, **held}, (tokens,))
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

    slopes = torch.func.vmap(torch.func.grad_and_value(loss_of))

    def step() -> float:
        found, loss = slopes({name: value.detach() for name, value in parameters.items()})
        for name, value in parameters.items():
            value.grad = found[name]
        optimiser.step()
        return float(loss[0].detach())

    return step


def jaxed(each: list[Weights], tokens: Tensor, labels: Tensor) -> Step:
    """A step of JAX: jit of vmap over networks of grad, and Adam in it."""
    import jax
    import jax.numpy as jnp

    token = np.arange(N)
    index, inputs, wanted = (token[:, None] - token) % N, jnp.asarray(tokens.numpy()), jnp.asarray(labels.numpy())

    def loss_of(w: Any) -> Any:
        pairs = w["logits"][:, index]

        def layer(x: Any, _: None) -> tuple[Any, None]:
            q, k, v = (x @ w["qkv"].T).reshape(B, N, 3, H, WIDTH).transpose(2, 0, 3, 1, 4)
            a = jax.nn.softmax(q @ k.swapaxes(-1, -2) / WIDTH**0.5 + pairs, axis=-1)
            x = x + (a @ v).swapaxes(1, 2).reshape(B, N, D) @ w["output"].T
            return x + jnp.tanh(x @ w["weight_in"].T + w["bias_in"]) @ w["weight_out"].T + w["bias_out"], None

        x, _ = jax.lax.scan(layer, w["embedding"][inputs], None, LOOPS)
        log_p = jax.nn.log_softmax(x @ w["readout"].T + w["bias"])
        return -jnp.take_along_axis(log_p, wanted[..., None], -1).mean()

    @jax.jit
    def update(w: Any, m: Any, s: Any, t: Any) -> Any:
        loss, g = jax.vmap(jax.value_and_grad(loss_of))(w)
        m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
        s = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, s, g)
        root, scale = jnp.sqrt(1 - 0.999**t), RATE / (1 - 0.9**t)
        w = jax.tree.map(lambda a, b, c: a - scale * b / (jnp.sqrt(c) / root + 1e-8), w, m, s)
        return loss, w, m, s

    weights = {name: jnp.asarray(np.array([w[name] for w in each]), jnp.float32) for name in each[0]}
    zero = jax.tree.map(jnp.zeros_like, weights)
    state = [weights, zero, zero, 0]

    def step() -> float:
        state[3] += 1
        loss, *state[:3] = update(*state)
        return float(loss[0])

    return step


def main() -> None:
    """Compare the losses, then time all ways in turns and print their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--models", type=int, default=16, help="networks side by side")
    parser.add_argument("--peers", type=int, default=4, help="networks side by side of vmap and of JAX")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    each = [draw(rng) for _ in range(max(asked.models, asked.peers))]
    tokens, labels = (torch.tensor(rng.integers(0, most, (B, N))) for most in (LEVELS + 1, LEVELS))
    many, some = each[: asked.models], each[: asked.peers]
    ways: dict[str, tuple[Step, int]] = {
        "plain, one network": (plain(each[0], tokens, labels), 1),
        "plain, fused attention": (plain(each[0], tokens, labels, fused=True), 1),
        "side by side": (stacked(many, tokens, labels), len(many)),
        "side by side, in PyTorch alone": (stacked(many, tokens, labels, compiled=False), len(many)),
        "side by side, bfloat16": (stacked(many, tokens, labels, autocast=True), len(many)),
        "torch.func.vmap": (vmapped(some, tokens, labels), len(some)),
    }
    if find_spec("jax"):
        ways["JAX"] = (jaxed(some, tokens, labels), len(some))
    losses = {name: step() for name, (step, _) in ways.items()}
    for name, loss in losses.items():
        if abs(loss - losses["plain, one network"]) > (0.05 if "bfloat16" in name else 1e-4):
            raise SystemExit(f"{name}: a loss of {loss}, where the plain network has {losses['plain, one network']}")

    def timed(step: Step, models: int) -> float:
        start, repeats = process_time(), 3 if models == 1 else 1
        for _ in range(repeats):
            step()
        return (process_time() - start) / repeats / models

    seconds = np.array([[timed(*way) for way in ways.values()] for _ in range(asked.rounds)])
    ratios = seconds / seconds[:, :2].min(axis=1, keepdims=True)
    print(f"{'':34}{'models':>6}{'ms each':>9}{'ratio':>7}   25 … 75 %")
    for (name, (_, models)), times, ratio in zip(ways.items(), seconds.T, ratios.T, strict=True):
        low, middle, high = np.quantile(ratio, [0.25, 0.5, 0.75])
        print(f"{name:34}{models:6}{np.median(times) * 1e3:9.1f}{middle:7.2f}   {low:.2f} … {high:.2f}")


if __name__ == "__main__":
    main()
