"""Floor 3: reads text and images from files, tokenises or decodes them, and makes batches."""
