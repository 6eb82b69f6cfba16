"""Plots the scores of a sweep over each of its settings."""

import warnings

import matplotlib as mpl
import matplotlib.pyplot as plt
import optuna
from optuna.visualization.matplotlib import plot_slice

from isotrope.reports.surfaces import settings, written


def slices(study: optuna.Study, score: str) -> bytes:
    """Return Optuna's picture of a study, a panel for each setting, as SVG.

    Args:
        study: The study.
        score: Name of its value.
    """
    with mpl.rc_context(settings(score)), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is experimental, or that a setting has one value
        plot_slice(study, target_name=score)
        try:
            return written(plt.gcf()).svg
        finally:
            plt.close()
