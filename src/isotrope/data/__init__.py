"""Reads text and images from files, tokenises or decodes them, and makes batches."""

from typing import TYPE_CHECKING

from isotrope.core import public

if TYPE_CHECKING:
    from isotrope.data.images.batches import ImageBatches as ImageBatches
    from isotrope.data.images.records import ImageSet as ImageSet
    from isotrope.data.images.sets import load_images as load_images
    from isotrope.data.lines import lines as lines
    from isotrope.data.text.sts_sets import Subset as Subset
    from isotrope.data.text.sts_sets import load_sts as load_sts
    from isotrope.data.text.sts_sets import load_sts_file as load_sts_file
    from isotrope.data.text.transfer_sets import Examples as Examples
    from isotrope.data.text.transfer_sets import TransferTask as TransferTask
    from isotrope.data.text.transfer_sets import load_transfer as load_transfer

public(__name__)
