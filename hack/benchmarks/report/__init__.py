"""`hack/bench report`: the last results as one page."""
