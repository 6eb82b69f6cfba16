"""Reads corpora, pairs and labelled sets, stores their tokens, and makes batches of them."""
