"""Builds the CreateVolume request from a claim and its class, and the PersistentVolume from the driver's answer. Pure: it sends nothing."""
