"""The nouns everybody shares. Here belongs what two rooms must agree on: records, names, units. No rule, no I/O, no clock."""
