"""What the program shows of itself: metrics, logs, the health and debug pages, and the latest decisions.

How something is shown belongs here; what is shown is measured and decided elsewhere and passed in. No file here calls the driver or the API
server, and provisioning works without any of them.

`sanitize`, `decisions`, `exposition`, `pages` and `debug` are pure. `server` and `listening` have the only socket that listens.
"""
