"""What the program shows of itself: metrics, logs, the health and debug pages, and the last decisions.

Here belongs how something is shown. What is shown is measured and decided elsewhere and handed in: no file here asks the
driver or the API server anything, and nothing here is needed for a claim to become a volume.

`plain` and `decisions` are pure. `metrics` is the only importer of prometheus_client, `server` the only file that listens.
"""
