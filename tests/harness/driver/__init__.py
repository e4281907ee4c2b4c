"""The simulated driver: in this process, and as a program."""
