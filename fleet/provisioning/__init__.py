"""A fleet's folder, its certificate authority, its devices' settings, and the files for a board."""
