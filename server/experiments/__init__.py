"""The analyst's experiment: its TOML file, budget and units."""
