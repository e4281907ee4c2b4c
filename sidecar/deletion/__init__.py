"""Decides whether data may be deleted. Every room that asks the driver to delete a volume uses this one rule. The call of the driver does
not belong here."""
