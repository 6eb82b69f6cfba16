"""The pages that are written from the code: docs/build.py calls all of them."""
