"""Random streams: one for each purpose of a seed, so that what is drawn for one never changes or repeats another."""

from __future__ import annotations

import numpy as np

from dispersion.errors import choice, whole_number

PURPOSES = ("frame", "arm", "training", "held_out", "batches", "code")
"""What is drawn at random in a study. New ones go to the end: their place is part of the stream."""


def stream(seed: int, purpose: str, *parts: int) -> np.random.Generator:
    """The generator of one purpose of a seed, independent of all others.

    Parameters
    ----------
    seed : int
        Seed of the study.
    purpose : str
        What is drawn: 'frame', 'arm', 'training', 'held_out', 'batches' or 'code'.
    *parts : int
        Further numbers that tell streams of one purpose apart, 0 or more.

    Returns
    -------
    numpy.random.Generator
        Its stream is a child of the seed's SeedSequence: training and held-out sets have different ones.
    """
    choice("purpose", purpose, PURPOSES)
    key = (PURPOSES.index(purpose), *(whole_number("parts", part, 0) for part in parts))
    return np.random.default_rng(np.random.SeedSequence(whole_number("seed", seed, 0), spawn_key=key))
