"""Holds what several rooms know about this node: its name and driver, what its watches have brought, and which volumes lie on it."""
