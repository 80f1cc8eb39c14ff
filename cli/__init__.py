"""The command line: a file or folder for each command; the only place that knows typer."""
