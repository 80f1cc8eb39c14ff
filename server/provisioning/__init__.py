"""A fleet's folder, its certificate authority, its boards' settings; what goes on a board."""
