"""One file for each thing that is measured. Each has `measure(bench) -> Table`."""
