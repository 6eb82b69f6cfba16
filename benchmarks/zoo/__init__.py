"""The zoo: what the doctor's thresholds were set on, and what they were judged on."""
