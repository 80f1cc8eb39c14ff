"""A fleet's compliance documents: the label, tables for standards and law, registry entries, signed JSON."""
