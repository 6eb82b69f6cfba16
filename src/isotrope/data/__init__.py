"""Text in: readers of corpora and test sets, the memory-mapped token store, and batches of it."""
