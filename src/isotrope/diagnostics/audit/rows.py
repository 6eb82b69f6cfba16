"""Reads the records of a file as training pairs them, and embeds both views once.

A row is one record that training would use: a single text, whose views are two passes with dropout;
two adjacent texts; or a pair. It has the line of its record in the file, counted from 1 (of
adjacent texts, the line of the second). Records with an empty text are left out, as in training.

Rows that share a text, up to case and punctuation, form a group: training does not push them apart,
and nothing here counts a push between them.
"""
