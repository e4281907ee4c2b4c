"""What the program was told: flags and environment variables, read into one frozen `Config`.

`table` has every flag once, `parse` reads a line and the environment by it. Rooms never import any of this: they are given values
(`sidecar.settings`).
"""
