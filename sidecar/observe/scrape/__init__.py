"""Metrics whose values are kept as plain numbers, or elsewhere, and are read at a scrape.

`observe.metrics` declares them all, and is what rooms hold; `observe.exposition` writes the page.
"""
