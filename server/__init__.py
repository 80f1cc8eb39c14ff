"""The core: counts reports into a store, and answers questions from it."""
