"""The simulated driver: in this process, as a program, and the calls to it."""
