"""Records begun creations on disk, so that they outlive the process, and deletes the volume of a creation whose claim is gone."""
