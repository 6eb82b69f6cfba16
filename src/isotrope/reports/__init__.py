"""Reports: one self-contained HTML page made from run folders; it reads files, trains nothing."""
