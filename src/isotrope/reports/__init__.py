"""Writes reports: one self-contained HTML page from run folders, without any training."""

from typing import TYPE_CHECKING

from isotrope.core import public

if TYPE_CHECKING:
    from isotrope.reports.plots import INK as INK
    from isotrope.reports.plots import Picture as Picture
    from isotrope.reports.plots import settings as settings
    from isotrope.reports.plots import styles as styles
    from isotrope.reports.plots import written as written
    from isotrope.reports.surfaces import ANGLES as ANGLES
    from isotrope.reports.surfaces import DASHES as DASHES
    from isotrope.reports.surfaces import Surface as Surface
    from isotrope.reports.surfaces import curves as curves
    from isotrope.reports.surfaces import heatmaps as heatmaps

public(__name__)
