"""Floor 4: one self-contained HTML page from run folders; reads files only, trains nothing."""
