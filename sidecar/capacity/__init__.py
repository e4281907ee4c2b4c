"""Publishes this node's free space as CSIStorageCapacity objects: one for each eligible class and the node's one segment.

The scheduler reads them to choose a node for claims that bind late; other nodes read them where placement is ranked. See README.md.
"""
