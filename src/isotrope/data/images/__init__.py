"""Images in: sets by folder, file or name, their splits, batches of pixels, augmentation."""
