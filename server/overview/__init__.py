"""An overview of a store, and a watch that notices when it changes."""
