"""Text and images in: readers, the memory-mapped token store, and batches."""
