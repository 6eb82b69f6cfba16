"""Floor 0: records and files that every other folder uses; nothing here knows of learning."""
