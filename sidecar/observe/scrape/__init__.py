"""Metrics whose values are kept elsewhere and read at a scrape, and the page as Go's client writes it.

`observe.metrics` declares the others, registers these, and is what rooms hold.
"""
