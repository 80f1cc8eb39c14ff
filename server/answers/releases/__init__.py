"""Judge a release from a store: its daily reports and histograms by version, its plan, and the verdict."""
