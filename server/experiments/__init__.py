"""The analyst's experiment: the TOML file, its budget, its units."""
