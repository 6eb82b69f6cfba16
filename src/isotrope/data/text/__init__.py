"""Text in: corpora, pairs and labelled sets by file or folder, the token store, batches."""
