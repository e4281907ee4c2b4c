"""The provisioning room between scripted doors, and what claims are made from."""
