"""Floor 0: plain records that every other room passes around; no learning ideas live here."""
