"""This node's CSIStorageCapacity objects: one per eligible class, for the node's one segment. Who reads them does not matter here."""
