"""The command line, with one file or folder per command; the only package that imports typer."""
