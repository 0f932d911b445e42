"""Results of the studies of the figures without any training: learning curves that are made up, the rest is real."""

from dataclasses import replace

import numpy as np

from figures.studies import specified
from training.experiment import MATCHED, MISMATCHED
from training.looped_experiment import LoopedExperiment

LEVELS = {MATCHED: 0.6, MISMATCHED: 0.3}


def made(name, monkeypatch, seeds=3, steps=50, levels=LEVELS, sizes=None):
    """Results of the study `name` in which arms of each role rise to its level, an arm apart 0.01 lower."""

    def train(self, arms, task, size, seed, progress):
        columns = {name: np.full(column.sizes, 0.5) for name, column in self.columns(arms, [task]).items()}
        noise = np.random.default_rng([seed, size]).normal(size=len(arms))
        for place, arm in enumerate(arms):
            level = levels.get(self.role(arm, task), 0.2)
            curve = level - 0.01 * place + 0.005 * noise[place] - 0.1 * np.exp(-self.evaluated / 20)
            columns["accuracy"][place] = curve
            columns["cross_entropy"][place] = 2 - curve - 0.1 * np.log2(size / 512)
            if self.watch:
                share = 1 + (0.1 if level > 0.5 else -0.2) * np.array(self.watch) / max(self.watch)
                columns["share"][place] = columns["masked_share"][place] = share
                columns["growth"][place] = 0.9
                target = getattr(arm, "target", None)
                columns["growth"][place][:, target.wavenumber if target else 9] = 1.1
        return columns

    study = specified(name)
    experiment = replace(
        study.experiment, steps=steps, watch=[step for step in study.experiment.watch if step <= steps]
    )
    with monkeypatch.context() as patched:
        patched.setattr(LoopedExperiment, "train", train)
        return replace(study, experiment=experiment, seeds=seeds, sizes=sizes or study.sizes).run()
